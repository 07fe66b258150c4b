"""How processes are related: fits of several structures, compared by the Bayesian information criterion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .fitting import Fit, fit_model, learned_parameters
from .model import RegressionModel

__all__ = ["COMPARED", "RACED", "Structures", "fit_structures"]

Model = TypeVar("Model", bound=RegressionModel)

# What each starts from the end of, a special case or a generalisation; None: from starts of its own.
_FOLLOWS = {
    "coregionalised": None,
    "shared": None,
    "shifted": "coregionalised",
    "independent": "coregionalised",
}
COMPARED = tuple(_FOLLOWS)
RACED = tuple(name for name, before in _FOLLOWS.items() if before is None)
_WINDOW = 30.0  # nats; the criterion was wrong by up to 15 between structures that were predicted with


class Structures(NamedTuple):
    """Fits of several structures.

    Attributes:
        best: the one with the best criterion.
        models: those to average the predictions of, the best first.
        fit: how the best one's fit went.
        criteria: half the information criterion of every structure in nats, the smallest the best.
        compared: the model of every structure, by name.
    """

    best: str
    models: list[Any]
    fit: Fit
    criteria: dict[str, float]
    compared: dict[str, Any]


def fit_structures(build: Callable[[str], Model | None], **options: Any) -> Structures:
    r"""Fit every structure but "affine", and choose those to be averaged by half the information criterion.

    .. math:: -\log p(y) + \tfrac12 k \log n

    k parameters are learned from n observations. The evidence at the most probable parameters rises with every
    parameter; extrapolation in particular does not. Averaged are the correlated structures within 30 nats of the best
    one; if that is the independent one, it is used by itself.

    Args:
        build: makes a model, not yet fitted, of the structure that is named, or None where none can be had.
        **options: of :func:`fit_model`.

    Returns:
        The models, and the criterion of all structures.

    Source:
        Schwarz (1978), Estimating the dimension of a model; Madigan & Raftery (1994), Model selection and accounting
        for model uncertainty in graphical models using Occam's window.
    """
    models: dict[str, Model] = {}
    fits = {}
    for name, before in _FOLLOWS.items():
        model = build(name)
        if model is None:
            continue
        models[name] = model
        if before is not None:
            models[name].load_state_dict(models[before].state_dict(), strict=False)
        fits[name] = fit_model(models[name], **options, race=before is None)
    criteria = {name: _criterion(model) for name, model in models.items()}
    best = min(criteria, key=lambda name: criteria[name])
    near = [name for name, value in criteria.items() if value < criteria[best] + _WINDOW]
    others = [] if best == "independent" else [name for name in near if name not in ("independent", best)]
    return Structures(best, [models[name] for name in (best, *others)], fits[best], criteria, models)


def _criterion(model: RegressionModel) -> float:
    count = sum(value.numel() for value in learned_parameters(model.covar_module))
    return float(-model.log_evidence().detach()) + 0.5 * count * math.log(len(model.train_targets))
