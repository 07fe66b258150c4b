"""Fits of several structures of correlation, compared by the Bayesian information criterion."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from cgp.regression.covariances.rows import COMPONENT_STEP, correlation_of
from cgp.regression.solvers.model import RegressionModel

from .fitting import Fit, fit_model, learned_parameters

__all__ = ["COMPARED", "RACED", "Fitted", "Structures", "continue_from", "criterion", "fit_structures", "fitted"]

# The structure whose result initialises each, a special case or a generalisation; None: several starts.
_FOLLOWS = {
    "coregionalised": None,
    "shared": "coregionalised",
    "shifted": "coregionalised",
    "independent": "coregionalised",
}
COMPARED = tuple(_FOLLOWS)
RACED = tuple(name for name, before in _FOLLOWS.items() if before is None)
_WINDOW = 30.0  # nats; in experiments the criterion misjudged structures by up to 15


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


class Structures(NamedTuple):
    """Fits of several structures.

    Attributes:
        best: name of the structure with the best criterion.
        models: models whose predictions are averaged, the best first.
        fit: result of the best fit.
        criteria: half the information criterion of every structure in nats, the smallest the best.
        compared: the model of every structure, by name.
    """

    best: str
    models: list[Any]
    fit: Fit
    criteria: dict[str, float]
    compared: dict[str, Any]


def fit_structures(
    build: Callable[[str], RegressionModel | None],
    further: Mapping[str, Fitted] | None = None,
    **options: Any,
) -> Structures:
    r"""Fit every structure but "affine", and choose those to be averaged by half the information criterion.

    .. math:: -\log p(y) + \tfrac12 k \log n

    k parameters are learned from n observations. The evidence at the most probable parameters increases with
    every parameter; accuracy, of extrapolation in particular, does not. The correlated structures within 30 nats of
    the best one are averaged; if the best is the independent one, it is used alone.

    Args:
        build: returns a model before its fit, of the named structure, or None if there is none.
        further: structures fitted already.
        **options: options of :func:`fit_model`.

    Returns:
        The models, and the criterion of all structures.

    Source:
        Schwarz (1978), Estimating the dimension of a model; Madigan & Raftery (1994), Model selection and accounting
        for model uncertainty in graphical models using Occam's window.
    """
    fits = dict(further or {})
    for name, before in _FOLLOWS.items():
        model = build(name)
        if model is not None:
            source = None if before is None or before not in fits else fits[before].model
            if source is not None:
                continue_from(model, source)
            fits[name] = fitted(model, **options, race=source is None)
    criteria = {name: one.criterion for name, one in fits.items()}
    best = min(criteria, key=lambda name: criteria[name])
    near = [name for name, value in criteria.items() if value < criteria[best] + _WINDOW]
    others = [] if best == "independent" else [name for name in near if name not in ("independent", best)]
    models = {name: one.model for name, one in fits.items()}
    return Structures(best, [models[name] for name in (best, *others)], fits[best].fit, criteria, models)


def fitted(model: RegressionModel, **options: Any) -> Fitted:
    """Fit a model by :func:`fit_model` with these options."""
    fit = fit_model(model, **options)
    return Fitted(model, fit, criterion(model))


@torch.no_grad()
def continue_from(model: RegressionModel, before: RegressionModel) -> None:
    """Take what another model has learned; components that it has not start like its last one, at shorter scales."""
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
