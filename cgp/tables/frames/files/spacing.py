"""Distances of the rows in time, and rows that are not there."""

from __future__ import annotations

from typing import Any

import numpy as np

from .hints import UnclearError, option

__all__ = ["absent_times", "median_step", "said_step"]

_JITTER = 0.1  # of a step, within which times are those of the clock's round numbers
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def absent_times(times: Any, every: str) -> Any:
    """Times at which no row is, of rows that should be at equal distances.

    A row belongs to the nearest of them: clocks that are some seconds late add nothing.

    Args:
        times: of the rows, a series of pandas.
        every: a frequency of pandas, such as "1h", "10min", "1D" or "MS".

    Returns:
        Times in order.

    Raises:
        ValueError: if it is no frequency.

    Example:
        >>> import pandas as pd
        >>> times = pd.Series(pd.to_datetime(["2024-01-01 00:00:04", "2024-01-01 00:10:01", "2024-01-01 00:30:03"]))
        >>> [str(time) for time in absent_times(times, "10min")]
        ['2024-01-01 00:20:00']
    """
    import pandas as pd

    zone = times.dt.tz
    local = pd.DatetimeIndex(times.dt.tz_localize(None)).sort_values()
    slots = _slots(local, every)
    if len(slots) < 2:
        return slots[:0].tz_localize(zone)
    edges = slots[:-1] + (slots[1:] - slots[:-1]) / 2
    taken = np.bincount(edges.searchsorted(local, side="right"), minlength=len(slots))
    return slots[taken == 0].tz_localize(zone)


def median_step(times: Any) -> float:
    """The median distance of times that differ, in seconds, NaN for fewer than two."""
    distinct = np.unique(times.dt.tz_localize(None).to_numpy())
    return float(np.median(np.diff(distinct) / np.timedelta64(1, "s"))) if len(distinct) > 1 else float("nan")


def said_step(seconds: float) -> str:
    """A distance in time as text.

    Args:
        seconds: of it.

    Returns:
        A number and its unit.

    Example:
        >>> said_step(600.0), said_step(86400.0), said_step(2678400.0)
        ('10 min', '1 d', '1 month')
    """
    if 28 * 86_400 <= seconds <= 31 * 86_400:
        return "1 month"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.4g} {unit}"


def _slots(local: Any, every: str) -> Any:
    """Times at equal distance from the first to the last, at round numbers where the rows nearly are."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    try:
        offset = to_offset(every)
        step = pd.Timedelta(days=offset.n) if isinstance(offset, pd.offsets.Day) else _as_fixed(offset)
        if offset.n < 1:
            raise ValueError("a negative frequency")
    except (ValueError, AttributeError, TypeError) as error:
        raise UnclearError(
            f"expected a duration such as {option('every', '1h')}, 15min or 1D, got {every!r}"
        ) from error
    if step is None:
        return pd.date_range(local[0], local[-1], freq=offset)
    start = local[0].normalize()
    apart = ((local - start) / step).to_numpy()
    off = apart - np.round(apart)
    middle = float(np.median(off))
    phase = 0.0 if np.ptp(off) > 0 and np.abs(off).max() <= _JITTER else middle
    first, last = (round(float(place - phase)) for place in (apart[0], apart[-1]))
    return pd.DatetimeIndex([start + phase * step + number * step for number in range(first, last + 1)])


def _as_fixed(offset: Any) -> Any:
    """The duration of a frequency, or None if it is one of the calendar."""
    import pandas as pd

    try:
        return pd.Timedelta(offset)
    except (ValueError, TypeError):
        return None
