"""An imputer in scikit-learn's convention: a table with gaps in, a filled one out."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.covariances import MultiScale, Structure
from cgp.regression.inference import Inference
from cgp.regression.rollback import unchanged_on_error
from cgp.regression.solvers.choice import Cost

from .choosing import fitted_regressor
from .filled import Filling, filling_of_rows
from .frames.codes import warn_of_codes, warn_of_constants
from .frames.coordinates import Axis
from .frames.periods import periods_in_units
from .frames.table import Table, appended, merged, read_table
from .storage import StorageMixin

__all__ = ["CorrelatedGPImputer"]


class CorrelatedGPImputer(StorageMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fill the gaps of a table from all of its columns, with the uncertainty of the filled values.

    .. math:: y_{ip} \mid \text{what was observed} \;\sim\; N(\mu_{ip}, v_{ip} + \sigma_p^2)

    A column is an output of :class:`.CorrelatedGPRegressor`, the index is its input: times, numbers, or the number of
    the row where there is none; columns can be inputs as well, as latitude and longitude. Rows may be in any order, at
    any distance, and several at one input. What was observed stays as it is; gaps get the mean. Frames and series of
    pandas keep index, columns, order and dtypes; arrays give arrays.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        kernel: as the regressor's.
        structure: as the regressor's; "auto" compares several, and averages. The periods of cycles,
            ``MultiScale(periods=["1D"])``, may be durations, and numbers are days where the input is a time; "auto"
            looks for them in long series, and offers a year to two years and more: it is taken, with many time scales,
            where it gains more than 30 nats.
        num_inducing: as the regressor's, for many observations over several inputs.
        inference: as the regressor's.
        missing_values: a number, or several, such as -200, that stand for what is missing, besides NaN.
        random_state: seed of everything random.
        verbose: whether progress is shown; None shows it on a terminal, for fits of more than ten seconds.

    Attributes:
        regressor_: the fitted :class:`.CorrelatedGPRegressor`; its inputs are days since the first time, for times.
        std_: standard deviation of every filled value, 0 for observed values, in the form of the table.
        n_features_in_: columns of the table.
        feature_names_in_: their names.

    Example:
        >>> t = np.linspace(0, 6, 30)
        >>> table = np.column_stack([np.sin(t), np.cos(t)])
        >>> table[10:20, 1] = np.nan
        >>> filled = CorrelatedGPImputer(random_state=0).fit_transform(table)
        >>> filled.shape, int(np.isnan(filled).sum())
        ((30, 2), 0)
    """

    def __init__(
        self,
        *,
        inputs: Any = None,
        kernel: str | Kernel | None = None,
        structure: str | Structure = "auto",
        num_inducing: int | None = None,
        inference: str | Inference = "auto",
        missing_values: Any = np.nan,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.inputs = inputs
        self.kernel = kernel
        self.structure = structure
        self.num_inducing = num_inducing
        self.inference = inference
        self.missing_values = missing_values
        self.random_state = random_state
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from what a table has.

        Args:
            X: a frame, a series, or an array ``(n, k)``; NaN is missing.
            y: not used.

        Returns:
            The imputer.

        Raises:
            ValueError: if a column cannot be used; it is named.

        Warns:
            UserWarning: if a value looks like a code for what is missing, or a column with gaps has one value only.
        """
        table = self._read(X, reset=True)
        warn_of_codes(table.values, table.names)
        dead = [name for name, column in zip(table.names, table.missing.T, strict=True) if column.all()]
        if dead:
            raise ValueError(f"X: expected at least one value in each column, got none in {dead}: leave them out")
        warn_of_constants(table.values, table.names)
        self.regressor_ = fitted_regressor(self._regressor, table, self._axis)
        self._parts, self._known = [table], Filling.of(self.regressor_, table)
        if hasattr(self, "conformal_"):  # of another table
            del self.conformal_
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table, given what was fitted to and what the table itself has besides.

        A value that was fitted to, at its input and in its column, counts once. Parameters stay as they are, and so
        does the imputer: :meth:`update` keeps new rows. Rows that have a number only (of an array, or of an index that
        counts from 0) are those of fit if no value differs. Otherwise they are others, at no known place, as in
        cross-validation: each is filled from its own observed values.

        Args:
            X: table with the same columns as in ``fit``.

        Returns:
            The table with its gaps filled.

        Raises:
            ValueError: if X does not fit.
        """
        check_is_fitted(self)
        table = self._read(X, reset=False)
        if not len(table.inputs):
            raise ValueError("X: expected at least one row, got none")
        placed = table.placed_in(self._table) if table.is_counted else table
        if placed is None:
            return table.filled(filling_of_rows(self.regressor_, table, self._table).mean)
        if placed.same_observations(self._table):
            return table.filled(self._filling.mean)
        return table.filled(self._conditioned(placed).mean)

    def update(self, rows: Any) -> Self:
        """Take in further rows of the table; parameters stay as they are.

        Rows of a series that are not before its latest one take a time that does not grow with the past; gaps before
        them are filled anew when they are asked for. A reading that comes twice counts twice, as in fit.

        Args:
            rows: of the same columns as in fit; those of an array follow its last row.

        Returns:
            The imputer.

        Raises:
            ValueError: if the rows do not fit.
        """
        check_is_fitted(self)
        table = self._read(rows, reset=False, first=sum(len(part.inputs) for part in self._parts))
        if table.is_counted and hasattr(rows, "iloc"):
            raise ValueError(
                "rows: expected an index that says where they are, got one that counts from 0 again: "
                "rows.set_axis(range(first, last + 1)), or times"
            )
        parts, regressor = appended(self._parts, table), self.regressor_
        if not table.missing.all():
            regressor = regressor.conditioned(table.inputs, table.values)
        self._parts, self._known, self.regressor_ = parts, None, regressor
        return self

    def estimate(self, X: Any) -> Cost:
        """What a fit to a table is expected to take, without fitting.

        Args:
            X: as in :meth:`fit`.

        Returns:
            Seconds of one core, within a factor of about two, and bytes of memory.

        Raises:
            ValueError: if the table or an argument cannot be used.
        """
        other = clone(self)
        table = other._read(X, reset=True)
        return other._regressor().estimate(table.inputs, table.outputs())

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: NaN is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _table(self) -> Table:
        """All rows that were fitted to or taken in."""
        self._parts = [merged(self._parts)]
        return self._parts[0]

    @property
    def _filling(self) -> Filling:
        """The means and standard deviations of the table, computed on first use."""
        if self._known is None:
            self._known = Filling.of(self.regressor_, self._table)
        return self._known

    def _read(self, X: Any, *, reset: bool, first: int = 0) -> Table:
        """A table as numbers; in fit, its axis is kept."""
        if hasattr(X, "iloc"):
            validate_data(self, X if hasattr(X, "columns") else X.to_frame(), reset=reset, skip_check_array=True)
        else:
            options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
            X = validate_data(self, X, reset=reset, **options)
        table, axis = read_table(X, self.inputs, self.missing_values, axis=None if reset else self._axis, first=first)
        if reset:
            self._axis: Axis = axis
        return table

    def _regressor(self) -> CorrelatedGPRegressor:
        options = {name: getattr(self, name) for name in signature(CorrelatedGPRegressor).parameters}
        if isinstance(self.structure, MultiScale):
            periods = periods_in_units(self.structure.periods, is_time=self._axis.is_time)
            options["structure"] = replace(self.structure, periods=periods)
        return CorrelatedGPRegressor(**options)

    def _conditioned(self, table: Table) -> Filling:
        """The filling of another table, given what it has besides."""
        further = table.without(self._table)
        regressor = self.regressor_
        if not further.missing.all():
            regressor = regressor.conditioned(further.inputs, further.values)
        return Filling.of(regressor, table)
