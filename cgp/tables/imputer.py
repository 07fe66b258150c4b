"""An imputer in scikit-learn's convention: a table with gaps in, a filled one out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from cgp.functional.threads import threads_for
from cgp.regression import CorrelatedGPRegressor
from cgp.regression.conventions import unchanged_on_error
from cgp.regression.covariances import MultiScale, Structure
from cgp.regression.inference import MAP, Automatic, Inference, Windows
from cgp.regression.inference.censored import LEARNED_ANEW
from cgp.regression.inference.fitting import progress_line, seeded
from cgp.regression.inference.maximum import criterion
from cgp.regression.inference.setting import OF_SUMS
from cgp.regression.solvers.choice import Cost
from cgp.regression.sums import Sums
from cgp.spelling import meant

from .answers import Answers
from .constrained import check_ends, constrained, split_sums
from .cycles import warn_of_cycles
from .filled import FilledTable
from .frames import codes
from .frames.coordinates import YEAR, Axis, offered_periods
from .frames.panels import PanelForm, is_panel
from .frames.spikes import warn_of_spikes
from .frames.table import Table, appended, check_is_table, check_shape, merged, read_table
from .known import known_sums, warn_of_beyond, warn_of_far
from .panel import FilledPanel, Panel, panel_options
from .tails import Tails, few_looks, learned_tails, tail_passes
from .transforms.choice import asked_to_change, check_transforms, chosen_transforms, has_atoms
from .transforms.kinds import Transform

__all__ = ["CorrelatedGPImputer"]

_SMALL = 200  # observations below which uncertain parameters are worth their time
_CLEAR = 30.0  # nats; the criterion was wrong by up to 15
_DRAWN = 20.0  # passes as long as draws that have totals: 12 of 365 rows, 20 of 700 with five columns


class CorrelatedGPImputer(Answers, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fill the gaps of a table from all of its columns, with the uncertainty of the filled values.

    .. math:: y_{ip} \mid \text{what was observed} \;\sim\; N(\mu_{ip}, v_{ip} + \sigma_p^2)

    A column is an output of :class:`.CorrelatedGPRegressor`, the index is its input: times, numbers, or the number of
    the row where there is none; columns can be inputs as well, as latitude and longitude. Rows may be in any order, at
    any distance, and several at one input. What was observed stays as it is; gaps get the mean. Frames and series of
    pandas keep index, columns, order and dtypes; arrays give arrays.

    A *panel* is many tables of one kind, such as patients or days, with one set of parameters: a list of tables, a
    frame whose index is (table, time), or an array ``(tables, steps, columns)``. Each is filled from its own values,
    its times taken from its first row; ``transform`` fills others of the kind, and results have the form of the panel.
    Evidence chooses the kernel, whether rows have means of their own, whether tables vary in scale, and how free the
    covariance is where tables are many and of equal times. The structure is :class:`.MultiScale`.

    Args:
        inputs: columns with the inputs of the rows, by name (of an array: by number); None is the index.
        kernel: as the regressor's.
        structure: as the regressor's; "auto" compares several, and averages. The periods of cycles,
            ``MultiScale(periods=["1D"])``, may be durations, or "day", "week" and "year", and numbers are days where
            the input is a time; "auto" looks for them in long series, and offers a year to two years and more: it is
            taken, with many time scales, where it gains more than 30 nats.
        num_inducing: as the regressor's, for many observations over several inputs.
        inference: as the regressor's; "auto" is "laplace" from 51 to 199 observations, as intervals of sums over gaps
            are too narrow where parameters that so few leave open are taken for known.
        transforms: what makes columns Gaussian, of all or by name (of an array: by number): "log" (of the value plus a
            part of the column's deviation, without which values near 0 would be outliers), "box-cox", "yeo-johnson",
            "logit", "rectified" (for zeros such as no rain, with a probability of their own), an object such as
            :class:`.BoxCox`, or None. Columns that are not named have "auto", and stay as they are with
            ``dict.fromkeys(table) | {"rain": "log"}``. "auto" leaves a column as it is, unless the likelihood of its
            values given those next to them is clearly higher, or it is often 0, never below, and no other of at most
            fifty columns is correlated with it (then "rectified", without known totals). What is filled is the mean.
        missing_values: a number, or several, such as -200, that stand for what is missing, besides NaN.
        random_state: seed of everything random.
        verbose: whether progress is shown; None shows it on a terminal, for fits of more than ten seconds, and says
            elsewhere, on the standard error stream, what a fit of more than a minute is expected to take.

    Attributes:
        regressor_: the fitted :class:`.CorrelatedGPRegressor`; its inputs are days since the first time, for times.
        transforms_: the transform of each column, which the regressor has the transforms of.
        tails_: by class of gap, how errors in it are distributed where that is clearly not as the posterior says, or,
            in a gap of more rows than its series has values, from few looks not known.
        panel_: in its place, the parameters of a panel.
        conformal_: errors on hidden values, which :meth:`.GapReport.calibrated` gives.
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
    _known: FilledTable | FilledPanel | None
    _given: Any  # panel
    _curved: Sums | None = None  # known totals, if one is of a transformed column

    def __init__(
        self,
        *,
        inputs: Any = None,
        kernel: str | Kernel | None = None,
        structure: str | Structure = "auto",
        num_inducing: int | None = None,
        inference: str | Inference = "auto",
        transforms: str | Transform | Mapping[Any, str | Transform | None] | None = "auto",
        missing_values: Any = np.nan,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.inputs = inputs
        self.kernel = kernel
        self.structure = structure
        self.num_inducing = num_inducing
        self.inference = inference
        self.transforms = transforms
        self.missing_values = missing_values
        self.random_state = random_state
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any = None, *, totals: Any = None) -> Self:
        """Learn from what a table has.

        Totals are sums (or means) over intervals that are known besides, as of a meter that is read after a gap: by
        name of column a series of pandas whose index has periods or intervals, exact sums of readings, or a
        :class:`.KnownTotals` with options. Filled values, draws and :meth:`aggregate` have them. A column may have
        totals only. They are for series, that is one input and a Markov kernel, "matern32" if none is given.

        Args:
            X: a frame, a series, or an array ``(n, k)``, or a panel of them; NaN is missing.
            y: not used.
            totals: by name of column, or a frame of columns; NaN is not known. Or any weighted sums of cells, as
                ``cgp.regression.sums.Sums``: their inputs, and the numbers of their columns.

        Returns:
            The imputer.

        Raises:
            ValueError: if a column cannot be used, or a total contradicts what it covers; it is named.

        Warns:
            UserWarning: if a value looks like a code for what is missing, or is so far from its neighbours in a series
                and from its prediction as no other of its column, a column with gaps has one value only, or below ten
                of them and more gaps, or a gap of more rows than it has values, or times repeat, or days and months
                seem to have changed places, or a total reaches over rows before the first or after the last one, which
                are taken for rows without a value, or needs fills far beyond what was observed, or leaves nothing for
                what is missing of a rectified column, or a cycle is visible in a series so short that it is not
                searched for any.
        """
        for name in ("conformal_", "panel_", "regressor_", "tails_", "transforms_"):  # of another table
            if hasattr(self, name):
                delattr(self, name)
        if is_panel(X):
            if totals is not None:
                raise ValueError("totals: expected None for a panel, got totals: fit one table, or each by itself")
            return self._fit_panel(X)
        table = self._read(X, reset=True)
        sums = known_sums(totals, table, self._axis)
        summed = () if sums is None else np.unique(sums.outputs).tolist()
        if sums is not None:
            warn_of_beyond(sums, table)
            warn_of_far(sums, table)
        codes.check_columns(table.values, table.names, summed)
        codes.warn_of_long_gaps(table, summed)
        codes.warn_of_repeats(table, is_time=self._axis.is_time)
        if self._axis.is_time:
            codes.warn_of_swapped_days(self._axis.times(table.given))
        with threads_for(int(table.known.sum())):
            self._learn(table, sums, summed)
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table, given what was fitted to and what the table itself has besides.

        A value that was fitted to, at its input and in its column, counts once. Parameters stay as they are, and so
        does the imputer: :meth:`update` keeps new rows. Rows that have a number only (of an array, or of an index that
        counts from 0) are those of fit if no value differs. Otherwise they are others, at no known place, as in
        cross-validation: each is filled from its own observed values.

        Args:
            X: table with the same columns as in ``fit``, in any order; after the fit of a panel, other tables or one.

        Returns:
            The table with its gaps filled, its columns in the order of the fit.

        Raises:
            ValueError: if X does not fit.

        Warns:
            UserWarning: if new values look like codes or are left out as in fit, or filled ones alone are below 0, or
                many of their 95 % intervals.
        """
        check_is_fitted(self)
        if hasattr(self, "panel_"):
            return self._panel(X).filled() if is_panel(X) else self._panel([X]).filled()[0]
        table = self._read(X, reset=False)
        if not len(table.inputs):
            raise ValueError("X: expected at least one row, got none")
        known = self._filled
        placed = table.placed_in(known.table) if table.is_counted else table
        if placed is None:
            filled = known.filled_apart(table)
            codes.warn_of_negatives(table, known.table.values, table.values_of(filled))
            return filled
        given = known if placed.same_observations(known.table) else self._conditioned(placed)
        codes.warn_of_negatives(table, known.table.values, given.moments[0], given.lower)
        return table.filled(given.moments[0])

    def update(self, rows: Any) -> Self:
        """Take in further rows of the table; parameters stay as they are.

        Rows of a series that are not before its latest one take a time that does not grow with the past; gaps before
        them are filled anew when they are asked for. A reading that comes twice counts twice, as in fit.

        Args:
            rows: of the same columns as in fit; those of an array follow its last row. Of a panel: further tables.

        Returns:
            The imputer.

        Raises:
            ValueError: if the rows do not fit.

        Warns:
            UserWarning: if values look like codes for what is missing, are left out as fit leaves them out, or are at
                times that have one.
        """
        check_is_fitted(self)
        if hasattr(self, "panel_"):
            self._given = PanelForm.split(self._given)[0].followed(self._given, rows)
            self._known = self._panel(self._given)
            return self
        table = self._read(rows, reset=False, first=sum(len(part.inputs) for part in self._parts))
        if table.is_counted and hasattr(rows, "iloc"):
            raise ValueError(
                "rows: expected an index that says where they are, got one that counts from 0 again: "
                "rows.set_axis(range(first, last + 1)), or times"
            )
        self._warn_of_strangers(table)
        codes.warn_of_repeats(table, self._parts, is_time=self._axis.is_time)
        regressor, before = self.regressor_, len(self.regressor_.gross_errors_)
        if not table.missing.all():
            regressor = regressor.conditioned(table.inputs, self.transforms_.forward(table.values))
            table = table._replace(left_out=regressor.gross_errors_[before:])
        self._parts, self._known, self.regressor_ = appended(self._parts, table), None, regressor
        return self

    def estimate(self, X: Any, *, totals: Any = None) -> Cost:
        """What a fit to a table is expected to take, without fitting.

        Args:
            X: as in :meth:`fit`.
            totals: likewise.

        Returns:
            Seconds of one core, within a factor of about one and a half, and bytes of memory.

        Raises:
            ValueError: if the table or an argument cannot be used.
        """
        if is_panel(X):
            raise ValueError("X: expected one table, got a panel, whose fit takes a minute or two")
        other = clone(self)
        table = other._read(X, reset=True)
        sums = known_sums(totals, table, other._axis)
        summed = () if sums is None else np.unique(sums.outputs).tolist()
        check_transforms(self.transforms, table, summed)
        curved = asked_to_change(self.transforms, table, summed)
        linear = None if sums is None else sums.without(curved)
        other._curved = sums if curved else None
        again = LEARNED_ANEW if linear is None and has_atoms(self.transforms, table, summed) else 1.0
        besides = tail_passes(table) if sums is None else _DRAWN / again if curved else 0.0
        passes = 1.0 + besides  # errors of observations, and hidden blocks or draws, for which nothing is learned again
        cost = other._regressor().estimate(table.inputs, table.outputs(), totals=linear, passes=passes)
        return cost._replace(seconds=again * cost.seconds)

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
    def _filled(self) -> Any:
        """The table, or panel, and what is known of it, computed on first use."""
        check_is_fitted(self)
        if self._known is None:
            self._known = self._given_by(self.regressor_, self._table)
        return self._known

    def _read(self, X: Any, *, reset: bool, first: int = 0) -> Table:
        """A table as numbers; in fit, its axis is kept."""
        check_is_table(X)
        if hasattr(X, "iloc"):
            X = X if reset else self._in_order(X)
            self._check_names(X if hasattr(X, "columns") else X.to_frame(), reset=reset)
        else:
            if reset:
                check_shape(X)
            options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
            X = validate_data(self, X, reset=reset, **options)
        table, axis = read_table(X, self.inputs, self.missing_values, axis=None if reset else self._axis, first=first)
        if reset:
            self._axis: Axis = axis
        return table

    def _in_order(self, X: Any) -> Any:
        """A frame with its columns in the order of the fit, if they are the same."""
        names = [*getattr(self, "feature_names_in_", [])]
        has_all = hasattr(X, "columns") and X.columns.is_unique and {*X.columns} == {*names}
        return X[names] if has_all and [*X.columns] != names else X

    def _check_names(self, frame: Any, *, reset: bool) -> None:
        """Keep the names of columns, or refuse others."""
        try:
            validate_data(self, frame, reset=reset, skip_check_array=True)
        except ValueError:
            names = [*getattr(self, "feature_names_in_", [])]
            strange = [name for name in frame if name not in names]
            if reset or not names:
                raise
            raise ValueError(
                f"X: expected the columns of the fit, {names}, got {[*frame]}{meant(strange, names)}"
            ) from None

    def _learn(self, table: Table, sums: Sums | None, summed: Sequence[int]) -> None:
        """Fit to a table and to sums of some of its columns."""
        self.transforms_ = chosen_transforms(self.transforms, table, summed)
        linear, self._curved = split_sums(sums, self.transforms_)
        if self._curved is not None:
            self._regressor().estimate(table.inputs, table.outputs(), totals=sums)  # refuses what is no series
            check_ends(self._curved, table, self.transforms_)
        transformed = table._replace(values=self.transforms_.forward(table.values))
        if self._may_get_cycles:
            warn_of_cycles(table.inputs, transformed.values, is_time=self._axis.is_time)
        self.regressor_ = self._fitted(transformed, linear)
        self._parts, self._known = [table._replace(left_out=self.regressor_.gross_errors_)], None
        self.tails_ = self._learned_tails()
        self._warn_of_errors()

    def _fit_panel(self, X: Any) -> Self:
        """Learn the parameters of many tables, and fill each."""
        form, parts = PanelForm.split(X)
        tables = self._tables(form, parts, reset=True)
        codes.check_columns(np.concatenate([table.values for table in tables]), tables[0].names)
        structure, kernel = panel_options(self, self._axis)
        with progress_line("fit of a panel", shown=bool(self.verbose)) as progress, seeded(self.random_state) as seed:
            self.panel_ = Panel.fit(tables, structure, kernel, seed, progress)
        self._given, self._known = X, self.panel_.filled(tables, self._axis, form)
        return self

    def _panel(self, X: Any) -> FilledPanel:
        """Tables of the kind that was fitted to, filled."""
        form, parts = PanelForm.split(X)
        return self.panel_.filled(self._tables(form, parts, reset=False), self._axis, form)

    def _tables(self, form: PanelForm, parts: list[Any], *, reset: bool) -> list[Table]:
        """The tables of a panel as numbers."""
        if not parts:
            raise ValueError("X: expected at least one table, got none")
        tables: list[Table] = []
        for label, part in zip(form.labels, parts, strict=True):
            try:
                tables.append(self._read(part, reset=reset and not tables))
            except ValueError as error:
                raise ValueError(f"table {label!r}: {error}") from error
        return tables

    def _fitted(self, table: Table, sums: Sums | None) -> CorrelatedGPRegressor:
        """The regressor, or that of many time scales and a year's cycle, if its criterion is far better."""
        # Days and weeks are left to cgp.assess_gaps: on ten days of sensors with a cycle of a day the criterion was
        # better by 80 nats, and the filled values sometimes better and sometimes too sure.
        regressor = self._regressor().fit(table.inputs, table.outputs(), totals=sums, lower=self.transforms_.atoms)
        if not (self._may_get_cycles and self._axis.is_time) or regressor.structure_ == MultiScale.name:
            return regressor
        if YEAR not in offered_periods(table.inputs[:, 0], int(np.sum(~table.missing))):
            return regressor
        other = self._regressor().set_params(structure=MultiScale(periods=[YEAR]), inference="auto")
        other.fit(table.inputs, table.outputs(), totals=sums, lower=self.transforms_.atoms)
        return other if criterion(other.model_) < criterion(regressor.model_) - _CLEAR else regressor

    @property
    def _may_get_cycles(self) -> bool:
        """Whether nothing that was asked for is in the way of cycles."""
        is_point = self.inference in ("auto", "map") or type(self.inference) in (Automatic, MAP)
        return is_point and self.structure == "auto" and self.kernel is None and self.num_inducing is None

    def _regressor(self) -> CorrelatedGPRegressor:
        options = {name: getattr(self, name) for name in signature(CorrelatedGPRegressor).parameters}
        if isinstance(self.structure, MultiScale):
            periods = self._axis.periods(self.structure.periods)
            options["structure"] = replace(self.structure, periods=periods)
        if self.kernel is None and self._curved is not None:
            options["kernel"] = OF_SUMS
        if self.inference == "auto":
            options["inference"] = Automatic(laplace_below=_SMALL)
        return CorrelatedGPRegressor(**options)

    def _conditioned(self, table: Table) -> FilledTable:
        """Another table, filled given what it has besides."""
        further, regressor = table.without(self._table), self.regressor_
        if not further.missing.all():
            self._warn_of_strangers(further)
            regressor = regressor.conditioned(further.inputs, self.transforms_.forward(further.values))
        return self._given_by(regressor, table)

    def _given_by(self, regressor: CorrelatedGPRegressor, table: Table) -> FilledTable:
        """A table beside what a regressor of the transforms says of it."""
        if self._curved is not None:
            return FilledTable(table, self._axis, constrained(regressor.posterior_, self.transforms_, self._curved))
        posterior = self.tails_.scaled(regressor.posterior_, table)
        return FilledTable(table, self._axis, self.transforms_.undone(posterior), self.tails_.freedoms(table))

    def _learned_tails(self) -> Tails:
        """The distributions of errors in gaps, where parameters are points and nothing but the table is known."""
        regressor, table = self.regressor_, self._table
        has_totals = regressor.model_.totals or self._curved
        if regressor.inference_ not in (MAP.name, Windows.name) or self.num_inducing or has_totals:
            return Tails({})
        values = np.where(table.known, self.transforms_.forward(table.values), np.nan)
        fitted = table._replace(values=values)
        tails = learned_tails(regressor.posterior_, fitted, self.transforms_.atoms)
        return tails._replace(few=few_looks(regressor.posterior_, fitted))

    def _with_structure(self, structure: str) -> Self:
        """The imputer with one of the structures that were compared, instead of their average."""
        other = copy(self)
        other.regressor_ = self.regressor_.with_structure(structure)
        other.tails_ = other._learned_tails()
        return other

    def _warn_of_strangers(self, table: Table) -> None:
        """Warn of new values that look like codes, where they are not left out."""
        if self.regressor_.structure_ != MultiScale.name:
            known = self._table.values
            seen = np.flatnonzero(~np.isnan(known).all(axis=0))
            codes.warn_of_strangers(table.values[:, seen], known[:, seen], [table.names[p] for p in seen])

    def _warn_of_errors(self) -> None:
        """Warn of single values that nothing else expects, and of columns that are quiet and then loud."""
        table = self._filled.table
        if table.inputs.shape[1] == 1 and not codes.suspected_codes(table.values):
            warn_of_spikes(self._filled.spikes, table)
            order = np.argsort(table.inputs[:, 0], kind="stable")
            is_auto = isinstance(self.transforms, Mapping) or self.transforms == "auto"  # of columns that are not named
            errors, labels = self._filled.errors()[order], table.labels(0)[order]
            values = table.values[order]
            values[:, self.transforms_.changed] = np.nan
            codes.warn_of_uneven_errors(errors, table.names, labels, values=values, is_auto=is_auto)
