"""An imputer in scikit-learn's convention: a table with gaps in, a filled one out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from cgp.regression import CorrelatedGPRegressor
from cgp.regression.forms import Cost
from cgp.regression.saving import regressor_content, restored_regressor
from cgp.regression.structures import criterion

from .codes import suspected_codes
from .conformal import Conformal
from .coordinates import Axis
from .filling import Filling
from .forecasts import Forecast, later_rows
from .intervals import FilledMixin
from .periods import YEAR, has_years, periods_in_units
from .saving import axis_content, read_content, restored_axis, restored_table, table_content, write_content
from .tables import Table, appended, input_columns, merged, read_table
from .totals import Totals, bins_of, checked_weights, sums_over, totals_of

__all__ = ["CorrelatedGPImputer"]

Array = NDArray[Any]

_VALUES = ("scores", "blocks")  # of conformal intervals


class CorrelatedGPImputer(FilledMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fill the gaps of a table from all of its columns, with the uncertainty of the filled values.

    .. math:: y_{ip} \mid \text{what was observed} \;\sim\; N(\mu_{ip}, v_{ip} + \sigma_p^2)

    A column is an output of :class:`.CorrelatedGPRegressor`, the index is its input: times, numbers, or the number of
    the row where there is none; columns can be inputs as well, as latitude and longitude. Rows may be in any order, at
    any distance, and several at one input. What was observed stays as it is; gaps get the mean. Frames and series of
    pandas keep index, columns, order and dtypes; arrays give arrays.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        kernel: as the regressor's.
        num_components: as the regressor's.
        structure: as the regressor's; "auto" compares several, and averages.
        num_inducing: as the regressor's, for many observations over several inputs.
        inference: as the regressor's.
        periods: of cycles: durations such as "1D" or numbers in units of the input (days, if it is a time); "auto"
            looks for them in long series, and offers a year to two years and more: it is taken, with many time scales,
            where it gains more than 30 nats.
        max_steps: of the optimizer.
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

    _parts: list[Table]
    _known: Filling | None

    def __init__(
        self,
        *,
        inputs: Any = None,
        kernel: str | Kernel | None = None,
        num_components: int | None = None,
        structure: str = "auto",
        num_inducing: int | None = None,
        inference: str = "auto",
        periods: str | Sequence[Any] = "auto",
        max_steps: int = 1000,
        missing_values: Any = np.nan,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.inputs = inputs
        self.kernel = kernel
        self.num_components = num_components
        self.structure = structure
        self.num_inducing = num_inducing
        self.inference = inference
        self.periods = periods
        self.max_steps = max_steps
        self.missing_values = missing_values
        self.random_state = random_state
        self.verbose = verbose

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
            UserWarning: if a value looks like a code for what is missing.
        """
        table = self._read(X, reset=True)
        warn_of_codes(table)
        dead = [name for name, column in zip(table.names, table.missing.T, strict=True) if column.all()]
        if dead:
            raise ValueError(f"X: expected at least one value in each column, got none in {dead}: leave them out")
        self.regressor_ = self._fitted(table)
        self._parts, self._known = [table], Filling.of(self.regressor_, table)
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table, given what was fitted to and what the table itself has besides.

        A value that was fitted to, at its input and in its column, counts once. Parameters stay as they are, and so
        does the imputer: :meth:`update` keeps new rows.

        Args:
            X: table with the same columns as in ``fit``. The rows of an array are those of fit, by their number.

        Returns:
            The table with its gaps filled.

        Raises:
            ValueError: if X does not fit.
        """
        check_is_fitted(self)
        table = self._read(X, reset=False)
        if table.same_observations(self._table):
            return table.filled(self._filling.mean)
        return table.filled(self._conditioned(table).mean)

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
            by: what is summed together: a frequency of pandas for times ("D", "MS"), or a label for each row; None is
                the whole table.
            how: "sum", or "mean": the sum divided by that of the weights.
            weights: of each row, ``(n,)``, or of each value, ``(n, P)``; None is 1.
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
        shares = checked_weights(weights, table.values.shape)
        bins = bins_of(by, table, self._axis.times(table.given))
        if how == "mean":
            shares = shares / sums_over(bins, shares)[bins.numbers]
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
        inputs, labels = later_rows(self._table, self._axis, steps)
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
        if not table.missing.all():
            self.regressor_.partial_fit(table.inputs, table.values)
        self._parts, self._known = appended(self._parts, table), None
        return self

    def save(self, folder: str | Path) -> None:
        """Write the imputer to a folder, with the table that it knows, as safetensors and JSON.

        Args:
            folder: is made if it is not there.

        Raises:
            ValueError: if the kernel is an object, or a name of a column is neither text nor a number.
            OSError: if it cannot be written.
        """
        check_is_fitted(self)
        plain, tensors = regressor_content(self.regressor_)
        table, values = table_content(self._table.given)
        settings = self.get_params(deep=False)
        codes = np.atleast_1d(np.asarray(self.missing_values, dtype=np.float64)).tolist()
        settings |= {"missing_values": codes, "inputs": input_columns(self.inputs) or None, "random_state": None}
        content = {"settings": settings, "regressor": plain, "table": table, "axis": axis_content(self._axis)}
        if hasattr(self, "conformal_"):
            content["conformal"] = self.conformal_.labels.tolist()
            values |= {f"conformal.{name}": torch.as_tensor(getattr(self.conformal_, name)) for name in _VALUES}
        write_content(folder, content, tensors | values)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            folder: that it was written to.

        Returns:
            An imputer that fills as the one that was saved.

        Raises:
            ValueError: if the file is damaged, or of a later version.
            OSError: if it cannot be read.
        """
        plain, tensors = read_content(folder)
        imputer, given = cls(**plain["settings"]), restored_table(plain["table"], tensors)
        imputer._axis = restored_axis(plain["axis"])
        validate_data(imputer, given if not hasattr(given, "to_frame") else given.to_frame(), skip_check_array=True)
        table, _ = read_table(given, imputer.inputs, imputer.missing_values, axis=imputer._axis)
        regressor = imputer._regressor()
        imputer.regressor_ = restored_regressor(regressor, plain["regressor"], tensors, table.outputs())
        imputer._parts, imputer._known = [table], None
        if "conformal" in plain:
            scores, blocks = (tensors[f"conformal.{name}"].numpy() for name in _VALUES)
            imputer.conformal_ = Conformal(scores, blocks, np.array(plain["conformal"]))
        return imputer

    def estimate(self, X: Any) -> Cost:
        """What a fit to a table is expected to take, without fitting.

        Args:
            X: as in :meth:`fit`.

        Returns:
            Seconds of one core, within a factor of about three, and bytes of memory.

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
        options = {name: getattr(self, name) for name in signature(CorrelatedGPRegressor).parameters if name in _PASSED}
        return CorrelatedGPRegressor(**options, periods=periods_in_units(self.periods, is_time=self._axis.is_time))

    def _fitted(self, table: Table) -> CorrelatedGPRegressor:
        """The default regressor, or that of many time scales and a year's cycle, if its criterion is far better."""
        regressor = self._regressor().fit(table.inputs, table.outputs())
        chosen = (self.structure, self.periods, self.kernel, self.num_inducing, self.num_components)
        if chosen != _DEFAULTS or self.inference not in ("auto", "map") or not self._axis.is_time:
            return regressor
        if regressor.structure_ == "multiscale" or not has_years(table.inputs[:, 0], int((~table.missing).sum())):
            return regressor
        other = self._regressor().set_params(structure="multiscale", periods=(YEAR,))
        other.fit(table.inputs, table.outputs())
        return other if criterion(other.model_) < criterion(regressor.model_) - _CLEAR else regressor

    def _conditioned(self, table: Table) -> Filling:
        """The filling of another table, given what it has besides."""
        further = table.without(self._table)
        regressor = self.regressor_
        if not further.missing.all():
            regressor = regressor.conditioned(further.inputs, further.values)
        return Filling.of(regressor, table)


def warn_of_codes(table: Table) -> None:
    """Warn of values that look like codes, with what to do."""
    for code, columns in suspected_codes(table.values).items():
        warnings.warn(
            f"X: {code:g} repeats far from all other values in {[table.names[p] for p in columns]}; if it stands for "
            f"what is missing, say so: missing_values={code:g}",
            UserWarning,
            stacklevel=3,
        )


_CLEAR = 30.0  # nats; the criterion was wrong by up to 15
_DEFAULTS = ("auto", "auto", None, None, None)
_PASSED = {*signature(CorrelatedGPImputer).parameters} - {"periods"}
