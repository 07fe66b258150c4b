"""Scores of every test function, so that models can be compared in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.studies.in_context.predictive import Predictive
from experiments.studies.in_context.tasks import Drawn, Tasks

__all__ = ["chained", "function_scores", "scores"]

_CHUNK = 32
_TAIL = 0.025


@torch.no_grad()
def scores(predict: Callable[[Tasks], Predictive], sets: Mapping[str, Drawn], *, chain: int) -> dict[str, NDArray[Any]]:
    """Per function and set: log-density of the targets one by one and together, and how many 95 % intervals hold them.

    Args:
        predict: the model.
        sets: F functions each.
        chain: number of functions on which a model without a joint law is asked for it by the chain rule.

    Returns:
        "SET.marginal" ``(F,)``, "SET.joint" ``(F,)`` or ``(chain,)``, both in nats a target, "SET.inside" ``(F,)``.
    """
    table: dict[str, NDArray[Any]] = {}
    for name, drawn in sets.items():
        parts = [function_scores(predict(part), part.y_targets) for part in _chunks(drawn.tasks)]
        of_set = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        if "joint" not in of_set and chain:
            factors = [chained(predict, part) for part in _chunks(drawn.tasks.part(0, chain))]
            of_set["joint"] = torch.cat(factors).mean(-1)
        table |= {f"{name}.{key}": values.numpy() for key, values in of_set.items()}
    return table


def function_scores(predictive: Predictive, y_targets: Tensor) -> dict[str, Tensor]:
    """Scores of each function, ``(B,)``: "marginal", "inside" and, where there is a joint law, "joint"."""
    y = y_targets.to(predictive.mean)
    place = predictive.cumulative(y)
    inside = ((place > _TAIL) & (place < 1.0 - _TAIL)).double().mean(-1)
    table = {"marginal": predictive.marginal(y).mean(-1), "inside": inside}
    return table if predictive.covariance is None else {**table, "joint": predictive.joint(y) / y.shape[-1]}


def chained(predict: Callable[[Tasks], Predictive], tasks: Tasks) -> Tensor:
    r"""Autoregressive log-density, :math:`\log p(y_i \mid \text{contexts}, y_{<i})`, ``(B, m)``: one pass a target."""
    steps = [tasks.asking(i) for i in range(tasks.x_targets.shape[-1])]
    return torch.cat([predict(step).marginal(step.y_targets) for step in steps], -1)


def _chunks(tasks: Tasks) -> list[Tasks]:
    return [tasks.part(start, start + _CHUNK) for start in range(0, len(tasks.x), _CHUNK)]
