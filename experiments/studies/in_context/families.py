"""Families of functions, drawn or days of air temperature: what is trained on, and what models are scored on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.studies.in_context.predictive import Predictive, condition
from experiments.studies.in_context.tasks import KINDS, Drawn, Recipe, Stream, Tasks, draw, random_contexts
from experiments.studies.regression.multioutput import stations

__all__ = ["FAMILIES", "Days", "Family", "days", "family", "truth", "window_tasks"]

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
_POINTS = 96  # a quarter of an hour apart
_ENDS = (0.6, 0.7)  # of the days of training and validation
_FORECAST_FROM = 58  # of the points: contexts lie before 14:30, targets behind


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


class Days(NamedTuple):
    """Days in standard units of the training part, ``(days, 96)`` each, split by time: 60, 10 and 30 % of the days."""

    train: Tensor
    validation: Tensor
    test: Tensor


def days(data: Path) -> Days:
    """Read the complete days of the year 2020 at all stations.

    Args:
        data: folder with ``multioutput/weather_south_coast``.
    """
    values = stations(data / "multioutput", np.arange(0.0, 366 * 24.0, 24.0 / _POINTS), "ATMP").T.reshape(
        4, 366, _POINTS
    )
    recorded = values[:, ~np.isnan(values).all((0, 2))]
    parts = np.split(recorded, [round(end * recorded.shape[1]) for end in _ENDS], axis=1)
    whole = [part.reshape(-1, _POINTS) for part in parts]
    whole = [part[~np.isnan(part).any(1)] for part in whole]
    mean, sd = whole[0].mean(), whole[0].std()
    return Days(*(torch.as_tensor((part - mean) / sd, dtype=torch.float32) for part in whole))


def window_tasks(
    windows: Tensor,
    count: int,
    generator: torch.Generator,
    *,
    contexts: tuple[int, int],
    targets: int,
    ragged: bool = False,
    forecast: bool = False,
) -> Tasks:
    """Random days with random contexts and targets; with ``forecast`` the targets are of the end of the day."""
    rows = torch.randint(len(windows), (count, 1), generator=generator)
    low, high = contexts
    most = high if ragged else int(torch.randint(low, high + 1, (), generator=generator))
    order = torch.rand(count, _POINTS, generator=generator)
    if forecast:
        order[:, _FORECAST_FROM:] += 1.0
    places = order.argsort(-1)
    end = _POINTS if forecast else most + targets
    places = torch.cat([places[:, :most], places[:, end - targets : end]], -1)
    x, y = 4.0 * places / _POINTS - 2.0, windows[rows, places]
    padding = random_contexts(contexts, count, generator) if ragged else None
    return Tasks(x[:, :most], y[:, :most], x[:, most:], y[:, most:], padding)
