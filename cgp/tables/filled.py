"""What a posterior says about a table: its gaps filled, intervals, joint draws, sums, forecasts, errors, a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.comparisons import student_reach
from cgp.regression import Posterior
from cgp.regression.covariances.structure import check_count
from cgp.spelling import meant

from .conformal import Conformal, check_level, gap_labels
from .constrained import ConstrainedPosterior
from .frames.beside import beside, column_of, is_name, one_frame
from .frames.codes import warn_of_negatives
from .frames.periods import days_of
from .frames.spikes import spikes_of
from .frames.table import merged
from .totals import (
    Aggregate,
    bins_of,
    checked_weights,
    counted_absent,
    ends_of,
    shares_of,
    totals_of,
)
from .transforms.columns import TransformedPosterior, Transforms, ValueScores
from .transforms.kinds import BoxCox

if TYPE_CHECKING:
    from .frames.coordinates import Axis
    from .frames.table import Table

__all__ = ["FilledTable", "Forecast", "Interval", "rows_within", "titled"]

_FAR = 1e6  # ranges of the inputs
_NUMERIC_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}.*")  # whose day may be its month
_WHOLE = 1e-6  # rows by which a span of time may be short of a whole number of them

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """Central intervals of readings.

    Attributes:
        lower: in the form of the table.
        upper: likewise.
    """

    lower: Any
    upper: Any

    def __repr__(self) -> str:
        return beside(self)

    def __getitem__(self, key: Any) -> Any:
        """The parts of a column beside each other, by its name; by number, those of the tuple."""
        return column_of(self, key) if is_name(key) else tuple.__getitem__(self, key)


class Forecast(NamedTuple):
    """Predicted readings after the end of a table.

    Attributes:
        value: their means, in the form of the table, with the rows that follow it.
        std: their standard deviations.
        lower: lower ends of central intervals.
        upper: upper ends.
    """

    value: Any
    std: Any
    lower: Any
    upper: Any

    def __repr__(self) -> str:
        return beside(self)

    def __getitem__(self, key: Any) -> Any:
        """The parts of a column beside each other, by its name; by number, those of the tuple."""
        return column_of(self, key) if is_name(key) else tuple.__getitem__(self, key)

    def to_frame(self) -> Any:
        """All parts as one frame of pandas, as ``cgp fill --forecast`` writes them: ``to_frame().to_csv("next.csv")``.

        Returns:
            Columns "ozone", "ozone std", "ozone lower" and "ozone upper" of each; a row for each that follows.

        Raises:
            ValueError: if the table was an array.
        """
        return one_frame({"": self.value, " std": self.std, " lower": self.lower, " upper": self.upper})


@dataclass(frozen=True, eq=False)
class FilledTable:
    """A table beside what fills it: a posterior given the table, or means and standard deviations.

    Attributes:
        table: n rows, P columns.
        axis: of the table.
        posterior: of the columns, in the user's units; None where only :attr:`moments` are known.
        freedom: degrees of freedom of the values in gaps, or of their transforms, ``(n, P)``; infinite for Gaussians.
    """

    table: Table
    axis: Axis
    posterior: Posterior | TransformedPosterior | None = None
    freedom: Array | float = np.inf

    @classmethod
    def of_moments(cls, table: Table, axis: Axis, mean: Array, sd: Array) -> Self:
        """A table filled by means, with standard deviations, ``(n, P)`` each."""
        filled = cls(table, axis)
        vars(filled)["moments"] = mean, sd
        return filled

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Means of missing values, and observed values; standard deviations, 0 for observed values; ``(n, P)`` each."""
        return self._in_gaps(self._posterior.marginals)

    def scored(self, truth: Array) -> ValueScores:
        """Scores of the predictions of missing values whose true ones are ``(n, P)``; NaN where that is NaN."""
        return self._transforms.scores(np.where(self.table.missing, truth, np.nan), *self._gaussian, self.freedom)

    def filled_apart(self, table: Table) -> Any:
        r"""Another table, whose rows are at no known input: each filled from its own observed values only.

        .. math:: \mu_M + C_{MO} C_{OO}^{-1} (y_O - \mu_O)

        with the mean and the covariance of a row of readings so far from all others that they say nothing about it.

        Args:
            table: of the same columns.

        Returns:
            The other table with its gaps filled.
        """
        inputs, transforms = self.table.inputs, self._transforms
        far = inputs.max(axis=0) + _FAR * np.maximum(np.ptp(inputs, axis=0), 1.0)
        centres, covariances = self._latent.covariance(far[None])
        centre, covariance = centres[0], covariances[0, :, 0]
        mean, sd, gaps = transforms.forward(table.values), np.zeros(table.values.shape), table.missing
        for pattern in np.unique(gaps[gaps.any(axis=1)], axis=0):
            rows, seen = (gaps == pattern).all(axis=1), ~pattern
            across = covariance[np.ix_(seen, pattern)]
            weights = np.linalg.solve(covariance[np.ix_(seen, seen)], across)
            mean[np.ix_(rows, pattern)] = centre[pattern] + (mean[np.ix_(rows, seen)] - centre[seen]) @ weights
            sd[np.ix_(rows, pattern)] = np.sqrt((covariance.diagonal()[pattern] - (across * weights).sum(0)).clip(0.0))
        return table.filled(transforms.moments(mean[None], sd[None]).mean if transforms.changed else mean)

    def filled(self) -> Any:
        """The table with the means in its gaps, as it was given."""
        return self.table.filled(self.moments[0])

    def std(self) -> Any:
        """The standard deviations, in the form of the table."""
        return self.table.framed(self.moments[1])

    def interval(self, level: float, method: str, conformal: Conformal | None) -> Interval:
        """Central intervals, "gaussian" or "conformal"; both ends are the value where it was observed."""
        check_level(level)
        return Interval(*map(self.table.framed, self._ends(level, method, conformal)))

    def lower(self) -> Array:
        """The lower ends of 95 % intervals, ``(n, P)``."""
        return self._ends(0.95)[0]

    def plot(
        self,
        figure: Any = None,
        columns: Any = None,
        between: tuple[Any, Any] | None = None,
        level: float = 0.95,
        units: Mapping[Any, str] | None = None,
    ) -> list[Any]:
        """Draw the gaps of the table, and each column with its filled values; places as maps."""
        from cgp.plotting import filled_maps, filled_table

        check_level(level)
        table, axis, kinds = self.table, self.axis, self._transforms.kinds
        shown, rows = _chosen_columns(columns, table), _rows_between(between, table, axis)
        cells = np.ix_(rows, np.array(shown))
        mean, sd, missing = (each[cells] for each in (*self.moments, table.missing))
        names = [str(table.names[p]) for p in shown]
        every = titled(table.names, table.given, units)
        titles = [every[p] for p in shown]
        if axis.is_place(table.inputs):
            places, labels, degrees = axis.mapped(table.inputs)
            options: dict[str, Any] = {"names": titles, "labels": labels, "degrees": degrees, "figure": figure}
            return filled_maps(places[rows], mean, sd, missing, is_every=columns is not None, **options)
        x, label = axis.drawn(table.given, table.inputs)
        is_plain = not self._transforms.changed and np.isinf(self.freedom).all() and level == 0.95
        ends = None if is_plain else tuple(end[cells] for end in self._ends(level))
        options = {"ends": ends, "is_every": columns is not None, "level": level, "xlabel": label, "figure": figure}
        logs = [
            kind.shift if isinstance(kind, BoxCox) and kind.power == kind.lower == 0.0 else None
            for kind in (kinds[p] for p in shown)
        ]
        return filled_table(x[rows], mean, sd, missing, names=names, titles=titles, logarithmic=logs, **options)

    def draws(self, count: int, random_state: Any) -> list[Any]:
        """Filled tables whose gaps are drawn together, as readings."""
        gaps = self.table.missing
        rows, outputs = np.nonzero(gaps)
        values = np.repeat(self.table.values[None], count, axis=0)
        if len(rows):
            inputs = self.table.inputs[rows]
            values[:, gaps] = self._posterior.draw_at(inputs, outputs, count, random_state, include_noise=True)
        return [self.table.filled(each) for each in values]

    def aggregate(
        self, by: Any, how: str, weights: Any, level: float | None, *, include_noise: bool, steps: Any = 0
    ) -> Aggregate:
        """Sums or means of each column, "sum" or "mean", with the standard errors that the gaps leave them."""
        if steps != 0:
            later, _ = _rows_ahead(self.table, self.axis, steps)
            ahead = replace(self, table=merged([self.table, later]))
            return ahead.aggregate(by, how, weights, level, include_noise=include_noise)
        _check_asked(how, level, include_noise=include_noise)
        shares = checked_weights(weights, self.table)
        times = self.axis.times(self.table.given)
        bins = bins_of(by, self.table, times)
        absent = np.zeros(len(bins.labels), dtype=np.int64)
        if weights is None and times is not None:
            absent = counted_absent(self.table, bins, by, how, times)
        if how == "mean":
            shares = shares_of(bins, shares)
        moments = totals_of(self._posterior, self.table, bins, shares, include_noise=include_noise)
        ends = () if level is None else ends_of(self._posterior, self.table, bins, shares, moments, level)
        lacks = absent[:, None] > 0  # a mean is then of the rows that are there, a sum is no total
        parts = [np.where(lacks, np.nan, part) for part in (*moments, *ends)]
        parts[0] = moments[0] if how == "mean" else parts[0]
        value, std, *framed = (self.table.framed(part, bins.labels) for part in parts)
        lower, upper = framed or (None, None)
        return Aggregate(value, std, lower, upper, self.table.labelled(absent, bins.labels))

    def forecast(self, steps: Any, level: float) -> Forecast:
        """Readings after the last row of a table of one input, with Gaussian intervals."""
        check_level(level)
        later, labels = _rows_ahead(self.table, self.axis, steps)
        ahead = replace(self, table=later, freedom=np.inf)
        warn_of_negatives(later, self.table.values, ahead.moments[0], ahead.lower, "forecast value")
        return Forecast(*(later.framed(part, labels) for part in (*ahead.moments, *ahead._ends(level))))

    def errors(self) -> NDArray[np.float64]:
        """Standardised errors of observed values, predicted from all others, NaN where there is none, ``(n, P)``."""
        mean, sd = self._left_out
        return (self._transforms.forward(self.table.values) - mean) / sd

    @cached_property
    def spikes(self) -> dict[tuple[int, int], float]:
        """What the others lead to expect in place of a value of a series that stands alone, by row and column."""
        if self.table.inputs.shape[1] != 1:
            return {}
        seen = np.where(self.table.known, self.table.values, np.nan)
        found = spikes_of(self.errors(), seen, self.table.inputs[:, 0])
        expected = self._transforms.inverse(self._left_out[0]) if found else seen
        return {cell: float(expected[cell]) for cell in found}

    @cached_property
    def _left_out(self) -> tuple[Array, Array]:
        """Means and standard deviations of observed values, or their transforms, given all others, ``(n, P)`` each."""
        observed = self.table.known
        mean, sd = np.full((2, *observed.shape), np.nan)
        moments = self._latent.leave_one_out()
        known = ~np.isnan(moments[0])  # rows without a value need not be there: both sides are read in the same order
        for part, moment in zip((mean, sd), moments, strict=True):
            part[observed] = moment[known][: observed.sum()]  # what totals settle comes after
        return mean, sd

    @property
    def _posterior(self) -> Posterior | TransformedPosterior:
        assert self.posterior is not None
        return self.posterior

    @property
    def _transforms(self) -> Transforms:
        """The transforms of the columns."""
        posterior = self.posterior
        return (
            posterior.transforms if isinstance(posterior, TransformedPosterior) else Transforms.none(self.table.names)
        )

    @property
    def _latent(self) -> Posterior:
        """The posterior of the transforms, or of the columns."""
        posterior = self._posterior
        return posterior.latent if isinstance(posterior, TransformedPosterior) else posterior

    @cached_property
    def _gaussian(self) -> tuple[Array, Array]:
        """The moments of the transforms, or of the columns."""
        if isinstance(self.posterior, ConstrainedPosterior):
            return self._in_gaps(self.posterior.gaussian)
        return self._in_gaps(self._latent.marginals) if self._transforms.changed else self.moments

    def _ends(self, level: float, method: str = "gaussian", conformal: Conformal | None = None) -> tuple[Array, Array]:
        """The ends of intervals, ``(n, P)`` each."""
        (mean, sd), transforms = self._gaussian, self._transforms
        reach = student_reach(self._factors(level, method, conformal), self.freedom) * sd
        if not transforms.changed:
            return mean - reach, mean + reach
        low, high = (transforms.inverse(end) for end in (mean - reach, mean + reach))
        missing, values = self.table.missing, self.table.values
        return np.where(missing, low, values), np.where(missing, high, values)

    def _in_gaps(self, marginals: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array]:
        """Values, with means in the gaps, and standard deviations, 0 where there is no gap, ``(n, P)`` each."""
        mean, sd, gaps = self.table.values.copy(), np.zeros_like(self.table.values), self.table.missing
        rows = gaps.any(axis=1)
        if rows.any():
            mean[gaps], sd[gaps] = (part[gaps[rows]] for part in marginals(self.table.inputs[rows]))
        return mean, sd

    def _factors(self, level: float, method: str, conformal: Conformal | None) -> Array | float:
        """Quantiles of the normal distribution."""
        if method == "gaussian":
            return float(norm.ppf(0.5 + level / 2))
        if method != "conformal":
            raise ValueError(f"method: expected 'gaussian' or 'conformal', got {method!r}")
        if conformal is None:
            raise ValueError(
                "method: expected 'gaussian', since no blocks were hidden: cgp.assess_gaps(table).best() has "
                "conformal intervals"
            )
        return conformal.factors(gap_labels(self.table.inputs, self.table.missing), level)


