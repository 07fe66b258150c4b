"""The most probable parameters by minibatches, initialised by a closed-form fit to some of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.functional.sparse_correlated import InducingPosterior
from cgp.regression.covariances.structure import check_count, count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.sparse import SparseCorrelatedGPRegression, warn_of_unexplained
from cgp.regression.solvers.stochastic import StochasticCorrelatedGPRegression

from .descent import Descent
from .fitting import Fit, Progress, learned_parameters, reported
from .maximum import closed_form, closed_form_cost
from .setting import Fits, Inference, Setting

__all__ = ["Minibatches", "fit_minibatches", "start_from"]

Objective = Callable[[Tensor, Tensor], Tensor]

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
        closed, model = fits.models[0], setting.model(fits.structures[0], StochasticCorrelatedGPRegression, seed)
        assert isinstance(model, StochasticCorrelatedGPRegression)
        assert isinstance(closed, SparseCorrelatedGPRegression)
        start_from(model, closed, count)
        sizes: dict[str, Any] = {"batch_size": self.batch_size, "num_epochs": self.num_epochs}
        rows, targets = setting.observations.rows, setting.observations.targets
        fit = fit_minibatches(model, rows, targets, seed=seed, progress=progress, **sizes)
        warn_of_unexplained([model])
        return Fits([model], fits.structures[:1], fit, fits.criteria, {})


def fit_minibatches(
    model: StochasticCorrelatedGPRegression,
    inputs: Tensor,
    targets: Tensor,
    *,
    objective: Objective | None = None,
    batch_size: int = 1024,
    num_epochs: int = 40,
    learning_rate: float = 0.01,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit the variational bound by Adam on minibatches, with a cosine schedule of the learning rate to zero.

    Args:
        model: left in eval mode.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        objective: the bound of some inputs and targets in nats per row; None is that of the model's likelihood.
        batch_size: rows a step.
        num_epochs: passes through the rows.
        learning_rate: the first one.
        tolerance: largest difference in loss per row between the last two epochs without a warning.
        seed: seed of the order of rows.
        progress: called with epoch and loss.

    Returns:
        The result of the fit.

    Raises:
        ValueError: if a count is below one.

    Warns:
        ConvergenceWarning: if the loss was still falling at the end.
    """
    for name, value in (("batch_size", batch_size), ("num_epochs", num_epochs)):
        check_count(name, value, 1)
    model.train()
    # GPyTorch's VariationalELBO would count the priors of a likelihood that the model owns twice.
    objective = objective or (
        lambda x, y: model.bound(model.likelihood.expected_log_prob(y, model(x), rows=x).mean(), len(inputs))
    )
    generator = torch.Generator().manual_seed(seed)
    steps = num_epochs * -(-len(inputs) // batch_size)
    descent = Descent(learned_parameters(model), learning_rate, steps)
    losses: list[float] = []
    for epoch in range(num_epochs):
        total = 0.0
        for rows in torch.randperm(len(inputs), generator=generator).to(inputs.device).split(batch_size):
            descent.zero_grad()
            loss = -objective(inputs[rows], targets[rows])
            loss.backward()
            descent.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(inputs))
        if progress is not None:
            progress(epoch + 1, losses[-1])
    model.eval()
    change = losses[-2] - losses[-1] if num_epochs > 1 else float("inf")
    message = f"all {num_epochs} epochs used; the last changed {change:.2g} nats"
    return reported(Fit(losses[-1], num_epochs, abs(change) < tolerance, message))


def start_from(model: StochasticCorrelatedGPRegression, closed: SparseCorrelatedGPRegression, num_rows: int) -> None:
    r"""Initialise with the parameters of a closed-form fit, and q at its estimated optimum for all n rows.

    .. math:: q(v) = N\big(B^{-1}A\Sigma^{-1}r,\; B^{-1}\big), \qquad B = I + A\Sigma^{-1}A^\top

    The sums over rows are those of the other model's rows, times n over their number. With all rows this is the
    optimum of q: Titsias (2009), equation (10).
    """
    model.load_state_dict(closed.state_dict(), strict=False)
    with torch.no_grad():
        share = len(closed.train_targets) / num_rows
        sums = closed.sums()
        posterior = InducingPosterior(sums.gram / share, sums.projection / share)
        model.variational_strategy.set_posterior(posterior)
