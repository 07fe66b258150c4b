"""Sums and means of a table with gaps, with the error that the gaps leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.regression import Posterior
from cgp.spelling import counted, said_times
from cgp.warning import warn_user

from .frames.beside import beside, column_of, is_name, one_frame
from .frames.gaps import JITTER, absent_between
from .frames.periods import PERIODS, meant_period, period_of
from .transforms.columns import TransformedPosterior

if TYPE_CHECKING:
    from .frames.table import Table

__all__ = [
    "Aggregate",
    "Bins",
    "bins_of",
    "calendar_bins",
    "checked_weights",
    "counted_absent",
    "ends_of",
    "shares_of",
    "totals_of",
]

Array = NDArray[Any]

_FEWER = 0.9  # of the rows that a bin has usually
_AS_GAPS = "table.asfreq(...) before the fit makes them gaps, which are filled"
_NAMED = 4  # bins that a warning names


class Bins(NamedTuple):
    """The rows that are added up together.

    Attributes:
        numbers: the bin of each row, 0 … B-1, ``(n,)``.
        labels: labels of the bins, an index of pandas or an array.
    """

    numbers: NDArray[np.int64]
    labels: Any


class _Moments(NamedTuple):
    value: Any
    std: Any


class Aggregate(_Moments):
    """Sums or means of each column in each bin; ``value, std = ...`` unpacks the first two.

    Attributes:
        value: in the form of the table, a row for each bin; sums are NaN where rows are absent, means of those there.
        std: their standard errors, likewise; 0 where nothing is missing, NaN where rows are absent.
        lower: lower ends of their central intervals, likewise; None where no level was asked for.
        upper: upper ends.
        absent: how many rows are absent from each bin, ``(B,)``.
    """

    def __new__(cls, value: Any, std: Any, lower: Any = None, upper: Any = None, absent: Any = None) -> Self:
        """The moments, with what is beside them."""
        result = super().__new__(cls, value, std)
        result.lower, result.upper, result.absent = lower, upper, absent
        return result

    lower: Any
    upper: Any
    absent: Any

    def __repr__(self) -> str:
        return beside(self, self._ends())

    def __getitem__(self, key: Any) -> Any:
        """The parts of a column beside each other, by its name; by number, those of the tuple."""
        if not is_name(key):
            return super().__getitem__(key)
        found = column_of(self, key, self._ends())
        return found.assign(**{"absent rows": self.absent}) if np.any(self.absent) else found

    def to_frame(self) -> Any:
        """All parts as one frame of pandas, as ``cgp fill --sums`` writes them: ``to_frame().to_csv("sums.csv")``.

        Returns:
            Columns such as "ozone" and "ozone std", with a level "ozone lower" and "ozone upper", first "absent rows"
            if some are; a row for each bin.

        Raises:
            ValueError: if the table was an array.
        """
        ends = {} if self.lower is None else {" lower": self.lower, " upper": self.upper}
        frame = one_frame({"": self.value, " std": self.std} | ends)
        if np.any(self.absent):
            frame.insert(0, "absent rows", self.absent)
        return frame

    def _ends(self) -> dict[str, Any]:
        return {} if self.lower is None else {"lower": self.lower, "upper": self.upper}


def bins_of(by: Any, table: Table, labels: Any) -> Bins:
    """The bins of the rows of a table.

    Args:
        by: for rows with times a word such as "month", or a frequency of pandas such as "D"; a label for each row, a
            series of pandas by its index; or None for one bin.
        table: n rows.
        labels: the times of its rows, or None.

    Returns:
        Bins that have rows, in order.

    Raises:
        ValueError: if it is none of these.
    """
    count = len(table.inputs)
    by = period_of(by) if isinstance(by, str) else by
    if by is None:
        return Bins(np.zeros(count, dtype=np.int64), np.array(["all"]))
    if isinstance(by, str):
        if labels is None:
            raise ValueError(f"by: expected a label for each row, as the rows of this table have no times, got {by!r}")
        return calendar_bins(by, labels)
    keys = np.asarray(_by_label(by, table, "by"))
    if keys.shape != (count,):
        raise ValueError(f"by: expected a label for each of {count} rows, or a frequency, got shape {keys.shape}")
    names, numbers = np.unique(keys, return_inverse=True)
    return Bins(numbers.reshape(-1), names)


def counted_absent(table: Table, bins: Bins, by: Any, how: str, times: Any) -> NDArray[np.int64]:
    """How many rows each bin lacks, where those that are there are at regular distances; it takes times alone.

    Args:
        table: n rows.
        bins: bins of the rows.
        by: what they are by. Of periods of the calendar rows before the first and after the last of the table are
            absent, too. Otherwise an absent row has no label: it is counted where the rows beside it have the same one.
        how: "sum" or "mean".
        times: of the rows, an index of pandas.

    Returns:
        ``(B,)``, 0 where rows are at irregular distances, so that none can be said to be absent.

    Warns:
        UserWarning: if rows are absent: no reading is filled in there; at irregular distances, if the first or last
            period is seen in part, or sums are of fewer rows in some.
    """
    absent = _absent_rows(table, bins, by, times)
    if absent is not None:
        return absent
    if isinstance(by, str):
        _warn_of_partial_bins(by, times)
        if how == "sum":
            _warn_of_uneven_bins(bins)
    return np.zeros(len(bins.labels), dtype=np.int64)


def _absent_rows(table: Table, bins: Bins, by: Any, times: Any) -> NDArray[np.int64] | None:
    """What bins lack, ``(B,)``; None at irregular distances."""
    order = np.argsort(table.inputs[:, 0], kind="stable")
    apart = np.diff(table.inputs[order, 0])
    further = absent_between(apart[apart > 0.0]) if (apart > 0.0).any() else None
    if further is None:
        return None
    absent = np.zeros(len(apart), dtype=np.int64)
    absent[apart > 0.0] = further
    beside = np.flatnonzero(absent)
    first, last = bins.numbers[order[beside]], bins.numbers[order[beside + 1]]
    counts = np.zeros(len(bins.labels), dtype=np.int64)
    frequency = period_of(by) if isinstance(by, str) else None
    if frequency is None:
        same = first == last
        counts += np.bincount(first[same], absent[beside][same], len(counts)).astype(np.int64)
        _warn_of_absent(bins, "bins", np.unique(first[same]), int(absent[beside][same].sum()), 0)
        _warn_of_unlabelled(bins, np.unique([first[~same], last[~same]]), int(absent[beside][~same].sum()))
        return counts
    step = (times[order[-1]] - times[order[0]]) / int((further + 1).sum())
    ends = _absent_beyond(frequency, bins.labels, times[order[[0, -1]]], step)
    short = np.concatenate([first, last, np.array([0, len(counts) - 1])[ends > 0]])
    _warn_of_absent(bins, f"{_period_word(by) or 'period'}s", np.unique(short), int(absent.sum()), int(ends.sum()))
    before, length = times[order[beside]], (times[order[beside + 1]] - times[order[beside]]) / (absent[beside] + 1)
    rows = np.repeat(np.arange(len(beside)), absent[beside])
    steps_on = np.concatenate([np.arange(0), *(np.arange(1, each + 1) for each in absent[beside])])
    numbers, labels = calendar_bins(frequency, times.append(before[rows] + length[rows] * steps_on))
    counts += np.bincount(numbers[len(times) :], minlength=len(labels))[labels.get_indexer(bins.labels)]
    np.add.at(counts, [0, -1], ends)
    return counts


def _absent_beyond(frequency: str, labels: Any, ends: Any, step: Any) -> NDArray[np.int64]:
    """How many rows of the first period are before the first row, and of the last one after the last, ``(2,)``."""
    import pandas as pd

    grouper, day = pd.Grouper(freq=frequency), pd.offsets.Day()
    is_dated_by_its_end = grouper.closed == "right"  # as weeks are
    start = labels[0] - grouper.freq + day if is_dated_by_its_end else labels[0]
    end = labels[-1] + (day if is_dated_by_its_end else grouper.freq)
    before = np.floor((ends[0] - start) / step + JITTER)
    after = np.ceil((end - ends[1]) / step - JITTER) - 1.0
    return np.array([before, after]).clip(min=0.0).astype(np.int64)


def _period_word(by: str) -> str | None:
    """The word for a period, such as "month"; None for what has none."""
    return next((word for word, each in PERIODS.items() if each == period_of(by)), None)


def _warn_of_absent(bins: Bins, called: str, short: NDArray[np.int64], within: int, beyond: int) -> None:
    """Say how many rows are absent, beside which bins, called so, and what makes gaps of them."""
    if not within + beyond:
        return
    names = ", ".join(said_times(bins.labels[number] for number in short[:_NAMED]))
    what = counted(within + beyond, "row is absent", "rows are absent")
    cures = [_AS_GAPS] if within else []
    if within and beyond:
        cures = [f"{counted(within, 'of them is', 'of them are')} between rows: {_AS_GAPS}"]
    if beyond:
        which = f"{beyond} of them" if within else "they"
        cures.append(
            f"{which} are before the first row or after the last, and are filled if the table has empty rows there"
        )
    warn_user(
        f"aggregate: {what}, in or beside the {called} {names}{', …' if len(short) > _NAMED else ''}, and sums that "
        f"lack some are NaN, as are errors of means: {'; '.join(cures)}"
    )


def _warn_of_unlabelled(bins: Bins, near: NDArray[np.int64], count: int) -> None:
    """Say how many rows are absent between rows of different bins, of which they could be any."""
    if count:
        names = ", ".join(said_times(bins.labels[number] for number in near[:_NAMED]))
        warn_user(
            f"aggregate: {counted(count, 'row is absent', 'rows are absent')} between rows of different bins, such as "
            f"{names}: whose they are is not known, and sums are of the rows that are there; {_AS_GAPS}"
        )


def _warn_of_uneven_bins(bins: Bins) -> None:
    """Say which periods but the first and last have fewer rows, where these are at irregular distances."""
    counts = np.bincount(bins.numbers)
    usual = float(np.median(counts))
    few = np.flatnonzero(counts[1:-1] < _FEWER * usual) + 1
    if len(few):
        names = ", ".join(
            f"{said} ({count})"
            for said, count in zip(said_times(bins.labels[few[:_NAMED]]), counts[few[:_NAMED]], strict=True)
        )
        warn_user(
            f"aggregate: rows are at irregular distances, mostly {usual:g} in a bin, and sums are of those that are "
            f"there, fewer in {names}{', …' if len(few) > _NAMED else ''}; how='mean' does not depend on their number"
        )


def _warn_of_partial_bins(by: str, times: Any) -> None:
    """Say which of the first and last period a row before or after the table would be in, at irregular distances."""
    frequency, times = period_of(by), times.unique().sort_values()
    if frequency is None or len(times) < 2:
        return
    step = times.to_series().diff().median()
    beside = times[:1] - step, times[-1:] + step
    numbers, labels = calendar_bins(frequency, beside[0].append([times, beside[1]]))
    found = [labels[numbers[end]] for end, further in ((1, 0), (-2, -1)) if numbers[end] == numbers[further]]
    if found:
        names = " and ".join(said_times(dict.fromkeys(found)))
        warn_user(f"aggregate: {names}: rows are of a part of the {_period_word(by) or repr(by)} only")


def totals_of(
    posterior: Posterior | TransformedPosterior,
    table: Table,
    bins: Bins,
    weights: Array,
    *,
    include_noise: bool,
) -> tuple[Array, Array]:
    r"""Weighted sums of the columns of a table over its bins, and their standard errors.

    .. math:: \sum_{i \in O} w_i y_i + w_M^\top\mu_M, \qquad w_M^\top(C_M + \sigma^2 I)w_M

    Args:
        posterior: given the table.
        table: n rows, P columns.
        bins: bins of the rows.
        weights: ``(n, P)``.
        include_noise: whether it is readings that are summed: what was observed (O) has no error then, and what is
            missing (M) that of a reading. Otherwise it is the functions beneath, at all rows.

    Returns:
        ``(B, P)`` each.
    """
    known = table.known if include_noise else np.zeros_like(table.missing)
    count, columns = len(bins.labels), table.values.shape[1]
    cells = bins.numbers[:, None] * columns + np.arange(columns)
    size = count * columns
    totals, variances = np.zeros((2, size))
    np.add.at(totals, cells[known], (weights * table.values)[known])
    uncertain = ~known & (weights != 0.0)
    if uncertain.any():
        rows, outputs = np.nonzero(uncertain)
        numbers, sums = np.unique(cells[uncertain], return_inverse=True)
        parts = table.inputs[rows], outputs, weights[uncertain], sums.reshape(-1)
        mean, variance = posterior.totals(*parts, include_noise=include_noise)
        totals[numbers] += mean
        variances[numbers] = variance
    return totals.reshape(count, columns), np.sqrt(variances.clip(min=0.0)).reshape(count, columns)


def ends_of(
    posterior: Posterior | TransformedPosterior,
    table: Table,
    bins: Bins,
    weights: Array,
    moments: tuple[Array, Array],
    level: float,
) -> tuple[Array, Array]:
    r"""Ends of central intervals of sums of readings, :math:`\mu \pm q\,s`; of transformed columns quantiles of draws.

    Args:
        posterior: given the table.
        table: n rows, P columns.
        bins: bins of the rows.
        weights: ``(n, P)``.
        moments: of :func:`totals_of`.
        level: of the intervals.

    Returns:
        ``(B, P)`` each.
    """
    value, std = moments
    reach = norm.ppf(0.5 + level / 2) * std
    low, high = value - reach, value + reach
    if not isinstance(posterior, TransformedPosterior):
        return low, high
    columns = table.values.shape[1]
    cells = bins.numbers[:, None] * columns + np.arange(columns)
    curved = np.isin(np.arange(columns), posterior.transforms.changed)
    uncertain = table.missing & (weights != 0.0) & curved
    if uncertain.any():
        rows, outputs = np.nonzero(uncertain)
        numbers, sums = np.unique(cells[uncertain], return_inverse=True)
        drawn = posterior.summed_draws(table.inputs[rows], outputs, weights[uncertain], sums.reshape(-1))
        ends = np.quantile(drawn - drawn.mean(0), [0.5 - level / 2, 0.5 + level / 2], axis=0)
        settled = std.flat[numbers] == 0.0
        for side, end in zip((low, high), ends, strict=True):
            side.flat[numbers] = value.flat[numbers] + np.where(settled, 0.0, end)
    return low, high


def checked_weights(weights: Any, table: Table) -> Array:
    """Weights as ``(n, P)``.

    Args:
        weights: of rows ``(n,)`` or of values ``(n, P)``; frames and series of pandas by their index and columns; None
            is 1.
        table: n rows, P columns.

    Returns:
        A weight for each value.

    Raises:
        ValueError: if they do not fit.
    """
    shape = table.values.shape
    if weights is None:
        return np.ones(shape)
    values = np.asarray(_by_label(weights, table, "weights"), dtype=np.float64)
    if values.shape not in (shape, shape[:1]) or not np.isfinite(values).all():
        raise ValueError(f"weights: expected finite numbers of shape {shape[:1]} or {shape}, got {values.shape}")
    return np.array(np.broadcast_to(values.reshape(shape[0], -1), shape))


def _by_label(values: Any, table: Table, name: str) -> Any:
    """Values of rows in the order of a table's rows, and of its columns: frames and series by their labels."""
    if not hasattr(values, "iloc"):
        return values
    if hasattr(values, "columns"):
        columns = table.keys
        absent = [column for column in columns if column not in values.columns]
        if absent:
            raise ValueError(f"{name}: expected the columns of the table, {columns}, got none for {absent}")
        values = values[columns]
    index = getattr(table.given, "index", None)
    if index is None:
        import pandas as pd

        index = pd.RangeIndex(len(table.inputs))
    if values.index.equals(index):
        return values
    if not index.is_unique or not values.index.is_unique or not index.isin(values.index).all():
        raise ValueError(
            f"{name}: expected the index of the table, each of its labels once; an array, {name}.to_numpy(), "
            "goes by position"
        )
    return values.loc[index]


