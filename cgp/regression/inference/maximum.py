"""The most probable parameters: of one structure, or of several that are compared by an information criterion."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from cgp.regression.covariances.correlated import Independent
from cgp.regression.covariances.rows import COMPONENT_STEP, correlation_of
from cgp.regression.covariances.structure import count
from cgp.regression.solvers.choice import Cost, Problem, Solver
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.solvers.sparse import warn_of_unexplained

from .fitting import Fit, Progress, fit_model, learned_parameters
from .setting import COMPARED, Fits, Inference, Setting

__all__ = [
    "MAP",
    "Compared",
    "Fitted",
    "closed_form",
    "closed_form_cost",
    "continue_from",
    "criterion",
    "evaluations_of",
    "fit_structures",
    "fit_variants",
    "num_parameters",
]

_WINDOW = 30.0  # nats; in experiments the criterion misjudged structures by up to 15

# The figures are measured (docs/notes/regression.md, "What is expected of a fit").
_FEWEST = (30, 100)  # evaluations of a fit that starts at the result of another, and of one with several starts
_PER_PARAMETER = 0.7  # further evaluations for each parameter
_PER_STEP = 1.25  # evaluations
_RACE = 80  # evaluations before the best start continues


class Fitted(NamedTuple):
    """A fitted model.

    Attributes:
        model: model with the most probable parameters.
        fit: result of the fit.
        criterion: half the information criterion in nats.
    """

    model: RegressionModel
    fit: Fit
    criterion: float


class Compared(NamedTuple):
    """Fits of several structures.

    Attributes:
        averaged: labels of the structures whose predictions are averaged, the best first.
        fits: by label.
    """

    averaged: list[str]
    fits: Mapping[str, Fitted]


@dataclass(frozen=True, kw_only=True)
class MAP(Inference):
    """The most probable parameters, by L-BFGS.

    Args:
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each.
    """

    name = "map"
    num_starts: int = count(1)
    max_steps: int = count(1000)

    def cost(self, setting: Setting) -> Cost:
        """Evaluations of the objective, of all structures one after the other."""
        return closed_form_cost(setting.solvers, self.num_starts, self.max_steps)

    def expected_steps(self, setting: Setting) -> int:
        """The expected number of evaluations."""
        problems = {label: problem for label, (_, problem) in setting.solvers.items()}
        return sum(evaluations_of(problems, num_starts=self.num_starts, max_steps=self.max_steps).values())

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Models at their most probable parameters."""
        options = {"num_starts": self.num_starts, "max_steps": self.max_steps}
        fits = closed_form(setting, seed, progress=progress, **options)
        warn_of_unexplained(fits.models)
        return fits


def closed_form(setting: Setting, seed: int, **options: Any) -> Fits:
    """Models at their most probable parameters, the best structure first where there is a choice.

    Args:
        setting: observations and structure.
        seed: of all random numbers.
        **options: of :func:`.fit_model`.

    Returns:
        A model, or those to be averaged.
    """
    structures, options = setting.candidates, options | {"seed": seed}
    (structure, *others) = structures.values()
    if not others and structure.name in structures:
        model = setting.model(structure, seed)
        return Fits([model], [structure], fit_model(model, **options), {}, {})

    def build(label: str) -> RegressionModel | None:
        return setting.model(structures[label], seed) if label in setting.solvers else None

    if structures.keys() == set(COMPARED):
        _warn_of_absent(setting)
        found = fit_structures(build, **options)
    else:
        found = fit_variants(build, list(structures), **options)
    kinds = [structures[label] for label in found.averaged]
    names = {label: structures[label].name for label in found.fits}
    return Fits(
        [found.fits[label].model for label in found.averaged],
        kinds,
        found.fits[found.averaged[0]].fit,
        {names[label]: fit.criterion for label, fit in found.fits.items()},
        {names[label]: (fit.model, structures[label]) for label, fit in found.fits.items()},
    )


def closed_form_cost(
    solvers: Mapping[str, tuple[Solver, Problem]], num_starts: int, max_steps: int, *, is_sampled: bool = False
) -> Cost:
    """Expected cost of fits, one after the other.

    Args:
        solvers: the solver and the problem of each fit.
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each.
        is_sampled: whether there are samples of the parameters; their curvatures take two evaluations for each.

    Returns:
        The sum of their seconds and the maximum of their bytes.
    """
    costs = {label: solver.cost(problem) for label, (solver, problem) in solvers.items()}
    problems = {label: problem for label, (_, problem) in solvers.items()}
    counts = evaluations_of(problems, num_starts=num_starts, max_steps=max_steps)
    further = {label: 2 * is_sampled * num_parameters(problem) for label, problem in problems.items()}
    seconds = sum((counts[label] + further[label]) * cost.seconds for label, cost in costs.items())
    return Cost(seconds, max(cost.bytes for cost in costs.values()))


def evaluations_of(problems: Mapping[str, Problem], *, num_starts: int, max_steps: int) -> dict[str, int]:
    """Expected number of evaluations of the objective in each fit, the first of which initialises the others.

    Args:
        problems: of each fit, by label.
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each start.

    Returns:
        The numbers, which increase with the number of parameters.
    """
    counts = {}
    for number, (label, problem) in enumerate(problems.items()):
        is_raced = number == 0 and (len(problems) == 1 or label not in COMPARED[1:])
        expected = _FEWEST[is_raced] + _PER_PARAMETER * num_parameters(problem)
        most = _PER_STEP * max_steps + is_raced * _RACE
        counts[label] = round(num_starts * min(expected, most))
    return counts


