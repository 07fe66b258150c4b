"""Whether the intervals of sums over gaps hold: daily sums of filled tables beside the true ones."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp import CorrelatedGPImputer
from experiments.studies.regression.multioutput import SETS
from experiments.studies.regression.problems import NORMAL, Array, with_gaps
from experiments.studies.regression.referee import WINDOWS
from experiments.studies.regression.report import cached_row, write_results
from experiments.studies.regression.series import SERIES, with_blocks

__all__ = ["by_logarithms", "by_values", "sum_scores", "totals"]

_HALF_HOURLY = ("rivers",)  # sets whose inputs are numbers of half-hours; the others are hours
_MOSTLY = 0.5  # share of a day's values
_DRAWS = 400


def totals(
    data: Path,
    out: Path,
    sets: Sequence[str] = ("weather", "wind", "tide", "air", "year", "rivers"),
    gaps: Sequence[str] = ("random", "stretch", "end"),
    maskings: Sequence[int] = (0,),
    logarithms: bool = False,
) -> None:
    """Coverage of the 95 % intervals of daily sums, by how much of the day is missing.

    Args:
        data: folder with ``multioutput``, and ``series`` with ``bafu.txt`` (rivers).
        out: folder of tables and rows.
        sets: those of "multioutput" with times, on the windows of "referee"; "year" and "rivers" of "series".
        gaps: of the sets of "multioutput"; those of "series" have blocks and single values in one table.
        maskings: seeds of the hidden values.
        logarithms: whether the logarithms of a table are filled, and its sums are those of joint draws; for sets whose
            values are positive.
    """
    rows, intervals = [], by_logarithms if logarithms else by_values
    for name in sets:
        for gap in ("blocks",) if name in SERIES else gaps:
            for masking in maskings:
                label = f"{name}, logarithms" if logarithms else name
                key = {"set": label, "gap": gap, "window": masking}
                problem = partial(_problem, data, name, gap, masking)
                row = cached_row(out / "totals", key, partial(_row, problem, intervals))
                rows += [row | {"missing": share} | scores for share, scores in row.pop("scores", {}).items()]
    columns = ("coverage", "sums", "processor_seconds")
    write_results(out, "gaps-totals", "Intervals of daily sums", rows, ("set", "gap", "missing"), columns)


def by_values(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lower and upper ends of the 95 % intervals of the daily sums of a table."""
    sums, errors = CorrelatedGPImputer(random_state=0).fit(table).aggregate("D", "sum")
    return sums - NORMAL * errors, sums + NORMAL * errors


def by_logarithms(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same from joint draws of the logarithms of a table."""
    draws = CorrelatedGPImputer(random_state=0).fit(np.log(table)).draws(_DRAWS)
    days = [np.exp(draw).resample("D").sum() for draw in draws]
    ends = np.quantile(days, [0.025, 0.975], axis=0)
    lower, upper = (pd.DataFrame(end, index=days[0].index, columns=table.columns) for end in ends)
    return lower, upper


def sum_scores(lower: pd.DataFrame, upper: pd.DataFrame, complete: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    """Coverage of the intervals of daily sums, and how many there are, for days mostly and partly missing.

    Args:
        lower: lower ends of the intervals.
        upper: upper ends.
        complete: the true values, NaN where unknown: such days are left out.
        table: with its gaps.

    Returns:
        By how much of the day is missing: "coverage" and "sums".
    """
    true = complete.resample("D").agg(lambda column: column.sum(skipna=False))
    missing = table.isna().resample("D").mean()
    inside, known = ((lower <= true) & (true <= upper)).to_numpy(), (true.notna() & (missing > 0)).to_numpy()
    mostly = (missing >= _MOSTLY).to_numpy()
    parts = {"half the day or more": known & mostly, "less": known & ~mostly}
    return {
        name: {"coverage": float(inside[part].mean()), "sums": int(part.sum())}
        for name, part in parts.items()
        if part.any()
    }


def _problem(data: Path, name: str, gap: str, masking: int) -> tuple[Array, Array, Array]:
    """Hours (n,), the true values (n, P), and the table with its gaps (n, P)."""
    if name in SERIES:
        blocks = with_blocks(*SERIES[name].read(data), SERIES[name].lengths, masking)
        return blocks.inputs / (2.0 if name in _HALF_HOURLY else 1.0), blocks.complete, blocks.targets
    inputs, complete = SETS[name](data / "multioutput", WINDOWS[name])
    return inputs[:, 0], complete, with_gaps(inputs, complete, gap, seed=masking).targets


def _row(
    problem: Callable[[], tuple[Array, Array, Array]],
    intervals: Callable[[pd.DataFrame], tuple[pd.DataFrame, pd.DataFrame]],
) -> dict[str, Any]:
    hours, complete, targets = problem()
    times = pd.DatetimeIndex(np.datetime64("2020-01-01") + np.round(hours * 60).astype("timedelta64[m]"))
    table, truth = pd.DataFrame(targets, index=times), pd.DataFrame(complete, index=times)
    return {"scores": sum_scores(*intervals(table), truth, table)}
