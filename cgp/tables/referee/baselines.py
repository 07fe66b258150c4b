"""Simple imputers: lines, seasonal means, ridge regression, trees; and an uncertainty for any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.utils.validation import check_is_fitted

from cgp.tables.filled import FilledTable, Interval
from cgp.tables.frames.codes import warn_of_negatives
from cgp.tables.frames.gaps import ordered_rows, row_distances
from cgp.tables.frames.table import Table, read_table

from .scores import Spread

__all__ = ["CalendarTrees", "LaggedRidge", "LinearInterpolation", "PointImputer", "SeasonalMean", "UncertainImputer"]

Array = NDArray[np.float64]

_DAY, _WEEK, _YEAR = 1.0, 7.0, 365.25  # days
_HOURS, _MONTHS = 24, 12
_ROUNDING = 1e-6  # of an hour: days are rounded
_OTHERS = 8  # columns that trees see, the most correlated ones


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


class CalendarTrees(PointImputer):
    """Gradient-boosted trees for each column of a series, on how far it is from the line over its gap.

    They see the ends of the gap and how far away these are, the eight most correlated other columns in this row and
    the ones beside it, and the place in each cycle. Every row that is learned from is in a gap that is drawn from those
    of the table.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        missing_values: codes of missing values, besides NaN.
        periods: of cycles, in units of the input; those that the series does not span twice are left out.

    Source:
        Ke et al. (2017), LightGBM: a highly efficient gradient boosting decision tree, as scikit-learn has it.
    """

    def __init__(
        self,
        *,
        inputs: Any = None,
        missing_values: Any = np.nan,
        periods: tuple[float, ...] = (_DAY, _WEEK, _YEAR),
    ) -> None:
        super().__init__(inputs=inputs, missing_values=missing_values)
        self.periods = periods

    def _means(self, table: Table) -> Array:
        if table.inputs.shape[1] != 1:
            raise ValueError(f"X: expected one input for trees with the calendar, got {table.inputs.shape[1]}")
        order, generator = ordered_rows(table.inputs), np.random.default_rng(0)
        times, values = table.inputs[order, 0], table.values[order]
        filled, missing = values.copy(), np.isnan(values)
        for column in np.flatnonzero(missing.any(axis=0)).tolist():
            gaps = np.flatnonzero(missing[:, column])
            seen = np.flatnonzero(~missing[:, column])
            ends = _ends(seen, gaps, np.zeros((len(gaps), 2), dtype=np.int64))
            away = np.where(ends < 0, len(values), np.abs(ends - gaps[:, None]))
            drawn = _ends(seen, seen, away[generator.integers(len(gaps), size=len(seen))])
            known, asked = (_around(values[:, column], *pair) for pair in ((seen, drawn), (gaps, ends)))
            beside = np.hstack([times[:, None], self._phases(times), _beside(values, column)])
            trees = HistGradientBoostingRegressor(max_iter=150, max_leaf_nodes=15, random_state=0)
            trees.fit(np.hstack([known, beside[seen]]), values[seen, column] - known[:, 0])
            filled[gaps, column] = asked[:, 0] + trees.predict(np.hstack([asked, beside[gaps]]))
        means = np.empty_like(filled)
        means[order] = filled
        return means

    def _phases(self, times: Array) -> Array:
        """Places in the cycles that the times show, ``(n, C)``."""
        span, step = np.ptp(times), np.median(np.diff(np.unique(times))) if np.ptp(times) > 0.0 else np.inf
        return (
            np.array([times % each for each in self.periods if span >= 2 * each >= 4 * step]).reshape(-1, len(times)).T
        )


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

    def fit(self, X: Any, y: Any = None, **known: Any) -> Self:
        """Fit the imputer to a table, with totals if it takes any, and fill it."""
        table, self._axis = read_table(X, self.inputs, self.missing_values)
        self.imputer_ = clone(self.imputer).fit(X, **known)
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

    def plot(
        self,
        figure: Any = None,
        *,
        columns: Any = None,
        between: tuple[Any, Any] | None = None,
        level: float = 0.95,
        units: Mapping[Any, str] | None = None,
    ) -> list[Any]:
        """Draw the gaps of the table, a row for each column, and each column with its filled values; places as maps.

        Args:
            figure: of matplotlib, to draw in; None is a new one.
            columns: as :meth:`.CorrelatedGPImputer.plot` has them.
            between: likewise.
            level: likewise.
            units: likewise.

        Returns:
            The axes.
        """
        check_is_fitted(self)
        return self._filled.plot(figure, columns, between, level, units)

    def _means(self, table: Table) -> Array:
        check_is_fitted(self)
        filled = self._fill(table)
        warn_of_negatives(table, self._filled.table.values, filled.moments[0], filled.lower)
        return filled.moments[0]

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


def _ends(seen: NDArray[np.int64], rows: NDArray[np.int64], least: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nearest rows with a value that are at least so far before and after some rows, -1 if none is, ``(m, 2)``."""
    before = np.searchsorted(seen, rows - least[:, 0], side="right") - 1
    after = np.searchsorted(seen, rows + least[:, 1])
    ends = np.stack([seen[before.clip(0)], seen[after.clip(None, len(seen) - 1)]], axis=1)
    ends[before < 0, 0], ends[after == len(seen), 1] = -1, -1
    return ends


def _around(column: Array, rows: NDArray[np.int64], ends: NDArray[np.int64]) -> Array:
    """The line over a gap, the values at its ends and how far these are, NaN where there is none, ``(m, 5)``."""
    none = ends < 0
    values = np.where(none, np.nan, column[ends])
    away = np.where(none, np.nan, np.abs(ends - rows[:, None]))
    share = np.divide(away[:, 0], away.sum(axis=1), out=np.full(len(rows), np.nan), where=away.sum(axis=1) > 0)
    both = values[:, 0] + share * (values[:, 1] - values[:, 0])
    one = np.where(none.all(axis=1), np.nanmean(column), np.where(none[:, 0], values[:, 1], values[:, 0]))
    return np.column_stack([np.where(none.any(axis=1), one, both), values, away])


def _beside(values: Array, column: int) -> Array:
    """The columns that are most correlated with one, in each row and those beside it, ``(n, 3 K)``."""
    seen = ~np.isnan(values)
    centred = np.where(seen, values - np.nanmean(values, axis=0), 0.0)
    unit = np.sqrt(np.square(centred).sum(axis=0)).clip(np.finfo(float).tiny)
    strength = np.abs(centred[:, column] @ centred) / unit
    strength[column] = -1.0
    return _lagged(values[:, np.sort(np.argsort(-strength, kind="stable")[: min(_OTHERS, len(unit) - 1)])], (1,))


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
