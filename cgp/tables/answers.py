"""What a posterior says about a table: joint draws of its gaps, sums, forecasts, standardised errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.regression import Posterior

from .frames.coordinates import Axis
from .frames.table import Table
from .totals import Totals, bins_of, checked_weights, sums_over, totals_of

__all__ = ["Answers", "Forecast"]


class Forecast(NamedTuple):
    """Predicted readings after the end of a table.

    Attributes:
        mean: in the form of the table, with the rows that follow it.
        std: their standard deviations.
    """

    mean: Any
    std: Any


class Answers(NamedTuple):
    """A posterior beside the table that it was conditioned on.

    Attributes:
        posterior: of the columns.
        table: n rows, P columns.
        axis: of the table.
    """

    posterior: Posterior
    table: Table
    axis: Axis

    def draws(self, count: int, random_state: Any) -> list[Any]:
        """Filled tables whose gaps are drawn together, as readings."""
        gaps = self.table.missing
        rows, outputs = np.nonzero(gaps)
        values = np.repeat(self.table.values[None], count, axis=0)
        if len(rows):
            inputs = self.table.inputs[rows]
            values[:, gaps] = self.posterior.draw_at(inputs, outputs, count, random_state, include_noise=True)
        return [self.table.filled(each) for each in values]

    def aggregate(self, by: Any, how: str, weights: Any, *, include_noise: bool) -> Totals:
        """Sums or means of each column, "sum" or "mean", with the standard errors that the gaps leave them."""
        if how not in ("sum", "mean"):
            raise ValueError(f"how: expected 'sum' or 'mean', got {how!r}")
        shares = checked_weights(weights, self.table)
        bins = bins_of(by, self.table, self.axis.times(self.table.given))
        if how == "mean":
            sums = sums_over(bins, shares)
            if not sums.all():
                empty = bins.labels[np.flatnonzero(~sums.all(axis=1))[0]]
                raise ValueError(f"weights: expected sums other than 0 for how='mean', got 0 in the bin {str(empty)!r}")
            shares = shares / sums[bins.numbers]
        totals = totals_of(self.posterior, self.table, bins, shares, include_noise=include_noise)
        return Totals(*(self.table.framed(part, bins.labels) for part in totals))

    def forecast(self, steps: int) -> Forecast:
        """Readings after the last row of a table of one input."""
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        inputs, labels = _later_rows(self.table, self.axis, steps)
        return Forecast(*(self.table.framed(part, labels) for part in self.posterior.marginals(inputs)))

    def errors(self) -> NDArray[np.float64]:
        """Standardised errors of observed values, predicted from all others, NaN where there is none, ``(n, P)``."""
        mean, sd = self.posterior.leave_one_out()
        values, observed = np.full(self.table.values.shape, np.nan), self.table.known
        known = ~np.isnan(mean)  # rows without a value need not be in there: both sides are read in the same order
        values[observed] = (self.table.values[observed] - mean[known]) / sd[known]
        return values


def _later_rows(table: Table, axis: Axis, steps: int) -> tuple[NDArray[np.float64], Any]:
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
