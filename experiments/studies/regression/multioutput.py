"""Several outputs with gaps, all to be predicted: soil, weather, wind, tide, air quality and exchange rates."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.studies.regression.methods import MULTIOUTPUT, Outputs
from experiments.studies.regression.problems import (
    GAPS,
    SITES,
    Answer,
    Array,
    Gaps,
    gap_scores,
    losses,
    scores,
    with_gaps,
)
from experiments.studies.regression.report import cached_row, with_pairs, with_peers, write_results

__all__ = ["SETS", "jura", "jura_problem", "multioutput", "stations"]

_KERNEL = "matern32"
_OBSERVED = 259  # sites with all metals; at the others cadmium is asked
_METALS = ("Cd", "Cu", "Pb", "Co", "Cr", "Ni", "Zn")
_STATIONS = ("sotonmet", "bramblemet", "cambermet", "chimet")
_GASES = ("CO(GT)", "PT08.S1(CO)", "C6H6(GT)", "NOx(GT)", "NO2(GT)", "PT08.S5(O3)", "T")
_RATES = ("CAD", "EUR", "JPY", "GBP", "CHF", "AUD", "NZD", "KRW", "MXN")


def multioutput(
    data: Path,
    out: Path,
    sets: Sequence[str] = ("weather", "wind", "tide", "air", "exchange"),
    gaps: Sequence[str] = GAPS,
    windows: Sequence[int] = (0, 1),
    methods: Sequence[str] = tuple(MULTIOUTPUT),
) -> None:
    """Hidden values of all outputs by our regressor and GPyTorch's models: SMSE, NLL and coverage.

    Also the difference in NLL from our regressor, on the same windows.

    Args:
        data: folder with ``multioutput``.
        out: folder of tables and rows.
        sets: names of the sets.
        gaps: "random" (a third of the values), "stretch" (a sixth of every output in one piece, at different places)
            or "end" (the last fifth of half of the outputs).
        windows: indices of the windows of each set, from 0; the soil has two, with the same sites.
        methods: names of the methods to run.
    """
    rows = []
    for name in sets:
        for window in windows:
            inputs, complete = SETS[name](data / "multioutput", window)
            for gap in gaps:
                problem = with_gaps(inputs, complete, gap, seed=window)
                for label in methods:
                    key = {"set": name, "gap": gap, "window": window, "method": label}
                    compute = partial(_row, problem, MULTIOUTPUT[label])
                    rows.append(cached_row(out / "multioutput", key, compute, kernel=_KERNEL))
    if len(windows) > 1:  # the error is the spread over windows, as values within a piece are dependent
        rows = [{name: value for name, value in row.items() if name != SITES} for row in rows]
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    rows = with_peers(rows, ("set", "gap", "window"), dict.fromkeys(MULTIOUTPUT, "cgp"))
    title = "Several outputs with gaps"
    write_results(out, "regression-multioutput", title, rows, ("set", "gap", "method"), columns)


def _row(problem: Gaps, method: Outputs) -> dict[str, Any]:
    return gap_scores(problem, *method(problem.inputs, problem.targets, kernel=_KERNEL))


def jura(data: Path, out: Path, kernels: Sequence[str] = ("rbf", "matern32")) -> None:
    """Cadmium at 100 validation sites from 259 cadmium and 359 nickel and zinc values.

    Args:
        data: folder with ``multioutput/jura.csv``.
        out: folder of tables and rows.
        kernels: canonical covariances to run.
    """
    inputs, targets, truth = jura_problem(data)

    def compute(method: Outputs, kernel: str) -> dict[str, Any]:
        mean, sd = method(inputs, targets, kernel=kernel)
        answer = Answer(mean[_OBSERVED:, 0], sd[_OBSERVED:, 0])
        return scores(truth, answer) | {SITES: losses(answer.mean - truth, answer.sd).tolist()}

    rows = [
        cached_row(out / "jura", {"kernel": kernel, "method": name}, partial(compute, method, kernel))
        for kernel in kernels
        for name, method in MULTIOUTPUT.items()
    ]
    columns = ("mae", "rmse", "nll", "behind", "coverage", "seconds", "processor_seconds", "memory_mb")
    title = "Jura: cadmium (ppm) at 100 sites"
    write_results(out, "regression-jura", title, with_pairs(rows, "kernel"), ("kernel", "method"), columns)


def jura_problem(data: Path) -> tuple[Array, Array, Array]:
    """Sites; cadmium (hidden at the last ones), nickel and zinc there; and the hidden cadmium."""
    table = np.genfromtxt(data / "multioutput" / "jura.csv", delimiter=",", names=True)
    targets = np.column_stack([table["Cd"], table["Ni"], table["Zn"]])
    truth = targets[_OBSERVED:, 0].copy()
    targets[_OBSERVED:, 0] = np.nan
    return np.column_stack([table["X"], table["Y"]]), targets, truth


def _jura(data: Path, window: int) -> tuple[Array, Array]:
    """Seven metals at the 259 sites, from west to east or from south to north."""
    table = np.genfromtxt(data / "jura.csv", delimiter=",", names=True)[:_OBSERVED]
    sites = np.column_stack([table["X"], table["Y"]])
    order = np.argsort(sites[:, window % 2])
    return sites[order], np.log(np.column_stack([table[metal] for metal in _METALS]))[order]


def stations(data: Path, grid: Array, column: str) -> Array:
    """One quantity at four stations on a coast at hours since the year's start, ``(n, 4)``, NaN where missing."""
    columns = []
    for station in _STATIONS:
        table = pd.read_csv(data / "weather_south_coast" / f"{station}.csv.gz", na_values="N/A").dropna(subset=column)
        times = pd.to_datetime(table["Date"] + " " + table["Time"], format="%d/%m/%Y %H:%M")
        hours = ((times - pd.Timestamp(2020, 1, 1)) / pd.Timedelta(hours=1)).round(2)
        series = pd.Series(table[column].to_numpy(np.float64), index=hours)
        columns.append(series[~series.index.duplicated(keep="last")].reindex(np.round(grid, 2)).to_numpy())
    return np.column_stack(columns)


