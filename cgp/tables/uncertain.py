"""An imputer without an uncertainty, with standard deviations learned from hidden values."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from .filling import Filling
from .gaps import ordered_rows, row_distances
from .intervals import FilledMixin
from .spread import Spread
from .tables import Table, read_table
from .trials import column_units, filled_values

__all__ = ["UncertainImputer"]


class UncertainImputer(FilledMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
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
        self._given, self._axis = read_table(X, self.inputs, self.missing_values)
        self.imputer_ = clone(self.imputer).fit(X)
        self._filled = self._fill(self._given)
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
        return table.filled(self._fill(table).mean)

    @property
    def _table(self) -> Table:
        return self._given

    @property
    def _filling(self) -> Filling:
        return self._filled

    def _fill(self, table: Table) -> Filling:
        mean = filled_values(self.imputer_.transform(table.given), table)
        order = ordered_rows(table.inputs)
        away = np.empty(table.values.shape, dtype=np.int64)
        away[order] = row_distances(table.missing[order], ordered=table.inputs.shape[1] == 1)
        columns = np.broadcast_to(np.arange(len(table.names)), away.shape)
        sd = Spread(self.spread).at(away, columns) * column_units(table)
        return Filling(mean, np.where(table.missing, sd, 0.0))
