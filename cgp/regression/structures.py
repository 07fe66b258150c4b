"""How processes are related: fits of several structures, compared by the Bayesian information criterion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .exact import CorrelatedGPRegression
from .fitting import Fit, fit_model, learned_parameters

__all__ = ["Structures", "fit_structures"]

Model = TypeVar("Model", bound=CorrelatedGPRegression)

# What follows starts where the other ended, of which it is a generalisation or a special case.
_FOLLOWS = {"scaled": "coregionalised", "shifted": "scaled", "independent": "scaled"}


class Structures(NamedTuple):
    """Fits of several structures.

    Attributes:
        best: the one with the best criterion.
        models: those to average the predictions of, the best first.
        fit: how the best one's fit went.
        criteria: half the information criterion of every structure in nats, the smallest the best.
    """

    best: str
    models: list[Any]
    fit: Fit
    criteria: dict[str, float]


def fit_structures(build: Callable[[str], Model], **options: Any) -> Structures:
    r"""Fit every structure; those to be averaged are the correlated ones, or the independent one if it is the best.

    .. math:: -\log p(y) + \tfrac12 k \log n

    k parameters are learned from n observations. The evidence at the most probable parameters rises with every
    parameter; extrapolation in particular does not.

    Args:
        build: makes a model, not yet fitted, of the structure that is named.
        **options: of :func:`fit_model`.

    Returns:
        The models, and the criterion of all structures.

    Source:
        Schwarz (1978), Estimating the dimension of a model.
    """
    models, fits = {"coregionalised": build("coregionalised")}, {}
    fits["coregionalised"] = fit_model(models["coregionalised"], **options)
    for name, before in _FOLLOWS.items():
        models[name] = build(name)
        models[name].load_state_dict(models[before].state_dict(), strict=False)
        fits[name] = fit_model(models[name], **options, race=False)
    criteria = {name: _criterion(model) for name, model in models.items()}
    best = min(criteria, key=lambda name: criteria[name])
    others = [] if best == "independent" else [name for name in models if name not in ("independent", best)]
    return Structures(best, [models[name] for name in (best, *others)], fits[best], criteria)


def _criterion(model: CorrelatedGPRegression) -> float:
    count = sum(value.numel() for value in learned_parameters(model.covar_module))
    return float(-model.log_evidence().detach()) + 0.5 * count * math.log(len(model.train_targets))