def _weather(data: Path, window: int, column: str = "ATMP") -> tuple[Array, Array]:
    """One quantity at the stations, half-hourly over three days; windows are 20 days apart."""
    grid = 24.0 * (20 + 20 * window) + np.arange(0.0, 72.0, 0.5)
    return grid[:, None], stations(data, grid, column)


def _air(data: Path, window: int) -> tuple[Array, Array]:
    """Seven gases and sensors, every second hour over ten days; windows are 30 days apart."""
    table = pd.read_csv(data / "airquality" / "AirQualityUCI.csv.xz", sep=";", decimal=",", encoding="latin-1")
    start = 24 * (20 + 30 * window)
    values = table[list(_GASES)].iloc[start : start + 240 : 2].to_numpy(np.float64)
    return np.arange(0.0, 240.0, 2.0)[:, None], np.where(values == -200.0, np.nan, values)


def _exchange(data: Path, window: int) -> tuple[Array, Array]:
    """Logarithms of nine rates to the dollar on a hundred days."""
    table = pd.read_csv(data / "exchange" / "currency_exchange.csv").iloc[100 * window : 100 * window + 100]
    return table[["Jul.Day"]].to_numpy(np.float64), np.log(table[[f"{name}/USD" for name in _RATES]].to_numpy())


SETS: Mapping[str, Callable[[Path, int], tuple[Array, Array]]] = {
    "jura": _jura,
    "weather": _weather,
    "wind": partial(_weather, column="WSPD"),
    "tide": partial(_weather, column="DEPTH"),
    "air": _air,
    "exchange": _exchange,
}
