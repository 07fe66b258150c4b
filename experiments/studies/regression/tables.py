"""The default imputer beside others on tables of every kind, in gaps as people have them, scored by the referee.

Protocol, written before the runs: fourteen tables of a thousand rows (one of 250), on rows and columns that no rule was
settled on. About a twelfth of the values (of the EEG a sixth) is taken out once, and stays out: single values,
stretches of 4, 16 and 48 rows of one column, one of 24 rows of all columns, and the last 16 rows of two columns.
`assess_gaps` then hides blocks in the pattern of these gaps, three times. All methods have their defaults; those
without an uncertainty get the spread of their errors in the other maskings by the distance to the nearest value. NLL
and CRPS are in units of the columns' standard deviations, means over blocks with equal weight of what is missing in
their class; differences are paired by block.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp import CorrelatedGPImputer, GapReport, assess_gaps
from cgp.tables.frames.table import read_table
from cgp.tables.referee.baselines import CalendarTrees, LaggedRidge, LinearInterpolation, PointImputer, SeasonalMean
from experiments.atomic_files import write_text
from experiments.studies.regression.imputers import ENDS, IMPUTERS, Imputer
from experiments.studies.regression.multioutput import stations
from experiments.studies.regression.problems import Array
from experiments.studies.regression.report import write_results
from experiments.studies.regression.transforms import fluxes, gases, rows_of_tables, text

__all__ = ["best_table", "compared", "scored", "tables", "with_gaps"]

_OURS = "cgp"
_ABOVE = {"nll": "ahead", "crps": "crps_above"}
_PERIODS = 1.0, 7.0  # days
_TAKEN = 0.05  # of the values
_RUNS = 1, 4, 16, 48
_OUTAGE, _END, _ENDING = 24, 16, 2


def tables(data: Path, out: Path, sets: Sequence[str] = (), maskings: int = 3, seed: int = 1) -> None:
    """Scores of all methods on every table, and of each table ours beside the best of the others.

    Args:
        data: folder as for ``transforms``.
        out: folder of tables and rows.
        sets: names of its tables; none is all.
        maskings: how many times blocks are hidden.
        seed: of the places of gaps and blocks.
    """
    rows = rows_of_tables(_row, data, out / "tables", sets or list(_TABLES), maskings, seed)
    columns = ("nll", "ahead", "crps", "coverage", "least_class", "processor_seconds")
    write_results(out, "regression-tables", "Tables of every kind", rows, ("set", "method"), columns)
    write_text(out / "regression-tables-best.md", best_table(rows))


def best_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of each table our scores, and how far the best other method by each is above them; bold beyond the error."""
    names = "table", "NLL", "the best other, above", "CRPS", "the best other, above", "95 %", "least class", "CPU s"
    lines = [f"| {' | '.join(names)} |", "| --- | ---: | --- | ---: | --- | ---: | ---: | ---: |"]
    for name in dict.fromkeys(row["set"] for row in rows):
        methods = {row["method"]: row for row in rows if row["set"] == name}
        ours, cells = methods.pop(_OURS), []
        for score, above in _ABOVE.items():
            best = min(methods.values(), key=lambda row: row[score])
            mean, error = best[above], best[f"{above}_se"]
            text = f"{mean:+.3f} ± {error:.3f}"
            cells += [f"{ours[score]:.3f}", f"{best['method']}, {f'**{text}**' if abs(mean) > error else text}"]
        last = f"{ours['coverage']:.3f} | {ours['least_class']:.3f} | {ours['processor_seconds']:.0f}"
        lines.append(f"| {' | '.join([name, *cells])} | {last} |")
    return "\n".join(lines) + "\n"


def _row(data: Path, name: str, maskings: int, seed: int) -> dict[str, Any]:
    return {"methods": scored(compared(_TABLES[name](data), maskings, seed))}


def compared(table: Array | pd.DataFrame, maskings: int, seed: int) -> GapReport:
    """The comparison on a table, in the pattern of gaps of the protocol."""
    methods = _methods(is_time=isinstance(table, pd.DataFrame))
    return assess_gaps(with_gaps(table, seed), methods=methods, maskings=maskings, random_state=seed)


def scored(report: GapReport) -> list[dict[str, Any]]:
    """Scores of every method, and how far they are above ours."""
    ours, strata, rows = report.trials[_OURS].scores, report.strata, []
    for name, trial in report.trials.items():
        row: dict[str, Any] = {"method": name, "processor_seconds": trial.seconds}
        row |= {each: strata.mean(getattr(trial.scores, each)) for each in (*_ABOVE, "coverage")}
        by_class = [float(trial.scores.coverage[strata.labels == each].mean()) for each in strata.weights]
        row["least_class"] = min(by_class)
        for score, above in _ABOVE.items() if name != _OURS else ():
            difference, _ = strata.difference(getattr(trial.scores, score) - getattr(ours, score))
            row |= {above: difference.mean, f"{above}_se": difference.error}
        rows.append(row)
    return rows