def titled(names: Sequence[Any], given: Any, units: Mapping[Any, str] | None = None) -> list[str]:
    """Names of columns with their units.

    Args:
        names: of the columns.
        given: their table; a frame may have units in its ``attrs``.
        units: by name, besides these.

    Returns:
        A title for each.

    Raises:
        ValueError: if a unit is of no column.
    """
    texts, asked = [str(name) for name in names], {str(name): unit for name, unit in (units or {}).items()}
    if strange := [name for name in asked if name not in texts]:
        raise ValueError(f"units: expected units by name of columns, {texts}, got {strange}{meant(strange, texts)}")
    known = getattr(given, "attrs", {}).get("units", {}) | asked
    return [f"{name} ({known[name]})" if name in known else name for name in texts]


def _check_asked(how: str, level: float | None, *, include_noise: bool) -> None:
    """Refuse sums that are none, and intervals of what is no reading."""
    if how not in ("sum", "mean"):
        raise ValueError(f"how: expected 'sum' or 'mean', got {how!r}")
    if level is None:
        return
    check_level(level)
    if not include_noise:
        raise ValueError(f"level: expected None where include_noise=False, as intervals are of readings, got {level}")


def _chosen_columns(columns: Any, table: Table) -> list[int]:
    """Numbers of columns, by name or, of an array, by number; all for None."""
    keys = list(table.keys)
    asked = keys if columns is None else [columns] if isinstance(columns, str | int) else list(columns)
    absent = [name for name in asked if name not in keys]
    if absent or not asked:
        raise ValueError(f"columns: expected some of {keys}, got {absent or asked}{meant(absent, keys)}")
    return [keys.index(name) for name in asked]


