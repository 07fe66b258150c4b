"""Rows after the end of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .coordinates import Axis
from .tables import Table

__all__ = ["Forecast", "later_rows"]


class Forecast(NamedTuple):
    """Predicted readings after the end of a table.

    Attributes:
        mean: in the form of the table, with the rows that follow it.
        std: their standard deviations.
    """

    mean: Any
    std: Any


def later_rows(table: Table, axis: Axis, steps: int) -> tuple[NDArray[np.float64], Any]:
    """The rows that follow a table of one input.

    Args:
        table: n rows.
        axis: axis of the table.
        steps: how many; a step is the frequency of the index, or the median distance of its rows.

    Returns:
        Their inputs ``(steps, 1)`` and labels; None if rows have no labels.

    Raises:
        ValueError: if there are several inputs, or too few rows to define a distance.
    """
    inputs = table.inputs[:, 0]
    distinct = np.unique(inputs)
    if table.inputs.shape[1] != 1 or len(distinct) < 2:
        raise ValueError(f"steps: expected a table of one input with two rows or more, got {table.inputs.shape}")
    frequency = getattr(getattr(table.given, "index", None), "freq", None)
    if frequency is not None and not axis.columns and len(axis.coordinates):
        last = table.given.index[np.argmax(inputs)]
        labels = _after(last, -frequency if frequency.n < 0 else frequency, steps)  # of a table in reverse order
        return axis.coordinates[0].numbers(labels)[:, None], labels
    numbers = distinct[-1] + float(np.median(np.diff(distinct))) * np.arange(1.0, steps + 1.0)
    return numbers[:, None], axis.coordinates[0].labels(numbers) if axis.coordinates else None


def _after(last: Any, frequency: Any, steps: int) -> Any:
    import pandas as pd

    if isinstance(last, pd.Period):
        return pd.period_range(last + 1, periods=steps, freq=frequency)
    if isinstance(last, pd.Timedelta):
        return pd.timedelta_range(last, periods=steps + 1, freq=frequency)[1:]
    return pd.date_range(last, periods=steps + 1, freq=frequency)[1:]
