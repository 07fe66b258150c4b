"""A gap of twelve hours at one weather station, filled from the others."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.studies.regression.methods import CORRELATED, PEERS
from experiments.studies.regression.problems import Problem, scores
from experiments.studies.regression.report import with_peers, write_results
from experiments.studies.regression.rows import cached_row

__all__ = ["STATIONS", "weather", "weather_problem"]

STATIONS = ("sotonmet", "bramblemet", "cambermet", "chimet")
_WINDOW, _GAP = 72.0, 12.0
_DAYS = 188


def weather(
    data: Path,
    out: Path,
    variable: str = "ATMP",
    num_gaps: int = 20,
    minutes: int = 30,
    kernel: str = "matern32",
    threads: int = 1,
) -> None:
    """Gaps of 12 hours in windows of 72, spread evenly over the half year, at each station in turn.

    Args:
        data: the folder that holds ``multioutput/weather_south_coast``.
        out: where tables and rows go.
        variable: "ATMP" (air temperature, °C), "WSPD" (wind, knots), "DEPTH" (tide, m), ...
        num_gaps: how many.
        minutes: between readings that are kept.
        kernel: canonical covariance.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    readings = {station: _readings(data, station, variable) for station in STATIONS}
    rows = []
    for gap in range(num_gaps):
        problem = weather_problem(readings, gap, num_gaps, minutes)
        if problem is None:
            print(f"gap {gap}: no readings at the station, left out")
            continue
        for name, method in CORRELATED.items():
            key = {"variable": variable, "gap": gap, "method": name}
            rows.append(
                cached_row(
                    out / "weather",
                    key,
                    lambda method=method, problem=problem: scores(problem, method(problem, kernel=kernel)),
                    minutes=minutes,
                    kernel=kernel,
                )
            )
    rows = with_peers(rows, ("variable", "gap"), PEERS)
    columns = ("rmse", "mae", "nll", "ahead", "coverage", "seconds", "processor_seconds", "memory_mb")
    name = f"regression-weather-{variable.lower()}"
    write_results(out, name, f"Weather: gaps of 12 hours in {variable}", rows, ("variable", "method"), columns)


def weather_problem(readings: dict[str, NDArray[np.float64]], gap: int, num_gaps: int, minutes: int) -> Problem | None:
    """One window in which the station that comes first lacks its middle twelve hours.

    Args:
        readings: hours since the start of the year and value of each station, (n, 2).
        gap: the number of the gap.
        num_gaps: of how many.
        minutes: between readings that are kept.
    """
    order = [STATIONS[(gap + shift) % len(STATIONS)] for shift in range(len(STATIONS))]
    middle = 24.0 * (3.0 + (_DAYS - 6.0) * (gap + 0.5) / num_gaps)
    grid = middle + np.arange(-_WINDOW / 2, _WINDOW / 2, minutes / 60.0)
    columns = np.column_stack([_at(readings[station], grid) for station in order])
    inside = np.abs(grid - middle) < _GAP / 2
    truth = columns[inside, 0]
    known = ~np.isnan(truth)
    targets = columns.copy()
    targets[inside, 0] = np.nan
    if known.sum() < len(truth) / 2 or np.isnan(targets).all(axis=0).any():
        return None
    seen = ~np.isnan(targets).all(axis=1)
    return Problem(grid[seen, None], targets[seen], grid[inside][known, None], truth[known])


def _at(readings: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The reading at each time, NaN where there is none within three minutes."""
    index = np.searchsorted(readings[:, 0], grid).clip(1, len(readings) - 1)
    nearer = index - (grid - readings[index - 1, 0] < readings[index, 0] - grid)
    close = np.abs(readings[nearer, 0] - grid) < 0.05
    return np.where(close, readings[nearer, 1], np.nan)


def _readings(data: Path, station: str, variable: str) -> NDArray[np.float64]:
    path = data / "multioutput" / "weather_south_coast" / f"{station}.csv.gz"
    start = datetime(2020, 1, 1)
    found = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row[variable] not in ("N/A", ""):
                when = datetime.strptime(f"{row['Date']} {row['Time']}", "%d/%m/%Y %H:%M")
                found.append(((when - start).total_seconds() / 3600.0, float(row[variable])))
    return np.array(sorted(found))
