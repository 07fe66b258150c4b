"""Standard deviations for imputers without an uncertainty, by distance to the nearest observation and by column."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from cgp.tables.filled import FilledTable, Interval
from cgp.tables.frames.gaps import length_bin, ordered_rows, row_distances
from cgp.tables.frames.table import Table, read_table

__all__ = ["Residuals", "Spread", "UncertainImputer"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_WEIGHT = 3.0  # blocks that the variance of all columns counts for in that of each
_LEAST = 1e-4  # of the column's standard deviation


class Residuals(NamedTuple):
    """Errors of hidden values.

    Attributes:
        errors: in units of the column's standard deviation, ``(m,)``.
        columns: of each, ``(m,)``.
        distances: rows to the nearest value that was not hidden, ``(m,)``.
        blocks: the number of the block of each, ``(m,)``.
    """

    errors: Array
    columns: Integers
    distances: Integers
    blocks: Integers

    def of_blocks(self, chosen: NDArray[np.bool_]) -> Residuals:
        """The residuals of some blocks, ``(B,)``."""
        values = chosen[self.blocks]
        return Residuals(self.errors[values], self.columns[values], self.distances[values], self.blocks[values])


class Spread(NamedTuple):
    r"""Standard deviations of errors by class of distance and by column.

    .. math:: s_{kp}^2 = \frac{b_{kp} \hat s_{kp}^2 + 3 \hat s_k^2}{b_{kp} + 3}

    with the mean squares of class k in column p, over its b blocks, and in all columns.

    Attributes:
        sd: in units of the column's standard deviation, ``(classes, P)``.
    """

    sd: Array

    @classmethod
    def of(cls, residuals: Residuals, num_columns: int) -> Self:
        """The spread of residuals in P columns; a class without any has that of the next class below, or above."""
        bins = length_bin(residuals.distances)
        squares = residuals.errors**2
        variance = np.full((bins.max() + 1, num_columns), np.nan)
        for number in np.unique(bins):
            chosen = bins == number
            common = _mean_of_blocks(squares[chosen], residuals.blocks[chosen])[0]
            for column in range(num_columns):
                inside = chosen & (residuals.columns == column)
                mean, count = _mean_of_blocks(squares[inside], residuals.blocks[inside])
                variance[number, column] = (count * mean + _WEIGHT * common) / (count + _WEIGHT)
        known = np.flatnonzero(~np.isnan(variance[:, 0]))
        below = np.maximum(np.searchsorted(known, np.arange(len(variance)), side="right") - 1, 0)
        return cls(np.maximum(np.sqrt(variance[known[below]]), _LEAST))

    def at(self, distances: Integers, columns: Integers) -> Array:
        """Standard deviations ``(m,)`` of values at distances ``(m,)`` in columns ``(m,)``."""
        return self.sd[np.minimum(length_bin(distances), len(self.sd) - 1), columns]


class UncertainImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
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
        self.imputer = imputer
        self.spread = spread
        self.inputs = inputs
        self.missing_values = missing_values

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the imputer to a table, and fill it.

        Args:
            X: a frame, a series, or an array ``(n, k)``; NaN is missing.
            y: not used.

        Returns:
            The imputer.
        """
        table, self._axis = read_table(X, self.inputs, self.missing_values)
        self.imputer_ = clone(self.imputer).fit(X)
        self._filled = self._fill(table)
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table.

        Args:
            X: table with the same columns as in ``fit``.

        Returns:
            The table with its gaps filled.
        """
        check_is_fitted(self)
        table, _ = read_table(X, self.inputs, self.missing_values)
        return self._fill(table).filled()

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

    def _fill(self, table: Table) -> FilledTable:
        mean = table.values_of(self.imputer_.transform(table.given))
        order = ordered_rows(table.inputs)
        away = np.empty(table.values.shape, dtype=np.int64)
        away[order] = row_distances(table.missing[order], ordered=table.inputs.shape[1] == 1)
        columns = np.broadcast_to(np.arange(len(table.names)), away.shape)
        sd = Spread(self.spread).at(away, columns) * table.units
        return FilledTable.of_moments(table, self._axis, mean, np.where(table.missing, sd, 0.0))


def _mean_of_blocks(values: Array, blocks: Integers) -> tuple[float, int]:
    """The mean over blocks of their means, and how many there are."""
    if len(values) == 0:
        return 0.0, 0
    _, number, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    return float(np.mean(np.bincount(number, values) / counts)), len(counts)
