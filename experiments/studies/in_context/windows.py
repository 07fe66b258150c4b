"""Days of air temperature at four stations on a coast, as functions of one input."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.studies.in_context.tasks import Tasks, random_contexts
from experiments.studies.regression.multioutput import stations

__all__ = ["Days", "days", "window_tasks"]

_POINTS = 96  # a quarter of an hour apart
_ENDS = (0.6, 0.7)  # of the days of training and validation
_FORECAST_FROM = 58  # of the points: contexts lie before 14:30, targets behind


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
