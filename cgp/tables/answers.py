"""What a fitted imputer is asked for: intervals, draws, sums, what follows, errors, pictures, and to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cgp.regression.covariances.structure import check_count

from .filled import Forecast, Interval, titled
from .frames.copies import copies_of, said_copies
from .frames.spikes import said_spikes
from .storage import read_imputer, write_imputer
from .totals import Aggregate

__all__ = ["Answers"]


class Answers:
    """The answers of an imputer, read from the table, or panel, that it has filled."""

    regressor_: Any
    transforms_: Any
    _axis: Any

    @property
    def _filled(self) -> Any:
        """The table, or panel, and what is known of it."""
        raise NotImplementedError

    @property
    def std_(self) -> Any:
        """The standard deviation of every filled value, 0 for observed values."""
        return self._filled.std()

    def interval(self, level: float = 0.95, *, method: str = "gaussian") -> Interval:
        r"""Central intervals of the readings that are missing.

        .. math:: \mu_{ip} \pm q\, s_{ip}

        "gaussian" trusts the distributions: q is the normal quantile, or a scaled one of Student's t in gaps of a class
        in which values hidden from a long series are clearly so distributed, and in gaps of more rows than a series has
        values, if parameters are not averaged over (``tails_``); draws and sums have their standard deviations, and are
        Gaussian. "conformal" measures q on hidden blocks, by class of the gap's length (:class:`.Conformal`): if a gap
        and the hidden blocks of its class are exchangeable, and the fit is as good as those were, a value drawn at
        random from the gap is inside with at least that probability, however wrong the model is. That is true on
        average over gaps, not in each one, nor for all values of a gap at once. At 95 % it takes 19 blocks; with fewer
        the bounds are infinite, and a warning says how many there are.

        Args:
            level: between 0 and 1.
            method: "gaussian" or "conformal".

        Returns:
            Lower and upper ends in the form of the table; both are the value where it was observed.

        Raises:
            ValueError: if ``level`` or ``method`` is invalid, or there are no hidden blocks.

        Warns:
            UserWarning: if there are too few hidden blocks of a class of gaps.
        """
        return self._filled.interval(level, method, getattr(self, "conformal_", None))

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
        check_count("count", count, 1)
        return self._filled.draws(count, random_state)

    def aggregate(
        self,
        by: Any = None,
        how: str = "sum",
        *,
        weights: Any = None,
        include_noise: bool = True,
        steps: Any = 0,
        level: float | None = None,
    ) -> Aggregate:
        r"""Sums or means of each column, with the standard errors that the gaps leave them.

        .. math:: \sum_{i \in O} w_i y_i + w_M^\top\mu_M, \qquad w_M^\top(C_M + \sigma^2 I)w_M

        They are exact over gaps of any shape, in time that is linear in the rows of a series. By default it is readings
        that are summed: those that were observed (O) have no error, those that are missing (M) that of a reading, noise
        included. A sum that lacks rows, also those of its first and last period beyond the table, is NaN until they are
        added, as by ``frame.asfreq("h")``; a mean is of the rows that are there, and its error NaN.
        ``weights=np.ones(len(frame))`` sums what is there. ``aggregate("month")["ozone"]`` has the parts of a column.

        Args:
            by: what is summed together: "hour", "day", "week", "month", "quarter" or "year" (or "months"), a frequency
                of pandas ("3h"; "MS" is "month", and "ME" dates months by their last day), or a label for each row (a
                series by its index); None is the whole table, each one of a panel.
            how: "sum", or "mean": the sum divided by that of the weights.
            weights: of each row, ``(n,)``, or of each value, ``(n, P)``, those of pandas by their labels; None is 1.
            include_noise: False for sums of the functions beneath the readings, in which every row is uncertain.
            steps: how many rows that follow the last one, or what span, as in :meth:`forecast`, are in the sums: a
                month's total before the month is over. Labels and weights are then of these rows, too.
            level: of central intervals, such as 0.95: normal ones; of transformed columns, whose sums may be skewed,
                quantiles of thousands of joint draws.

        Returns:
            Sums or means (``value``) and their standard errors (``std``), a row for each bin; with a level also the
            ends of their intervals, ``lower`` and ``upper``.

        Raises:
            ValueError: if an argument does not fit.

        Warns:
            UserWarning: without weights, if rows are absent; where rows are at irregular distances, if those of the
                first or last period are of a part of it, or sums are of fewer rows in some periods.
        """
        return self._filled.aggregate(by, how, weights, level, include_noise=include_noise, steps=steps)

    def forecast(self, steps: Any, level: float = 0.95) -> Forecast:
        """Readings after the last row of a table of one input.

        Intervals are "gaussian" ones (:meth:`interval`): those that were measured are of hidden blocks, which have
        neighbours on both sides.

        Args:
            steps: how many rows, at the frequency of the index, or else at the median distance of its rows; of times
                also a span, "2D" or a timedelta, of which whole rows are taken.
            level: of the intervals, between 0 and 1.

        Returns:
            Mean, standard deviation and the ends of central intervals, with the index that follows; ``to_frame()`` has
            them in one frame.

        Raises:
            ValueError: if the table has several inputs, there are too few steps, or ``level`` is invalid.

        Warns:
            UserWarning: if forecast values alone are below 0, or many of their 95 % intervals.
        """
        return self._filled.forecast(steps, level)

    def residuals(self) -> Any:
        r"""Standardised errors of every observed value, predicted from all others, with the parameters as they are.

        .. math:: \frac{y_{ip} - \mu_{-ip}}{s_{-ip}}

        Where the fit is good 95 % are within ± 1.96, and they have no pattern. Those of a rectified column's zeros do:
        its values below 0 are not known, and zeros stand for them.

        Returns:
            In the form of the table, NaN where nothing was observed, and at gross errors that a long series leaves
            out.
        """
        return self._filled.table.framed(self._filled.errors())

    def plot(
        self,
        figure: Any = None,
        *,
        columns: Any = None,
        between: tuple[Any, Any] | None = None,
        level: float = 0.95,
        units: Mapping[Any, str] | None = None,
    ) -> list[Any]:
        """Draw the gaps of the table, a row for each column, and each column that has some with its filled values.

        A column that is filled by its logarithm has a logarithmic axis. Titles have the units that are given, or that a
        file's row of units says (``frame.attrs["units"]``).

        Args:
            figure: of matplotlib, to draw in; None is a new one.
            columns: names of those that are drawn (of an array: numbers), with gaps or without; None is all.
            between: the first and the last time that are shown, such as ``("2024-03", "2024-05")``, or number.
            level: of the intervals, between 0 and 1.
            units: of columns, such as ``{"ozone": "ppb"}``.

        Returns:
            The axes: the map of gaps, then one of each column with gaps, or of all if there are none; over two inputs,
            which are no times, maps of these columns. ``axes[0].figure.savefig("gaps.png")`` keeps them.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if there is no such column or level, or no row in between.
        """
        return self._filled.plot(figure, columns, between, level, units)

    def summary(self) -> str:
        """What was learned, in words: a line for each column, how well the fit ended, and how structures compare.

        Columns are alike over their lengthscales, in units of the index: gaps much longer than the longest are filled
        by the mean and by other columns. The noise of a reading is in the column's unit, or in that of its transform.
        Correlations are as in :meth:`plot_pairs`.

        Returns:
            Several lines.

        Raises:
            ValueError: if a panel was fitted to.
        """
        check_is_fitted(self)
        if not hasattr(self, "regressor_"):
            raise ValueError("summary: expected one table, got a panel: fit one alone for this")
        table, regressor = self._filled.table, self.regressor_
        units = getattr(table.given, "attrs", {}).get("units", {})
        names = [str(name) for name in table.names]
        noises = [f" {units[name]}" if name in units else "" for name in names]
        for p in self.transforms_.changed:
            if not self.transforms_.kinds[p].has_atom:  # of which the values above its end are as they are
                noises[p] = f" in {self.transforms_.told(p).partition(', never')[0]}"
        titles = titled(names, table.given)
        lines = regressor._parameters.sentences(titles, noises, self._axis.spelled, names)
        if spikes := self._filled.spikes:
            lines.append(f"far from what all other values lead to expect: {said_spikes(spikes, table)}")
        lines += said_copies(copies_of(np.where(table.known, table.values, np.nan)), names)
        return "\n".join([*lines, regressor._fit_in_words(), *regressor._criteria_in_words()])

    def plot_pairs(self, ax: Any = None) -> Any:
        """Draw the correlation of every pair of columns, once, and how far each is behind the first.

        It is that of the functions beneath the readings, without their noise and after the transforms, so mostly
        farther from 0 than that of the readings, ``DataFrame.corr``.

        Args:
            ax: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        names = [str(name) for name in self._filled.table.names]
        from cgp.plotting import pair_correlations

        lags = self._axis.described(self.regressor_.delays_[0, :, 0]) if len(self._axis.columns) < 2 else None
        ax = pair_correlations(self.regressor_.correlation_, names=names, lags=lags, ax=ax)
        ax.set_title(
            "correlation of columns,\nwithout noise" + ", after transforms" * bool(self.transforms_.changed),
            loc="left",
            fontsize=8,
        )
        return ax

    def plot_residuals(self, figure: Any = None) -> list[Any]:
        """Draw the standardised errors of every observed value, a panel, or map, for each column (:meth:`residuals`).

        Args:
            figure: of matplotlib, to draw in; None is a new one.

        Returns:
            The axes, one of each column.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        errors, table = self._filled.errors(), self._filled.table
        from cgp.plotting import residual_maps, residual_panels

        names = [str(name) for name in table.names]
        if self._axis.is_place(table.inputs):
            places, labels, degrees = self._axis.mapped(table.inputs)
            return residual_maps(places, errors, names=names, labels=labels, degrees=degrees, figure=figure)
        x, label = self._axis.drawn(table.given, table.inputs)
        return residual_panels(x, errors, names=names, xlabel=label, figure=figure)

    def save(self, folder: str | Path) -> None:
        """Write the imputer to a folder, with the table that it knows, as safetensors and JSON.

        Args:
            folder: is made if it is not there; an imputer that was saved in it before is replaced, never in part.

        Raises:
            ValueError: if it is a file, the kernel is an object, or a name of a column is neither text nor a number.
            OSError: if it cannot be written.
        """
        check_is_fitted(self)
        write_imputer(self, folder)

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
        return read_imputer(cls, folder)