def _rows_between(between: Any, table: Table, axis: Axis) -> NDArray[np.int64]:
    """Numbers of the rows from one time, or number, to another, both included; a month is all of it; all for None."""
    rows = np.arange(len(table.inputs))
    if between is None:
        return rows
    times, what = axis.times(table.given), "(first, last), " + ("times" if axis.is_time else "numbers")
    if table.inputs.shape[1] > 1 or not isinstance(between, tuple | list) or len(between) != 2:
        what = "None over several inputs" if table.inputs.shape[1] > 1 else what
        raise ValueError(f"between: expected {what}, got {between!r}")
    (first, last), read = between, ""
    if times is not None and (unclear := [end for end in between if _NUMERIC_DATE.fullmatch(str(end))]):
        raise ValueError(f"between: expected times such as '2022-03-05', got {unclear[0]!r}: day or month first?")
    try:
        if times is None:
            x = axis.drawn(table.given, table.inputs)[0]
            found = rows[(x >= first) & (x <= last)]
        else:
            import pandas as pd

            found = np.sort(pd.Series(rows, index=times).sort_index().loc[first:last])
            read = f", read as {_as_read(first)} to {_as_read(last)}"
    except (TypeError, ValueError) as error:
        raise ValueError(f"between: expected {what}, got {between!r}") from error
    if not len(found):
        if _is_after(first, last, is_time=times is not None):
            what = f"the first before the last, ({last!r}, {first!r}),"
            raise ValueError(f"between: expected {what} got {between!r}")
        ends = table.labels(0) if times is None else times
        raise ValueError(f"between: expected {what} from {ends.min()} to {ends.max()}, got {between!r}{read}")
    return found


