"""The most probable parameters by minibatches, initialised by a closed-form fit to some of the rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from cgp.regression.covariances.structure import count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.sparse import SparseCorrelatedGPRegression, warn_of_unexplained
from cgp.regression.solvers.stochastic import StochasticCorrelatedGPRegression, fit_minibatches, start_from

from .fitting import Progress
from .maximum import closed_form, closed_form_cost
from .setting import Fits, Inference, Setting

__all__ = ["Minibatches"]

_WARM_ROWS = 2048  # rows of the closed-form fit before
_WARM_STEPS = 40
_STEP = 1e-2  # seconds of a step of Adam, besides an evaluation (docs/notes/regression.md)


@dataclass(frozen=True, kw_only=True)
class Minibatches(Inference):
    """The most probable parameters of the best structure by minibatches and inducing inputs, for any number of rows.

    Args:
        num_epochs: number of passes through the rows.
        batch_size: rows of a minibatch.
        num_starts: number of starts of the closed-form fit of some of the rows, which initialises it.
    """

    name = "stochastic"
    num_epochs: int = count(40)
    batch_size: int = count(1024)
    num_starts: int = count(1)

    def obstacle(self, setting: Setting) -> str | None:
        """Refuse a fit without inducing inputs."""
        if setting.num_inducing is None:
            return f"num_inducing: expected a number for inference={self.name!r}, got None"
        return None

    def cost(self, setting: Setting) -> Cost:
        """The cost of the passes for the most expensive structure, and of the fit that initialises them."""
        passes, warm = [], {}
        for label, (solver, problem) in setting.solvers.items():
            size = min(self.batch_size, problem.num_observations)
            steps = self.num_epochs * -(-problem.num_observations // size)
            seconds = _STEP + solver.cost(problem._replace(num_observations=size)).seconds
            passes.append(Cost(steps * seconds, solver.cost(problem).bytes))
            rows = min(problem.num_observations, _WARM_ROWS)
            warm[label] = (solver, problem._replace(num_observations=rows))
        first = closed_form_cost(warm, self.num_starts, _WARM_STEPS)
        return max(passes)._replace(seconds=max(passes).seconds + first.seconds)

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """A model by minibatches."""
        count = len(setting.observations.targets)
        some = setting.observations.chosen(torch.randperm(count)[:_WARM_ROWS])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the initial fit is stopped early on purpose
            options = {"num_starts": self.num_starts, "max_steps": _WARM_STEPS, "progress": progress}
            fits = closed_form(replace(setting, observations=some), seed, **options)
        closed, model = fits.models[0], setting.model(fits.structures[0], seed, is_stochastic=True)
        assert isinstance(model, StochasticCorrelatedGPRegression)
        assert isinstance(closed, SparseCorrelatedGPRegression)
        start_from(model, closed, count)
        sizes: dict[str, Any] = {"batch_size": self.batch_size, "num_epochs": self.num_epochs}
        rows, targets = setting.observations.rows, setting.observations.targets
        fit = fit_minibatches(model, rows, targets, seed=seed, progress=progress, **sizes)
        warn_of_unexplained([model])
        return Fits([model], fits.structures[:1], fit, fits.criteria, {})
