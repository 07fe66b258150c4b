"""Cycles that a calendar offers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PERIOD_NAMES", "YEAR", "offered_periods"]

YEAR = 365.2425  # days
PERIOD_NAMES = {1.0: "a day", 7.0: "a week", YEAR: "a year"}
_CALENDAR = {1.0: 3.0, 7.0: 3.0, YEAR: 2.0}  # periods in days, and the fewest of them that a table must span
_LEAST_ROWS = 4.0  # of a cycle
_LEAST_READINGS = 200


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
