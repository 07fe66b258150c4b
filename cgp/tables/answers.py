"""Answers of a fitted process about the gaps of a table: joint draws, sums, forecasts, pictures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cgp.regression import CorrelatedGPRegressor

from .filled import FilledMixin
from .frames.coordinates import Axis
from .frames.table import Table
from .totals import Totals, bins_of, checked_weights, sums_over, totals_of

__all__ = ["Forecast", "ProcessMixin"]


class Forecast(NamedTuple):
    """Predicted readings after the end of a table.

    Attributes:
        mean: in the form of the table, with the rows that follow it.
        std: their standard deviations.
    """

    mean: Any
    std: Any


class ProcessMixin(FilledMixin):
    """Answers of an imputer whose values are jointly Gaussian.

    Attributes:
        regressor_: the fitted process.
    """

    regressor_: CorrelatedGPRegressor

    def draws(self, count: int, random_state: Any = 0) -> list[Any]:
        """Filled tables whose gaps are drawn together, as readings, for multiple imputation.

        Args:
            count: how many.
            random_state: seed.

        Returns:
            The table, each time with other values in its gaps.

        Raises:
            ValueError: if there are too few.
        """
        check_is_fitted(self)
        gaps = self._table.missing
        rows, outputs = np.nonzero(gaps)
        values = np.repeat(self._table.values[None], count, axis=0)
        if len(rows):
            options = {"n_samples": count, "random_state": random_state, "include_noise": True}
            values[:, gaps] = self.regressor_.sample_at(self._table.inputs[rows], outputs, **options).T
        return [self._table.filled(each) for each in values]

    def aggregate(self, by: Any = None, how: str = "sum", *, weights: Any = None, include_noise: bool = True) -> Totals:
        r"""Sums or means of each column, with the standard errors that the gaps leave them.

        .. math:: \sum_{i \in O} w_i y_i + w_M^\top\mu_M, \qquad w_M^\top(C_M + \sigma^2 I)w_M

        They are exact over gaps of any shape, in time that is linear in the rows of a series. By default it is readings
        that are summed: those that were observed (O) have no error, those that are missing (M) that of a reading, noise
        included. Rows that the table does not have are not in a sum: ``frame.asfreq("h")`` adds them.

        Args:
            by: what is summed together: a frequency of pandas for times ("D", "MS"), or a label for each row (a series
                by its index); None is the whole table.
            how: "sum", or "mean": the sum divided by that of the weights.
            weights: of each row, ``(n,)``, or of each value, ``(n, P)``, those of pandas by their labels; None is 1.
            include_noise: False for sums of the functions beneath the readings, in which every row is uncertain.

        Returns:
            Totals and their standard errors, a row for each bin.

        Raises:
            ValueError: if an argument does not fit.
        """
        check_is_fitted(self)
        if how not in ("sum", "mean"):
            raise ValueError(f"how: expected 'sum' or 'mean', got {how!r}")
        table = self._table
        shares = checked_weights(weights, table)
        bins = bins_of(by, table, self._axis.times(table.given))
        if how == "mean":
            sums = sums_over(bins, shares)
            if not sums.all():
                empty = bins.labels[np.flatnonzero(~sums.all(axis=1))[0]]
                raise ValueError(f"weights: expected sums other than 0 for how='mean', got 0 in the bin {str(empty)!r}")
            shares = shares / sums[bins.numbers]
        totals = totals_of(self.regressor_, table, bins, shares, include_noise=include_noise)
        return Totals(*(table.framed(part, bins.labels) for part in totals))

    def forecast(self, steps: int) -> Forecast:
        """Readings after the last row of a table of one input.

        Args:
            steps: how many rows, at the frequency of the index, or else at the median distance of its rows.

        Returns:
            Mean and standard deviation, with the index that follows.

        Raises:
            ValueError: if the table has several inputs, or there are too few steps.
        """
        check_is_fitted(self)
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        inputs, labels = _later_rows(self._table, self._axis, steps)
        parts = self.regressor_.predict(inputs, return_std=True)
        return Forecast(*(self._table.framed(np.asarray(part).reshape(steps, -1), labels) for part in parts))

    def plot_pairs(self, ax: Any = None) -> Any:
        """Draw the correlation of every pair of columns, and how far each is behind the first.

        Args:
            ax: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        check_is_fitted(self)
        from cgp.plotting import pair_correlations

        names = [str(name) for name in self._table.names]
        lags = self._axis.described(self.regressor_.delays_[0, :, 0]) if len(self._axis.columns) < 2 else None
        return pair_correlations(self.regressor_.correlation_, names=names, lags=lags, ax=ax)

    def residuals(self) -> Any:
        r"""Standardised errors of every observed value, predicted from all others, with the parameters as they are.

        .. math:: \frac{y_{ip} - \mu_{-ip}}{s_{-ip}}

        Where the fit is good 95 % are within ± 1.96, and they have no pattern.

        Returns:
            In the form of the table, NaN where nothing was observed, and at gross errors that a long series leaves
            out.
        """
        check_is_fitted(self)
        mean, sd = (np.asarray(part).reshape(-1, len(self._table.names)) for part in self.regressor_.leave_one_out())
        values, flawed = np.full(self._table.values.shape, np.nan), self.regressor_.gross_errors_
        # Rows without a value need not be known to the regressor: both sides are read in the same order.
        known, observed = ~np.isnan(mean), ~self._table.missing
        observed[: len(flawed)] &= ~flawed
        values[observed] = (self._table.values[observed] - mean[known]) / sd[known]
        return self._table.framed(values)

    def plot_residuals(self, figure: Any = None) -> list[Any]:
        """Draw the standardised errors of every observed value, a panel for each column (:meth:`residuals`).

        Args:
            figure: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes, one of each column.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        check_is_fitted(self)
        from cgp.plotting import residual_panels

        x, label = self._axis.drawn(self._table.given, self._table.inputs)
        values = np.asarray(self.residuals()).reshape(self._table.values.shape)
        names = [str(name) for name in self._table.names]
        return residual_panels(x, values, names=names, xlabel=label, figure=figure)


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
