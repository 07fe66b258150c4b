"""Cycles as durations, and those that a calendar offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["YEAR", "has_years", "periods_in_units"]

YEAR = 365.2425  # days
_LEAST_YEARS = 2.0
_LEAST_ROWS = 4.0  # of a year
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


def has_years(days: NDArray[np.float64], readings: int) -> bool:
    """Whether times ``(n,)`` are enough for a year's cycle to be offered: two years, and four rows in each.

    Args:
        days: times of the rows.
        readings: values that were observed.

    Returns:
        Whether it is offered.

    Example:
        >>> has_years(np.arange(800.0), 800), has_years(np.arange(600.0), 600)
        (True, False)
    """
    distinct = np.unique(days)
    if len(distinct) < 2 or readings < _LEAST_READINGS:
        return False
    step = float(np.median(np.diff(distinct)))
    return bool(distinct[-1] - distinct[0] >= _LEAST_YEARS * YEAR and step <= YEAR / _LEAST_ROWS)


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
