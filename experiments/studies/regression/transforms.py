"""What transforms of columns are worth: the default imputer with and without them, on hidden blocks of tables."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp import CorrelatedGPImputer, assess_gaps
from cgp.tables.frames.table import read_table
from cgp.tables.transforms.choice import chosen_transforms
from experiments.studies.regression.multioutput import SETS, stations
from experiments.studies.regression.problems import Array
from experiments.studies.regression.report import cached_row, write_results

__all__ = ["TABLES", "fluxes", "gases", "rows_of_tables", "text", "transforms"]

_METHODS = {"as they are": None, "transformed": "auto"}
_ROWS = 1_000
_FLUXES = "LE", "H", "Tair", "rH", "VPD", "Ustar"
_LIGHT = 500, 2_000, 4_000, 6_500, 10_000, 15_000


def transforms(data: Path, out: Path, sets: Sequence[str] = (), maskings: int = 2, seed: int = 1) -> None:
    """NLL (with the Jacobian), CRPS and coverage of the default imputer with and without transforms of columns.

    A tenth of the values is hidden at a time, in single values and blocks of several lengths. The error of the
    difference is that over the blocks.

    Args:
        data: folder with ``multioutput``, ``flux``, and ``series``, text files whose columns are outputs.
        out: folder of tables and rows.
        sets: names of :data:`TABLES`; none is all.
        maskings: how many times values are hidden.
        seed: of the places of the blocks.
    """
    rows = rows_of_tables(_row, data, out / "transforms", sets, maskings, seed)
    columns = ("nll", "ahead", "crps", "coverage", "processor_seconds")
    write_results(out, "regression-transforms", "Transforms of columns", rows, ("set", "changed", "method"), columns)


def rows_of_tables(
    row: Callable[..., dict[str, Any]], data: Path, out: Path, sets: Sequence[str], maskings: int, seed: int
) -> list[dict[str, Any]]:
    """Rows of the methods of every table, ``row(data, name, maskings, seed)``, kept in a folder."""
    rows = []
    for name in sets or TABLES:
        key = {"set": name}
        found = cached_row(out, key, partial(row, data, name, maskings, seed), seed=seed, maskings=maskings)
        rows += [key | scores for scores in found.get("methods", [found])]
    return rows


def _row(data: Path, name: str, maskings: int, seed: int) -> dict[str, Any]:
    values = TABLES[name](data)
    changed = len(chosen_transforms("auto", read_table(values, None)[0]).changed)
    methods = {label: CorrelatedGPImputer(transforms=kind, random_state=0) for label, kind in _METHODS.items()}
    report = assess_gaps(values, methods=methods, maskings=maskings, random_state=seed)
    plain, rows = next(iter(methods)), []
    for label, trial in report.trials.items():
        scores = {each: report.strata.mean(getattr(trial.scores, each)) for each in ("nll", "crps", "coverage")}
        rows.append({"changed": changed, "method": label, **scores, "processor_seconds": trial.seconds})
        if label != plain:
            ahead = report.difference(label, plain)
            rows[-1] |= {"ahead": ahead.mean, "ahead_se": ahead.error}
    return {"methods": rows}


def text(data: Path, file: str, first: int, count: int, columns: Sequence[int]) -> Array:
    """Some rows and columns of a text file of series."""
    rows = np.loadtxt(data / "series" / f"{file}.txt", max_rows=first + count)
    return rows[first:, list(columns)]


def gases(data: Path, first: int = 2_000) -> Array:
    """Five gases and a temperature by the hour, of a year."""
    table = pd.read_csv(data / "multioutput" / "airquality" / "AirQualityUCI.csv.xz", sep=";", decimal=",")
    columns = ["CO(GT)", "C6H6(GT)", "NOx(GT)", "NO2(GT)", "PT08.S5(O3)", "T"]
    values = table[columns].to_numpy(np.float64)[first : first + _ROWS]
    return np.where(values == -200.0, np.nan, values)


def fluxes(data: Path, first: int = 8_000, columns: Sequence[str] = _FLUXES) -> Array:
    """Fluxes of heat, radiation, humidity, the deficit of vapour and friction by the half-hour, of a year."""
    path = data / "flux" / "Example_DETha98.txt.xz"
    table = pd.read_csv(path, sep="\t", lineterminator="\r", skiprows=[1], na_values=[-9999, -9999.0])
    return table[list(columns)].to_numpy(np.float64)[first : first + _ROWS]


def _wind(data: Path) -> Array:
    """Speeds at four stations by the half-hour."""
    return stations(data / "multioutput", np.arange(1_000.0, 1_500.0, 0.5), "WSPD")


TABLES: Mapping[str, Callable[[Path], Array]] = {
    "gases": gases,
    "fluxes": fluxes,
    "wind": _wind,
    "traffic": partial(text, file="traffic", first=3_000, count=1_000, columns=range(6, 12)),
    "electricity": partial(text, file="electricity", first=1_000, count=1_000, columns=range(6)),
    "rivers": partial(text, file="bafu", first=40_000, count=1_000, columns=range(1, 7)),
    "roads": lambda data: text(data, "z_guangzhou", first=0, count=8, columns=range(500)).T,
    "temperature": partial(text, file="temperature", first=2_000, count=1_000, columns=range(5)),
    "transformer": partial(text, file="z_etth", first=4_000, count=1_000, columns=range(7)),
    "chlorine": partial(text, file="chlorine", first=0, count=1_000, columns=range(6)),
    "stocks": partial(text, file="stock-exchange", first=2_000, count=600, columns=range(5)),
    "exchange": lambda data: SETS["exchange"](data / "multioutput", 1)[1],
    # The rule was settled on those above; these are to confirm it.
    "fluxes, January": partial(fluxes, first=500),
    "fluxes, April": partial(fluxes, first=5_000),
    "fluxes, August": partial(fluxes, first=11_000),
    "fluxes, October": partial(fluxes, first=14_000),
    "traffic, others": partial(text, file="traffic", first=8_000, count=1_000, columns=range(12, 18)),
    "rivers, others": partial(text, file="bafu", first=60_000, count=1_000, columns=range(6, 12)),
    "gases, autumn": partial(gases, first=5_000),
    "gases, winter": partial(gases, first=7_500),
    "air": partial(text, file="airq", first=0, count=1_000, columns=range(6)),
    "climate": partial(text, file="climate", first=0, count=1_000, columns=range(4, 10)),
    "climate, later": partial(text, file="climate", first=3_000, count=1_000, columns=range(4, 10)),
    "drift": partial(text, file="drift", first=0, count=1_000, columns=range(6)),
    "stocks, others": partial(text, file="stock-exchange", first=5_000, count=1_000, columns=range(6)),
    "roads, others": lambda data: text(data, "z_guangzhou", first=60, count=8, columns=range(500)).T,
    # Radiation by itself, 0 at night
    **{f"light from {first}": partial(fluxes, first=first, columns=["Rg"]) for first in _LIGHT},
}
"""Tables ``(n, P)`` by name."""
