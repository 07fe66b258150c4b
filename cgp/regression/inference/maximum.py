"""The most probable parameters: of one structure, or of several that are compared by an information criterion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from cgp.regression.covariances.correlated import Independent
from cgp.regression.covariances.rows import COMPONENT_STEP, correlation_of
from cgp.regression.covariances.structure import Structure, count
from cgp.regression.solvers.choice import Cost, Problem, Solver
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.solvers.sparse import warn_of_unexplained
from cgp.warning import warn_user

from .fitting import RACED, Fit, Progress, fit_model, learned_parameters
from .setting import COMPARED, Fits, Inference, Setting

__all__ = ["MAP", "closed_form", "closed_form_cost", "criterion", "evaluations_of"]

_WINDOW = 30.0  # nats; in experiments the criterion misjudged structures by up to 15

# The figures are measured (docs/notes/regression.md, "What is expected of a fit").
_FEWEST = (20, 100)  # evaluations of a fit that starts at the result of another, and of one with several starts
_PER_PARAMETER = 0.7  # further evaluations for each parameter
_PER_STEP = 1.25  # evaluations
_RACE = 80  # evaluations before the best start continues


class _Fitted(NamedTuple):
    structure: Structure
    model: RegressionModel
    fit: Fit
    criterion: float


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
        return sum(evaluations_of(setting.solvers, self.num_starts, self.max_steps).values())

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Models at their most probable parameters."""
        options = {"num_starts": self.num_starts, "max_steps": self.max_steps}
        fits = closed_form(setting, seed, progress=progress, **options)
        if setting.num_inducing is not None:
            warn_of_unexplained(fits.models)
        return fits


def closed_form(setting: Setting, seed: int, **options: Any) -> Fits:
    r"""Models at their most probable parameters, the best structure first where there is a choice.

    Several are compared by half the information criterion,

    .. math:: -\log p(y) + \tfrac12 k \log n

    where k parameters are learned from n observations. The evidence at the most probable parameters increases with
    every parameter; accuracy, of extrapolation in particular, does not. For "auto" the correlated structures within 30
    nats of the best one are averaged; if the best is the independent one, it is used alone. The first initialises the
    others, which are special cases or generalisations of it. Variants of one structure are fitted from simple to
    complex, each from the one before, until the criterion no longer falls.

    Args:
        setting: observations and structure.
        seed: of all random numbers.
        **options: of :func:`.fit_model`.

    Returns:
        A model, or those to be averaged.

    Source:
        Schwarz (1978), Estimating the dimension of a model; Madigan & Raftery (1994), Model selection and accounting
        for model uncertainty in graphical models using Occam's window.
    """
    (structure, *others), options = setting.candidates.values(), options | {"seed": seed}
    if not others and structure.name in setting.candidates:
        model = setting.model(structure, setting.solvers[structure.name][0], seed)
        return Fits([model], [structure], fit_model(model, **options), {}, {})
    if setting.is_compared:
        _warn_of_absent(setting)
    fits = _compared(setting, options)
    best = min(fits, key=lambda label: fits[label].criterion)
    averaged = {best: fits[best]}
    if not setting.is_compared:
        fits = averaged
    elif best != Independent.name:
        most = fits[best].criterion + _WINDOW
        averaged |= {name: fit for name, fit in fits.items() if fit.criterion < most and name != Independent.name}
    models = {fit.structure.name: (fit.model, fit.structure) for fit in fits.values()}
    criteria = {fit.structure.name: fit.criterion for fit in fits.values()}
    first, *rest = averaged.values()
    kinds = [fit.structure for fit in (first, *rest)]
    return Fits([fit.model for fit in (first, *rest)], kinds, first.fit, criteria, models)


def _compared(setting: Setting, options: Mapping[str, Any]) -> dict[str, _Fitted]:
    """Fits of several candidates, each but the first from where another one ended."""
    fits: dict[str, _Fitted] = {}
    last = None
    for label, (solver, _) in setting.solvers.items():
        structure = setting.candidates[label]
        model = setting.model(structure, solver, options["seed"])
        source = fits.get(COMPARED[0]) if setting.is_compared else last
        if source is not None:
            (continue_from if setting.is_compared else _start_from)(model, source.model)
        fit = fit_model(model, race=source is None, **options)
        fits[label] = last = _Fitted(structure, model, fit, criterion(model))
        if not setting.is_compared and last.criterion > min(fit.criterion for fit in fits.values()):
            break
    return fits


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
    counts, seconds, most = evaluations_of(solvers, num_starts, max_steps), 0.0, 0.0
    for number, (label, (solver, problem)) in enumerate(solvers.items()):
        cost, count = solver.cost(problem), counts[label]
        if number == 0 and solver.name == CorrelatedGPRegression.name and problem.num_observations > RACED:
            part = problem._replace(num_observations=RACED)  # on which starts are compared
            seconds, count = min(_RACE, count) * solver.cost(part).seconds, max(count - _RACE, 0)
        seconds += (count + 2 * is_sampled * _num_parameters(problem)) * cost.seconds
        most = max(most, cost.bytes)
    return Cost(seconds, most)


def evaluations_of(solvers: Mapping[str, tuple[Solver, Problem]], num_starts: int, max_steps: int) -> dict[str, int]:
    """Expected number of evaluations of the objective in each fit, the first of which initialises the others.

    Args:
        solvers: the solver and the problem of each fit.
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each start.

    Returns:
        The numbers, which increase with the number of parameters.
    """
    counts = {}
    for number, (label, (_, problem)) in enumerate(solvers.items()):
        is_raced = number == 0 and (len(solvers) == 1 or label not in COMPARED[1:])
        expected = _FEWEST[is_raced] + _PER_PARAMETER * _num_parameters(problem)
        most = _PER_STEP * max_steps + is_raced * _RACE
        counts[label] = round(num_starts * min(expected, most))
    return counts


def _num_parameters(problem: Problem) -> int:
    """Number of parameters of a model: of its covariance, two for each process, and its inducing inputs."""
    first = problem.covariance.kernels[0]
    dimension = first.input_maps.log_scales.shape[-1]
    learned = sum(values.numel() for values in learned_parameters(problem.covariance))
    return learned + 2 * first.num_processes + (problem.num_inducing or 0) * (dimension + first.num_processes)


def _warn_of_absent(setting: Setting) -> None:
    absent = [name for name in COMPARED if name not in setting.solvers]
    if absent:
        warn_user(
            f"structure: {absent} are not compared with {list(setting.solvers)}: no solver can do them for "
            f"{len(setting.observations.targets)} observations and these options"
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
