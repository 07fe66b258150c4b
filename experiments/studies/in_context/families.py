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

_SMALL = Recipe(kinds=("rbf", "sawtooth"), contexts=(3, 10), targets=6, lengths=(0.8, 1.6), noise=(0.3, 0.5))
_RECIPES: Mapping[str, Recipe] = {
    "mixture": Recipe(),
    "gp": Recipe(kinds=KINDS[:3]),
    "sawtooth": Recipe(kinds=("sawtooth",)),
    "small": _SMALL,
}
_WINDOWS = {"windows": ((4, 48), 24), "small-windows": (_SMALL.contexts, _SMALL.targets)}
FAMILIES = (*_RECIPES, *_WINDOWS)
_BATCHES = {"small": 64, "small-windows": 64}  # as fast as sixteen, where functions have few points
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
        name: of :data:`FAMILIES`; "mixture" draws from Gaussian processes of three kernels and saw teeth, "small" fewer
            points of smoother and noisier functions of two kinds, with which trainings end within minutes.
        functions: number of each test set, and of each validation set.
        data: folder of the real windows.
    """
    if name not in FAMILIES:
        raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {name!r}")
    if name in _WINDOWS:
        if data is None:
            raise ValueError("data: expected a folder with multioutput/weather_south_coast for the windows, got None")
        return _windows(name, data, functions)
    recipe, batch = _RECIPES[name], _BATCHES.get(name, 16)

    def sets(part: str) -> dict[str, Drawn]:
        return {kind: _drawn(recipe._replace(kinds=(kind,)), functions, part, kind) for kind in recipe.kinds}

    test = sets("test")
    if name != "sawtooth":
        base = "rbf" if name == "small" else "matern52"
        for shift, change in _SHIFTS.items():
            test[shift] = _drawn(recipe._replace(kinds=(base,), **change), functions, "test", shift)
    return Family(lambda generator: draw(recipe, batch, generator).tasks, sets("validation"), test)


def truth(drawn: Drawn) -> Predictive | None:
    """What the process that the functions were drawn from says of the targets, or None where it is not Gaussian."""
    if drawn.covariance is None:
        return None
    return condition(drawn.covariance[:, None], drawn.noise[:, None], drawn.tasks)


def _drawn(recipe: Recipe, functions: int, part: str, name: str) -> Drawn:
    seed = _SEEDS[part] + [*KINDS, *_SHIFTS].index(name)
    return draw(recipe, functions, torch.Generator().manual_seed(seed), ragged=True)


def _windows(name: str, data: Path, functions: int) -> Family:
    parts, zero, (contexts, targets) = days(data), torch.zeros(functions), _WINDOWS[name]
    sizes: dict[str, Any] = {"contexts": contexts, "targets": targets}

    def chosen(part: str, *, forecast: bool = False) -> Drawn:
        generator = torch.Generator().manual_seed(_SEEDS[part])
        tasks = window_tasks(getattr(parts, part), functions, generator, ragged=True, forecast=forecast, **sizes)
        return Drawn(tasks, None, zero)

    return Family(
        lambda generator: window_tasks(parts.train, _BATCHES.get(name, 16), generator, **sizes),
        {"windows": chosen("validation")},
        {"windows": chosen("test"), "forecast": chosen("test", forecast=True)},
    )
