"""Cycles as durations, and those that a calendar offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PERIOD_NAMES", "YEAR", "offered_periods", "periods_in_units"]

YEAR = 365.2425  # days
PERIOD_NAMES = {1.0: "a day", 7.0: "a week", YEAR: "a year"}
_CALENDAR = {1.0: 3.0, 7.0: 3.0, YEAR: 2.0}  # periods in days, and the fewest of them that a table must span
_LEAST_ROWS = 4.0  # of a cycle
_LEAST_READINGS = 200


def periods_in_units(periods: str | Sequence[Any], *, is_time: bool) -> str | list[float]:
    """Periods as numbers in units of the input, days for times.

    Args:
        periods: durations such as "7D" or numbers, or "auto".
        is_time: whether the input is a time.

    Returns:
        Numbers, or "auto".

    Raises:
        ValueError: if they are neither, or durations where the inputs are not times.

    Example:
        >>> periods_in_units([7.0, 365.25], is_time=True)
        [7.0, 365.25]
    """
    if isinstance(periods, str):
        if periods != "auto":
            raise ValueError(f"periods: expected 'auto' or a sequence of durations, such as ('1D',), got {periods!r}")
        return periods
    return [_in_units(period, is_time) for period in periods]


def offered_periods(days: NDArray[np.float64], readings: int) -> list[float]:
    """The cycles of the calendar that times are enough for: a day, a week and a year.

    Args:
        days: times of the rows, ``(n,)``.
        readings: values that were observed.

    Returns:
        Their periods in days: three days, three weeks or two years are spanned, with four rows in a cycle.

    Example:
        >>> offered_periods(np.arange(800.0), 800), offered_periods(np.arange(100.0) / 24, 300)
        ([7.0, 365.2425], [1.0])
    """
    distinct = np.unique(days)
    if len(distinct) < 2 or readings < _LEAST_READINGS:
        return []
    step, span = float(np.median(np.diff(distinct))), float(distinct[-1] - distinct[0])
    return [period for period, least in _CALENDAR.items() if span >= least * period and step <= period / _LEAST_ROWS]


def _in_units(period: Any, is_time: bool) -> float:
    if isinstance(period, int | float):
        return float(period)
    if not is_time:
        raise ValueError(f"periods: expected numbers in units of the input, which is no time, got {period!r}")
    import pandas as pd

    try:
        return float(pd.Timedelta(period) / pd.Timedelta(days=1))
    except ValueError as error:
        raise ValueError(f"periods: expected durations such as '1D', got {period!r}") from error