def _is_after(first: Any, last: Any, *, is_time: bool) -> bool:
    """Whether the first of two times, or numbers, comes after the last."""
    if not is_time:
        return bool(first > last)
    import pandas as pd

    return bool(pd.Timestamp(first) > pd.Timestamp(last))


def _as_read(end: Any) -> str:
    """A time, or what a text that names one is read as: a day, a month."""
    import pandas as pd

    try:
        return str(pd.Period(end)) if isinstance(end, str) else str(end)
    except ValueError:
        return repr(end)


def _later_rows(table: Table, axis: Axis, steps: Any) -> tuple[NDArray[np.float64], Any]:
    """Inputs ``(t, 1)`` and labels, if any, of the rows that follow by the frequency or median distance."""
    inputs = table.inputs[:, 0]
    distinct = np.unique(inputs)
    if table.inputs.shape[1] != 1 or len(distinct) < 2:
        raise ValueError(f"steps: expected a table of one input with two rows or more, got {table.inputs.shape}")
    steps = rows_within(steps, float(np.median(np.diff(distinct)))) if axis.is_time else steps
    check_count("steps, a number of rows", steps, 1)
    frequency = getattr(getattr(table.given, "index", None), "freq", None)
    if frequency is not None and not axis.columns and len(axis.coordinates):
        last = table.given.index[np.argmax(inputs)]
        labels = _after(last, -frequency if frequency.n < 0 else frequency, steps)  # of a table in reverse order
        return axis.coordinates[0].numbers(labels)[:, None], labels
    numbers = distinct[-1] + float(np.median(np.diff(distinct))) * np.arange(1.0, steps + 1.0)
    return numbers[:, None], axis.coordinates[0].labels(numbers) if axis.coordinates else None


