"""Simple imputers: lines, seasonal means, ridge regression on the other columns; and an uncertainty for any of them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.linear_model import BayesianRidge
from sklearn.utils.validation import check_is_fitted

from cgp.tables.filled import FilledTable, Interval
from cgp.tables.frames.gaps import ordered_rows, row_distances
from cgp.tables.frames.table import Table, read_table

from .scores import Spread

__all__ = ["LaggedRidge", "LinearInterpolation", "PointImputer", "SeasonalMean", "UncertainImputer"]

Array = NDArray[np.float64]

_DAY, _YEAR = 1.0, 365.25  # days
_HOURS, _MONTHS = 24, 12
_ROUNDING = 1e-6  # of an hour: days are rounded


class PointImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of imputers that return values without an uncertainty.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        missing_values: codes of missing values, besides NaN.
    """

    def __init__(self, *, inputs: Any = None, missing_values: Any = np.nan) -> None:
        self.inputs = inputs
        self.missing_values = missing_values

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read a table.

        Args:
            X: a frame, a series, or an array ``(n, k)``; NaN is missing.
            y: not used.

        Returns:
            The imputer.
        """
        read_table(X, self.inputs, self.missing_values)  # refuses what is no table
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table.

        Args:
            X: table with the same columns as in ``fit``.

        Returns:
            The table with its gaps filled.
        """
        table, _ = read_table(X, self.inputs, self.missing_values)
        return table.filled(self._means(table))

    def _means(self, table: Table) -> Array:
        """Values for every cell ``(n, P)``."""
        raise NotImplementedError


class LinearInterpolation(PointImputer):
    """Lines between the values before and after a gap, over the units of the index; level at the ends.

    Over several inputs it is the value of the nearest row that has one.

    Example:
        >>> LinearInterpolation().fit_transform(np.array([[1.0], [np.nan], [3.0]])).T
        array([[1., 2., 3.]])
    """

    def _means(self, table: Table) -> Array:
        return np.column_stack([_interpolated(table.inputs, column) for column in table.values.T])


class SeasonalMean(PointImputer):
    """Mean of a column at the hour of the day and in the month, over as many of them as the times of the index span."""

    def _means(self, table: Table) -> Array:
        days = table.inputs[:, 0]
        season = np.zeros(len(days), dtype=np.int64)
        span = np.ptp(days)
        if span >= 2 * _DAY and np.median(np.diff(np.unique(days))) <= _DAY / 2:
            season += np.floor(_HOURS * (days % _DAY) + _ROUNDING).astype(np.int64) % _HOURS
        if span >= 2 * _YEAR:
            season += _HOURS * np.floor(_MONTHS * (days % _YEAR) / _YEAR).astype(np.int64)
        return np.column_stack([_group_means(season, column) for column in table.values.T])


class LaggedRidge(PointImputer):
    """Bayesian ridge regression of each column on the others, before, at and after the row, in turns.

    Gaps start with lines. Over several inputs there are no rows before and after.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        missing_values: codes of missing values, besides NaN.
        lags: rows before and after that are regressed on.
        rounds: how often all columns take their turn.
    """

    def __init__(
        self, *, inputs: Any = None, missing_values: Any = np.nan, lags: tuple[int, ...] = (1, 2), rounds: int = 3
    ) -> None:
        super().__init__(inputs=inputs, missing_values=missing_values)
        self.lags = lags
        self.rounds = rounds

    def _means(self, table: Table) -> Array:
        order = np.argsort(table.inputs[:, 0], kind="stable")
        values = table.values[order]
        missing = np.isnan(values)
        filled = np.column_stack([_interpolated(table.inputs[order], column) for column in values.T])
        lags = self.lags if table.inputs.shape[1] == 1 else ()
        for _ in range(self.rounds):
            for column in np.flatnonzero(missing.any(axis=0)):
                features, gaps = _lagged(np.delete(filled, column, axis=1), lags), missing[:, column]
                ridge = BayesianRidge().fit(features[~gaps], values[~gaps, column])
                filled[gaps, column] = ridge.predict(features[gaps])
        means = np.empty_like(filled)
        means[order] = filled
        return means