def shares_of(bins: Bins, weights: Array) -> Array:
    """Weights ``(n, P)`` divided by their sum in each bin, for means.

    Args:
        bins: of the rows.
        weights: of the values.

    Returns:
        ``(n, P)``.

    Raises:
        ValueError: if a sum is 0.
    """
    sums = np.zeros((len(bins.labels), weights.shape[1]))
    np.add.at(sums, bins.numbers, weights)
    if not sums.all():
        empty = bins.labels[np.flatnonzero(~sums.all(axis=1))[0]]
        raise ValueError(f"weights: expected sums other than 0 for how='mean', got 0 in the bin {str(empty)!r}")
    return np.asarray(weights / sums[bins.numbers])


def calendar_bins(frequency: str, labels: Any) -> Bins:
    """The bins of times by a frequency of pandas."""
    import pandas as pd

    order = np.argsort(labels, kind="stable")
    try:
        grouper = pd.Grouper(freq=frequency)
    except ValueError as error:
        raise ValueError(
            f"by: expected one of {', '.join(PERIODS)}, or a frequency of pandas such as '3h', got {frequency!r}"
            f"{meant_period(frequency)}"
        ) from error
    sizes = pd.Series(0, index=labels[order]).groupby(grouper).size()
    sizes = sizes[sizes > 0]
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.repeat(np.arange(len(sizes)), sizes)
    return Bins(numbers, sizes.index)
