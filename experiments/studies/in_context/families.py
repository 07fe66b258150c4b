"""Families of functions: what is trained on, and the sets that models are scored on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.studies.in_context.predictive import Predictive, condition
from experiments.studies.in_context.tasks import KINDS, Drawn, Recipe, Stream, draw
from experiments.studies.in_context.windows import days, window_tasks

__all__ = ["FAMILIES", "Family", "family", "truth"]

FAMILIES = ("mixture", "gp", "sawtooth", "windows")
_BATCH = 16
_GAUSSIAN = KINDS[:3]
_TRAINED = {"mixture": KINDS, "gp": _GAUSSIAN, "sawtooth": ("sawtooth",)}
_SHIFTS: Mapping[str, Mapping[str, Any]] = {
    "few": {"contexts": (5, 5)},
    "many": {"contexts": (64, 64)},
    "outside": {"asked": (2.0, 4.0)},
    "short": {"lengths": (0.1, 0.2)},
    "noisy": {"noise": (0.4, 0.6)},
}
_SEEDS = {"validation": 10_001, "test": 20_001}


class Family(NamedTuple):
    """What a model learns from and how it is scored.

    Attributes:
        stream: draws training tasks.
        validation: sets of the learning curve.
        test: sets by name.
    """

    stream: Stream
    validation: Mapping[str, Drawn]
    test: Mapping[str, Drawn]


def family(name: str, *, functions: int, data: Path | None = None) -> Family:
    """A family by name.

    Args:
        name: of :data:`FAMILIES`; "mixture" draws from Gaussian processes of three kernels and saw teeth.
        functions: number of each test set, and of each validation set.
        data: folder of the real windows.
    """
    if name not in FAMILIES:
        raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {name!r}")
    if name == "windows":
        if data is None:
            raise ValueError("data: expected a folder with multioutput/weather_south_coast for the windows, got None")
        return _windows(data, functions)
    kinds = _TRAINED[name]
    recipe = Recipe(kinds=kinds)
    validation = {kind: _drawn(recipe._replace(kinds=(kind,)), functions, "validation", kind) for kind in kinds}
    test = {kind: _drawn(recipe._replace(kinds=(kind,)), functions, "test", kind) for kind in kinds}
    if name != "sawtooth":
        for shift, change in _SHIFTS.items():
            test[shift] = _drawn(recipe._replace(kinds=("matern52",), **change), functions, "test", shift)
    return Family(lambda generator: draw(recipe, _BATCH, generator).tasks, validation, test)


def truth(drawn: Drawn) -> Predictive | None:
    """What the process that the functions were drawn from says of the targets, or None where it is not Gaussian."""
    if drawn.covariance is None:
        return None
    return condition(drawn.covariance[:, None], drawn.noise[:, None], drawn.tasks)


def _drawn(recipe: Recipe, functions: int, part: str, name: str) -> Drawn:
    seed = _SEEDS[part] + [*KINDS, *_SHIFTS].index(name)
    return draw(recipe, functions, torch.Generator().manual_seed(seed), ragged=True)


def _windows(data: Path, functions: int) -> Family:
    parts, zero = days(data), torch.zeros(functions)

    def chosen(part: str, *, forecast: bool = False) -> Drawn:
        generator = torch.Generator().manual_seed(_SEEDS[part])
        tasks = window_tasks(getattr(parts, part), functions, generator, ragged=True, forecast=forecast)
        return Drawn(tasks, None, zero)

    return Family(
        lambda generator: window_tasks(parts.train, _BATCH, generator),
        {"windows": chosen("validation")},
        {"windows": chosen("test"), "forecast": chosen("test", forecast=True)},
    )