class UncertainImputer(PointImputer):
    """An imputer without an uncertainty, with standard deviations by the distance to the nearest observation.

    Args:
        imputer: with ``fit_transform``.
        spread: standard deviations by class of distance and column, ``(classes, P)``, in units of the columns'
            standard deviations.
        inputs: columns with the inputs of the rows; None is the index.
        missing_values: codes of missing values, besides NaN.

    Attributes:
        imputer_: the fitted one.
        std_: standard deviation of every filled value, 0 for observed values, in the form of the table.
    """

    def __init__(
        self, imputer: Any, spread: NDArray[np.float64], *, inputs: Any = None, missing_values: Any = np.nan
    ) -> None:
        super().__init__(inputs=inputs, missing_values=missing_values)
        self.imputer = imputer
        self.spread = spread

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the imputer to a table, and fill it."""
        table, self._axis = read_table(X, self.inputs, self.missing_values)
        self.imputer_ = clone(self.imputer).fit(X)
        self._filled = self._fill(table)
        return self

    @property
    def std_(self) -> Any:
        """The standard deviation of every filled value, 0 for observed values."""
        check_is_fitted(self)
        return self._filled.std()

    def interval(self, level: float = 0.95, *, method: str = "gaussian") -> Interval:
        """Central intervals of the readings that are missing, as :meth:`.CorrelatedGPImputer.interval` has them.

        Args:
            level: between 0 and 1.
            method: "gaussian" or "conformal".

        Returns:
            Lower and upper ends in the form of the table; both are the value where it was observed.
        """
        check_is_fitted(self)
        return self._filled.interval(level, method, getattr(self, "conformal_", None))

    def plot(self, figure: Any = None) -> list[Any]:
        """Draw the gaps of the table, a row for each column, and each column with its filled values; places as maps.

        Args:
            figure: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes.
        """
        check_is_fitted(self)
        return self._filled.plot(figure)

    def _means(self, table: Table) -> Array:
        check_is_fitted(self)
        return self._fill(table).moments[0]

    def _fill(self, table: Table) -> FilledTable:
        mean = table.values_of(self.imputer_.transform(table.given))
        order = ordered_rows(table.inputs)
        away = np.empty(table.values.shape, dtype=np.int64)
        away[order] = row_distances(table.missing[order], ordered=table.inputs.shape[1] == 1)
        columns = np.broadcast_to(np.arange(len(table.names)), away.shape)
        sd = Spread(self.spread).at(away, columns) * table.units
        return FilledTable.of_moments(table, self._axis, mean, np.where(table.missing, sd, 0.0))


def _lagged(values: Array, lags: tuple[int, ...]) -> Array:
    """Columns beside themselves some rows before and after; beyond the ends stands the last row."""
    rows = np.arange(len(values))
    shifts = [0, *(sign * lag for lag in lags for sign in (-1, 1))]
    return np.hstack([values[np.clip(rows + shift, 0, len(values) - 1)] for shift in shifts])


def _interpolated(inputs: Array, column: Array) -> Array:
    known = ~np.isnan(column)
    if inputs.shape[1] > 1:
        from scipy.spatial import KDTree

        unit = np.maximum(inputs.std(axis=0), np.finfo(float).tiny)
        return column[known][KDTree(inputs[known] / unit).query(inputs / unit)[1]]
    order = np.argsort(inputs[known, 0], kind="stable")
    return np.interp(inputs[:, 0], inputs[known, 0][order], column[known][order])


def _group_means(groups: NDArray[np.int64], column: Array) -> Array:
    """Mean of a column over each row's group, that of the column where the group has no value."""
    known = ~np.isnan(column)
    sums, counts = (np.bincount(groups[known], w, groups.max() + 1) for w in (column[known], None))
    return np.where(counts > 0, sums / np.maximum(counts, 1), column[known].mean())[groups]
