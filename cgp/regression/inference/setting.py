"""What a fit is asked for, what an inference is, and which structure and inference stand for "auto"."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel

from cgp.regression.covariances.correlated import Coregionalised, Independent, Shared, Shifted, SmoothAndRough
from cgp.regression.covariances.factors import Factors
from cgp.regression.covariances.multiscale import MultiScale
from cgp.regression.covariances.structure import Auto, Named, Structure, count
from cgp.regression.observations import Observations
from cgp.regression.solvers.choice import Cost, Problem, Solver, choose_solver
from cgp.regression.solvers.model import RegressionModel

from .fitting import Fit, Progress, seeded

__all__ = ["COMPARED", "OF_SUMS", "Automatic", "Fits", "Inference", "Setting", "chosen", "measured_seconds"]

_FOLLOWING = (Coregionalised, Shared, Shifted, Independent)  # compared for "auto"; the first initialises the others
COMPARED = tuple(kind.name for kind in _FOLLOWING)
_FEW = 50  # observations for which a point estimate of the parameters is not enough
_LONG = 2000  # observations of a series of many time scales
_MANY = 8  # smallest number of outputs for which few processes are fitted if all structures take long
_LEAST_SHARE = 0.5  # smallest observed share of the cells of a table, for that
OF_SUMS = "matern32"  # kernel of series with known sums, for every structure
_MEASURED, _MEASUREMENTS, _TICK = 600, 3, 1e-4  # observations of an evaluation that is measured, how often, seconds
_LONG_EVALUATION = 0.55  # seconds of an evaluation; a fit of a structure takes a hundred and more


class Fits(NamedTuple):
    """What an inference found.

    Attributes:
        models: models whose predictions are averaged, the best first; samples in batches.
        structures: the structure of each.
        fit: of the first.
        criteria: half the information criterion of every structure that was compared, in nats.
        compared: the most probable model of each of these, and its structure.
        samples: of the parameters with their diagnostics, or None.
    """

    models: list[RegressionModel]
    structures: list[Structure]
    fit: Fit
    criteria: Mapping[str, float]
    compared: Mapping[str, tuple[RegressionModel, Structure]]
    samples: Any = None


@dataclass(frozen=True, eq=False)
class Setting:
    """What a fit is asked for.

    Attributes:
        observations: standardised.
        structure: of the outputs.
        kernel: the canonical covariance; None is the structure's default.
        num_inducing: number of inducing inputs; None is exact regression.
    """

    observations: Observations
    structure: Structure
    kernel: str | Kernel | None = None
    num_inducing: int | None = None

    def covariance(self, structure: Structure) -> AdditiveKernel:
        """The covariance of rows."""
        default = structure.kernel if self.observations.sums is None else OF_SUMS
        return structure.covariance(self.observations, default if self.kernel is None else self.kernel)

    def problem(self, structure: Structure) -> Problem:
        """The problem that a solver is chosen for."""
        sizes = len(self.observations.targets), len(self.observations.grid.inputs)
        known = self.observations.sums
        return Problem(self.covariance(structure), *sizes, self.num_inducing, 0 if known is None else len(known.values))

    @cached_property
    def candidates(self) -> Mapping[str, Structure]:
        """The structures to be fitted, by their labels."""
        if not isinstance(self.structure, Auto):
            return self.structure.variants(self.observations)
        count = self.structure.num_components
        if self.observations.num_outputs == 1:
            return {Independent.name: Independent(count or 1)}
        if self.observations.bins:
            return {SmoothAndRough.name: SmoothAndRough(count or 1)}
        few = self.num_inducing is None and self.observations.num_outputs >= _MANY
        if few and self._takes_long(self.problem(Coregionalised(count or 1))):
            return Factors(count).variants(self.observations)
        return {kind.name: kind(count or 1) for kind in _FOLLOWING}

    @property
    def is_compared(self) -> bool:
        """Whether the candidates are the structures that "auto" compares."""
        return self.candidates.keys() == set(COMPARED)

    @cached_property
    def solvers(self) -> Mapping[str, tuple[Solver, Problem]]:
        """The solver and the problem of each; candidates without a solver are omitted if others have one."""
        solvers, errors = {}, []
        for label, structure in self.candidates.items():
            problem = self.problem(structure)
            try:
                solvers[label] = choose_solver(problem), problem
            except ValueError as error:
                errors.append(error)
        if not solvers:
            raise errors[0]
        return solvers

    def model(self, structure: Structure, solver: Solver, seed: int = 0) -> RegressionModel:
        """A model before its fit, its parameters where a fit starts."""
        covariance = self.covariance(structure)
        noise = structure.start(covariance, self.observations)
        model = self.built(solver, covariance, seed)
        if noise is not None:
            model.likelihood.noise = noise
        return model

    def built(self, solver: Solver, covariance: AdditiveKernel, seed: int = 0) -> RegressionModel:
        """A model of a covariance."""
        given = self.observations
        inducing = {} if self.num_inducing is None else {"num_inducing": self.num_inducing, "seed": seed % 2**32}
        sums = {} if given.sums is None else {"totals": given.sums}
        return solver(given.rows, given.targets, given.num_outputs, covar_module=covariance, **inducing, **sums)

    def _takes_long(self, problem: Problem) -> bool:
        """Whether the first of the structures takes minutes, for a table whose cells are mostly observed."""
        if problem.num_observations < _LEAST_SHARE * self.observations.num_outputs * problem.num_inputs:
            return False
        try:
            return choose_solver(problem).cost(problem).seconds > _LONG_EVALUATION
        except ValueError:  # no solver can do it
            return True


@dataclass(frozen=True, kw_only=True)
class Inference(Named):
    """How parameters are found, or sampled.

    One of your own is a subclass with a ``name``, :meth:`fit` and :meth:`cost`, a frozen dataclass if it has options.
    """

    def resolved(self, setting: Setting) -> Inference:
        """The inference itself, or the one that it stands for with these observations."""
        return self

    def obstacle(self, setting: Setting) -> str | None:
        """What is in the way of a fit, as "argument: expected …", or None."""
        return None

    def cost(self, setting: Setting) -> Cost:
        """The expected cost of a fit."""
        raise NotImplementedError

    def pace(self, setting: Setting) -> float:
        """How long this machine takes for what is expected to take a second, by a part of what a fit evaluates."""
        if setting.observations.sums is not None:
            return 1.0
        label, (solver, problem) = next(iter(setting.solvers.items()))
        with seeded(0):
            model = setting.model(setting.candidates[label], solver)
        rows = torch.arange(0, problem.num_observations, -(-problem.num_observations // _MEASURED))
        part = model.of_rows(rows)
        inputs = len(setting.observations.rows[rows, :-1].unique(dim=0))
        expected = solver.cost(Problem(problem.covariance, len(rows), inputs, problem.num_inducing)).seconds
        return measured_seconds(lambda: (part.log_evidence().sum() + part.log_prior()).backward()) / expected

    def pass_seconds(self, setting: Setting) -> float:
        """The expected seconds of predictions at all rows, given some of the observations."""
        return sum(solver.cost(problem).seconds for solver, problem in setting.solvers.values())

    def expected_steps(self, setting: Setting) -> int | None:
        """The expected number of steps of a fit, or None where it is not known."""
        return None

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Fit to observations.

        Args:
            setting: observations and structure.
            seed: of all random numbers.
            progress: called with the count of steps and the loss.

        Returns:
            Models and how they were found.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Automatic(Inference):
    """Slice sampling up to 50 observations, Laplace's approximation below a number, else the most probable parameters.

    Beside known sums, Laplace's approximation takes the place of slices.

    Args:
        laplace_below: so many observations.
    """

    name = "auto"
    laplace_below: int = count(0, 0)

    def resolved(self, setting: Setting) -> Inference:
        """The inference that it stands for."""
        number = len(setting.observations.targets)
        if setting.num_inducing is not None:
            return Inference.of("map")
        is_quick = setting.observations.sums is None  # chains of series with sums take many minutes
        if number <= _FEW:
            return Inference.of("slice" if is_quick else "laplace")
        return Inference.of("laplace" if number < self.laplace_below else "map")


def measured_seconds(compute: Callable[[], object]) -> float:
    """Seconds of the processor, the least of three."""
    seconds = []
    for _ in range(_MEASUREMENTS):
        start = time.process_time()
        compute()
        seconds.append(time.process_time() - start)
    return max(min(seconds), _TICK)


def chosen(
    observations: Observations, structure: Any, inference: Any, kernel: str | Kernel | None, num_inducing: int | None
) -> tuple[Structure, Inference]:
    """The structure and the inference of a fit, where "auto" or a name may have been given.

    Args:
        observations: in the user's units.
        structure: name or object.
        inference: name or object.
        kernel: name, object, or None.
        num_inducing: number of inducing inputs, or None.

    Returns:
        Both as objects. "auto" is :class:`.MultiScale` for more than 2,000 observations of a series, if kernel, number
        of components and inference do not rule it out.

    Raises:
        ValueError: if they do not go together, or with the observations.
    """
    structure, inference = Structure.of(structure), Inference.of(inference)
    # What windows find, too.
    most_probable = isinstance(inference, Automatic) or inference == Inference.of("map")
    if isinstance(structure, Auto):
        is_long = most_probable and structure == Auto() and int(observations.observed.sum()) > _LONG
        possible = is_long and MultiScale().obstacle(observations, kernel, num_inducing) is None
        structure = MultiScale() if possible or inference.name == MultiScale.inference else structure
    if structure.inference is not None:
        inference = Inference.of(structure.inference) if most_probable else inference
        if inference.name != structure.inference:
            raise ValueError(
                f"inference: expected 'auto' or {structure.inference!r} for structure={structure.name!r}, "
                f"got {inference!r}"
            )
    elif inference.name == MultiScale.inference:
        raise ValueError(
            f"structure: expected {MultiScale.name!r} for inference={inference.name!r}, got {structure.name!r}"
        )
    obstacle = structure.obstacle(observations, kernel, num_inducing)
    if obstacle is not None:
        raise ValueError(f"{obstacle}, for structure={structure.name!r}")
    return structure, inference