def _methods(*, is_time: bool) -> dict[str, Any]:
    simple = {"lines": LinearInterpolation(), "ridge, lagged": LaggedRidge()}
    seasonal = {"seasonal mean": SeasonalMean()} if is_time else {}
    trees = {"boosted trees": CalendarTrees() if is_time else CalendarTrees(periods=())}
    names = "KNNImputer", "IterativeImputer, ridge", "IterativeImputer, trees", "statsmodels DynamicFactorMQ"
    others = {name: _Peer(name) for name in names}
    return simple | seasonal | trees | others | {_OURS: CorrelatedGPImputer(random_state=0)}


class _Peer(PointImputer):
    """One of the study's imputers, which sees the phases of the day and the week of times as further inputs."""

    def __init__(self, name: str = "", *, inputs: Any = None, missing_values: Any = np.nan) -> None:
        super().__init__(inputs=inputs, missing_values=missing_values)
        self.name = name

    def transform(self, X: Any) -> Any:
        table, axis = read_table(X, self.inputs, self.missing_values)
        phases = [table.inputs % period for period in _PERIODS] if axis.is_time else []
        fill: Imputer = {**IMPUTERS, **ENDS}[self.name]
        mean, sd = fill(np.hstack([table.inputs, *phases]), table.values)
        if sd is not None:
            self.std_ = np.where(table.missing, sd, 0.0)
        return table.filled(mean)


def with_gaps(table: Array | pd.DataFrame, seed: int) -> Array | pd.DataFrame:
    """The table without the runs of the protocol: a twentieth of its values in runs, an outage, an end."""
    values, generator = np.array(table, dtype=np.float64), np.random.default_rng(seed)
    rows, columns = values.shape
    lengths = [each for each in _RUNS if each <= rows // 10]
    for length in lengths:
        for _ in range(max(round(_TAKEN * values.size / (len(lengths) * length)), 1)):
            first = generator.integers(rows - length + 1)
            values[first : first + length, generator.integers(columns)] = np.nan
    outage = generator.integers(rows - _OUTAGE)
    values[outage : outage + _OUTAGE] = np.nan
    values[-_END:, generator.permutation(columns)[:_ENDING]] = np.nan
    return pd.DataFrame(values, table.index, table.columns) if isinstance(table, pd.DataFrame) else values


def _dated(values: Array, step: str) -> pd.DataFrame:
    """With times: a calendar's cycles are in them, whatever the first is called."""
    return pd.DataFrame(values, pd.date_range("2012-01-02", periods=len(values), freq=step))


def _series(data: Path, file: str, first: int, columns: Sequence[int], step: str = "", count: int = 1_000) -> Any:
    values = text(data, file, first=first, count=count, columns=columns)
    return _dated(values, step) if step else values


_TABLES: Mapping[str, Callable[[Path], Array | pd.DataFrame]] = {
    "electricity": partial(_series, file="electricity", first=3_000, columns=range(6, 12), step="h"),
    "traffic": partial(_series, file="traffic", first=12_000, columns=range(6), step="h"),
    "transformer": partial(_series, file="z_etth", first=9_000, columns=range(7), step="h"),
    "temperature": partial(_series, file="temperature", first=8_000, columns=range(5, 10), step="D"),
    "rivers": partial(_series, file="bafu", first=20_000, columns=range(6), step="30min"),
    "gases": lambda data: _dated(gases(data, first=3_500), "h"),
    "fluxes": lambda data: _dated(fluxes(data, first=12_500), "30min"),
    "wind": lambda data: _dated(stations(data / "multioutput", np.arange(3_000.0, 3_500.0, 0.5), "WSPD"), "30min"),
    "climate": partial(_series, file="climate", first=1_500, columns=range(4)),
    "air": partial(_series, file="airq", first=0, columns=range(6, 10)),
    "chlorine": partial(_series, file="chlorine", first=0, columns=range(6, 12)),
    "soccer": partial(_series, file="soccer", first=20_000, columns=range(6)),
    "motion": partial(_series, file="motion", first=3_000, columns=range(6)),
    "EEG": partial(_series, file="eeg-alcohol", first=0, columns=range(10, 16), count=250),
}
