"""Files of five other kinds, filled by `cgp fill` without an option: what was hidden beside what is written."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cgp import commands
from experiments.studies.regression.imputers import IMPUTERS, imputer_scores
from experiments.studies.regression.problems import Array, Gaps
from experiments.studies.regression.report import cached_row, with_peers, write_results

__all__ = ["FILES", "TableFile", "by_command", "files", "hide"]

_PEERS = ("interpolation", "IterativeImputer, ridge")
_SEED = 0


class TableFile(NamedTuple):
    """A kind of table.

    Attributes:
        read: the table of a data folder; its first columns say where rows are.
        places: number of these columns.
        length: rows of a gap.
        share: share of the values in gaps.
    """

    read: Callable[[Path], pd.DataFrame]
    places: int = 1
    length: int = 1
    share: float = 0.1


def files(data: Path, out: Path, tables: Sequence[str] | None = None) -> None:
    """Squared error, NLL, coverage and processor time of files that `cgp fill` fills.

    Args:
        data: folder with ``multioutput``, and ``series`` with ``temperature.txt``.
        out: folder of tables and rows.
        tables: some of the kinds; None is all.
    """
    rows = []
    for name in FILES if tables is None else tables:
        for method in ("cgp", *_PEERS):
            key = {"set": name, "method": method}
            rows.append(cached_row(out / "files", key, partial(_row, data, FILES[name], method)))
    rows = with_peers(rows, ("set",), dict.fromkeys(("cgp", *_PEERS), "cgp"))
    columns = ("smse", "nll", "ahead", "coverage", "processor_seconds")
    write_results(out, "gaps-files", "Files of other kinds", rows, ("set", "method"), columns)


def hide(frame: pd.DataFrame, kind: TableFile, seed: int = _SEED) -> pd.DataFrame:
    """The table with gaps in every column but the first ones."""
    generator, hidden = np.random.default_rng(seed), frame.copy()
    for name in frame.columns[kind.places :]:
        count = max(1, round(kind.share * len(frame) / kind.length))
        for start in generator.choice(len(frame) - kind.length, count, replace=False):
            hidden.loc[hidden.index[start : start + kind.length], name] = np.nan
    return hidden


def by_command(table: pd.DataFrame, places: int) -> tuple[Array, Array]:
    """Values and standard deviations that `cgp fill` writes for a csv file of the table.

    Raises:
        RuntimeError: if the command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, filled, std = (str(Path(folder, f"{name}.csv")) for name in ("given", "filled", "std"))
        table.to_csv(given, index=False)
        if commands.main(["fill", given, "--out", filled, "--std", std]):
            raise RuntimeError("cgp fill failed")
        mean, sd = (pd.read_csv(path).iloc[:, places:].to_numpy(dtype=np.float64) for path in (filled, std))
    return mean, sd


def _row(data: Path, kind: TableFile, method: str) -> Mapping[str, Any]:
    complete = kind.read(data)
    table = hide(complete, kind)
    values, truth = (each.iloc[:, kind.places :].to_numpy(dtype=np.float64) for each in (table, complete))
    problem = Gaps(np.arange(float(len(table)))[:, None], values, np.where(np.isnan(values), truth, np.nan))
    if method == "cgp":
        return imputer_scores(problem, lambda *_: by_command(table, kind.places))
    return imputer_scores(problem, IMPUTERS[method])


def _irregular(data: Path) -> pd.DataFrame:
    """Wind, air, water and pressure at 400 random times of ten days; day and time of day in two columns."""
    path = data / "multioutput" / "weather_south_coast" / "bramblemet.csv.gz"
    rows = 20_000 + np.sort(np.random.default_rng(_SEED).choice(2880, 400, replace=False))
    return pd.read_csv(path, na_values="N/A").iloc[rows][["Date", "Time", "WSPD", "ATMP", "WTMP", "BARO"]]


def _stations(data: Path, start: int, count: int, stations: int) -> pd.DataFrame:
    """Daily temperature at some stations, in degrees with one decimal."""
    values = np.loadtxt(data / "series" / "temperature.txt")[start : start + count, :stations] / 10.0
    frame = pd.DataFrame(values, columns=[f"station {k + 1}" for k in range(stations)])
    frame.insert(0, "date", pd.date_range("1960-01-01", periods=start + count)[start:].strftime("%Y-%m-%d"))
    return frame


def _soil(data: Path) -> pd.DataFrame:
    """Seven metals at the sites of the Swiss Jura, and their coordinates."""
    return pd.read_csv(data / "multioutput" / "jura.csv")[["X", "Y", "Cd", "Cu", "Pb", "Co", "Cr", "Ni", "Zn"]]


FILES: Mapping[str, TableFile] = {
    "irregular times": TableFile(_irregular, places=2),
    "four years of days, gaps of 5": TableFile(partial(_stations, start=0, count=1461, stations=6), length=5),
    "places": TableFile(_soil, places=2),
    "25 columns, gaps of 10": TableFile(partial(_stations, start=5000, count=300, stations=25), length=10),
    "mostly missing": TableFile(partial(_stations, start=0, count=300, stations=6), share=0.8),
}
