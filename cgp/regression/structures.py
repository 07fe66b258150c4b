"""How processes are related: fits of several structures, compared by the Bayesian information criterion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .exact import CorrelatedGPRegression
from .fitting import Fit, fit_model, learned_parameters

__all__ = ["Choice", "best_structure"]

Model = TypeVar("Model", bound=CorrelatedGPRegression)

# What follows starts where the other ended, of which it is a generalisation or a special case.
_FOLLOWS = {"scaled": "coregionalised", "shifted": "scaled", "independent": "scaled"}


class Choice(NamedTuple):
    """The structure that was chosen.

    Attributes:
        name: of the structure.
        model: fitted.
        fit: how its fit went.
        criteria: half the information criterion of every structure in nats, the smallest the best.
    """

    name: str
    model: Any
    fit: Fit
    criteria: dict[str, float]


def best_structure(build: Callable[[str], Model], **options: Any) -> Choice:
    r"""Fit every structure and choose the one with the best information criterion.

    .. math:: -\log p(y) + \tfrac12 k \log n

    k parameters are learned from n observations. The evidence at the most probable parameters rises with every
    parameter; extrapolation in particular does not.

    Args:
        build: makes a model, not yet fitted, of the structure that is named.
        **options: of :func:`fit_model`.

    Returns:
        The best structure's model, and the criterion of all of them.

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
    return Choice(best, models[best], fits[best], criteria)


def _criterion(model: CorrelatedGPRegression) -> float:
    count = sum(value.numel() for value in learned_parameters(model.covar_module))
    return float(-model.log_evidence().detach()) + 0.5 * count * math.log(len(model.train_targets))