def rows_within(span: Any, step: float) -> Any:
    """How many rows a span of time has.

    Args:
        span: such as "2D"; what is none is returned as it is.
        step: the distance of rows in days.

    Returns:
        A number.

    Raises:
        ValueError: if it is no span, or shorter than a step.
    """
    if not isinstance(span, str | timedelta | np.timedelta64):
        return span
    import pandas as pd

    days = days_of(span)
    if not days >= step:
        raise ValueError(
            f"steps: expected at least the distance of the rows, {pd.Timedelta(days=step).round('s')}, got {span!r}"
        )
    return int(days / step + _WHOLE)


def _rows_ahead(table: Table, axis: Axis, steps: Any) -> tuple[Table, Any]:
    """The rows that follow a table, without values, and their labels, if any."""
    inputs, labels = _later_rows(table, axis, steps)
    steps = len(inputs)
    values, given = np.full((steps, table.values.shape[1]), np.nan), table.given
    if not hasattr(given, "iloc"):
        later = np.full((steps, *given.shape[1:]), np.nan)
    elif axis.columns:
        column = {axis.columns[0]: inputs[:, 0] if labels is None else labels}
        later = given.iloc[:0].reindex(range(len(given), len(given) + steps)).assign(**column)
    else:
        later = given.iloc[:0].reindex(range(len(given), len(given) + steps) if labels is None else labels)
    none = np.zeros(values.shape, dtype=bool)
    return table._replace(given=later, inputs=inputs, values=values, left_out=none), labels


def _after(last: Any, frequency: Any, steps: int) -> Any:
    import pandas as pd

    if isinstance(last, pd.Period):
        return pd.period_range(last + 1, periods=steps, freq=frequency)
    if isinstance(last, pd.Timedelta):
        return pd.timedelta_range(last, periods=steps + 1, freq=frequency)[1:]
    return pd.date_range(last, periods=steps + 1, freq=frequency)[1:]