def num_parameters(problem: Problem) -> int:
    """Number of parameters of a model: of its covariance, two for each process, and its inducing inputs."""
    first = problem.covariance.kernels[0]
    dimension = first.input_maps.log_scales.shape[-1]
    learned = sum(values.numel() for values in problem.covariance.parameters() if values.requires_grad)
    return learned + 2 * first.num_processes + (problem.num_inducing or 0) * (dimension + first.num_processes)


def fit_structures(build: Callable[[str], RegressionModel | None], **options: Any) -> Compared:
    r"""Fit every structure but "affine", and choose those to be averaged by half the information criterion.

    .. math:: -\log p(y) + \tfrac12 k \log n

    k parameters are learned from n observations. The evidence at the most probable parameters increases with
    every parameter; accuracy, of extrapolation in particular, does not. The correlated structures within 30 nats of
    the best one are averaged; if the best is the independent one, it is used alone. The first initialises the others,
    which are special cases or generalisations of it.

    Args:
        build: returns a model before its fit, of the named structure, or None if there is none.
        **options: options of :func:`fit_model`.

    Returns:
        All fits, and which are averaged.

    Source:
        Schwarz (1978), Estimating the dimension of a model; Madigan & Raftery (1994), Model selection and accounting
        for model uncertainty in graphical models using Occam's window.
    """
    fits: dict[str, Fitted] = {}
    for name in COMPARED:
        model = build(name)
        if model is not None:
            source = fits.get(COMPARED[0])
            if source is not None:
                continue_from(model, source.model)
            fits[name] = _fitted(model, **options, race=source is None)
    best = min(fits, key=lambda name: fits[name].criterion)
    near = [name for name, fit in fits.items() if fit.criterion < fits[best].criterion + _WINDOW]
    alone = Independent.name
    others = [] if best == alone else [name for name in near if name not in (alone, best)]
    return Compared([best, *others], fits)


def fit_variants(build: Callable[[str], RegressionModel | None], labels: list[str], **options: Any) -> Compared:
    """Fit variants of one structure, from simple to complex, until the criterion no longer falls.

    The first races; later ones start at its lengthscales and noise.

    Args:
        build: returns a model before its fit, of the variant of this label, or None if there is none.
        labels: of the variants.
        **options: of :func:`.fit_model`.

    Returns:
        The best.
    """
    fits: dict[str, Fitted] = {}
    for label in labels:
        model = build(label)
        if model is None:
            continue
        before = list(fits.values())
        if before:
            _start_from(model, before[-1].model)
        fits[label] = _fitted(model, **options, race=not before)
        if fits[label].criterion > min(fit.criterion for fit in fits.values()):
            break
    best = min(fits, key=lambda label: fits[label].criterion)
    return Compared([best], {best: fits[best]})


def _fitted(model: RegressionModel, **options: Any) -> Fitted:
    fit = fit_model(model, **options)
    return Fitted(model, fit, criterion(model))


def _warn_of_absent(setting: Setting) -> None:
    absent = [name for name in COMPARED if name not in setting.solvers]
    if absent:
        warnings.warn(
            f"structure: {absent} are not compared with {list(setting.solvers)}: no solver can do them for "
            f"{len(setting.observations.targets)} observations and these options",
            UserWarning,
            stacklevel=2,
        )


@torch.no_grad()
def _start_from(model: RegressionModel, before: RegressionModel) -> None:
    """Take the processes, the means and the noise of another model of fewer processes."""
    known, count = before.state_dict(), len(before.covar_module.kernels)
    model.load_state_dict(known, strict=False)
    last = before.covar_module.kernels[count - 1].input_maps.log_scales
    for component in model.covar_module.kernels[count:]:
        component.input_maps.log_scales.copy_(last)


@torch.no_grad()
def continue_from(model: RegressionModel, before: RegressionModel) -> None:
    """Take what another model has learned; further components start like its last one, at shorter scales."""
    state, known = model.state_dict(), before.state_dict()
    same = {name: value for name, value in known.items() if name in state and value.shape == state[name].shape}
    model.load_state_dict(same, strict=False)
    sources, components = list(before.covar_module.kernels), list(model.covar_module.kernels)
    share = 0.5 * math.log(len(sources) / len(components))
    for number, component in enumerate(components):
        source = sources[min(number, len(sources) - 1)]
        further = max(number + 1 - len(sources), 0) * math.log(COMPONENT_STEP)
        component.input_maps.log_scales.copy_(source.input_maps.log_scales + further)
        component.loadings.log_scales.copy_(source.loadings.log_scales + share)
        if component.loadings.shared:
            component.loadings.set_correlation(correlation_of(source.loadings()))


def criterion(model: RegressionModel) -> float:
    """Half the Bayesian information criterion of a fitted model, in nats, the smallest the best."""
    count = sum(value.numel() for value in learned_parameters(model.covar_module))
    return float(-model.log_evidence().detach()) + 0.5 * count * math.log(len(model.train_targets))
