"""What a user is told of a table: codes for what is missing, columns of one value, errors that grow or shrink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from cgp.spelling import counted, first_of, said_times
from cgp.warning import warn_user

from .gaps import absent_between, longest_runs, ordered_rows, runs_of
from .periods import are_set_back

if TYPE_CHECKING:
    from .table import Table

__all__ = [
    "BelowZeroWarning",
    "check_columns",
    "negative_fills",
    "suspected_codes",
    "warn_of_codes",
    "warn_of_constants",
    "warn_of_few",
    "warn_of_long_gaps",
    "warn_of_negatives",
    "warn_of_repeats",
    "warn_of_strangers",
    "warn_of_swapped_days",
    "warn_of_uneven_errors",
]

Array = NDArray[np.float64]

_LEAST = 3  # smallest number of repetitions
_LEAST_VALUES = 10  # smallest number of other distinct values of the column
_TAIL = 0.05  # share of the others on either side of the range that distances are compared with

_OFTEN = 0.05  # share of a column's values that are 0 from which they have a probability of their own
_NOTHING, _LITTLE = 1e-6, 0.01  # standard deviations of a column: rounding, and what nobody minds
_MANY = 0.2  # share of the intervals in a column: a few are below 0 by chance
_FAR = 20.0  # ranges of the values before
_NAMED = 5  # columns in a warning
_MONTHS, _FEWEST_DATES = 12, 20
_FEW = 10  # values of a column, below which most of one with more gaps is a guess
_LEAST_ERRORS = 40  # of a column, to be compared before and after a row
_SPLITS = (0.25, 0.5, 0.75)
_SMALL = 0.4  # of errors whose median is below it no interval is too narrow: that of standard normal ones is 0.67
_GROWING, _CHANCE = 0.2, 1e-3  # rank correlation of errors with values, and of what it is at most by chance
_CLEAR, _UNLIKE = 4.0, 2.0  # standard errors of a sum of ranks, and times that one half's errors are larger


class BelowZeroWarning(UserWarning):
    """What is below 0 in columns where no observed value is.

    Args:
        said: what is, and in which columns.
        transforms: by column, the one that has none.

    Example:
        >>> print(BelowZeroWarning("one in 'no'", {"no": "box-cox"}))
        table: below 0, where no observed value is: one in 'no'; if none can be, transforms={'no': 'box-cox'} has none
    """

    def __init__(self, said: str, transforms: Mapping[Any, str]) -> None:
        advice = f"if none can be, {transforms=!r} has none"
        super().__init__(f"table: below 0, where no observed value is: {said}; {advice}")
        self.said, self.transforms = said, transforms


def suspected_codes(values: Array) -> dict[float, list[int]]:
    """Extreme values of a column that repeat, farther from the others than the range of these.

    A code in one column is a code in every column where it repeats as an extreme value.

    Args:
        values: NaN where missing, ``(n, P)``.

    Returns:
        The columns that have each value.

    Example:
        >>> readings = np.arange(40.0)
        >>> readings[::9] = -200.0
        >>> suspected_codes(readings[:, None])
        {-200.0: [0]}
    """
    ends = [_repeated_ends(column[~np.isnan(column)]) for column in values.T]
    codes = sorted({value for repeated in ends for value, is_far in repeated.items() if is_far})
    return {code: [p for p, repeated in enumerate(ends) if code in repeated] for code in codes}


def check_columns(values: Array, names: list[Any], summed: Sequence[int] = ()) -> None:
    """Refuse columns without a value, or a known sum; warn of codes and of columns of one value."""
    warn_of_codes(values, names)
    seen = [p for p, column in enumerate(values.T) if not np.isnan(column).all()]
    lost = [name for p, name in enumerate(names) if p not in {*seen, *summed}]
    if lost or not seen:
        raise ValueError(
            f"table: expected at least one value in each column, got none in {lost or names}: leave them out"
        )
    warn_of_constants(values[:, seen], [names[p] for p in seen])
    warn_of_few(values[:, seen], [names[p] for p in seen])


def warn_of_codes(values: Array, names: Sequence[Any]) -> None:
    """Warn of values ``(n, P)`` that look like codes for what is missing, with what to do."""
    for code, columns in suspected_codes(values).items():
        warn_user(
            f"table: {code:g} repeats far from all other values in {[names[p] for p in columns]}; if it stands for "
            f"what is missing, say so: missing_values={code:g}"
        )


def warn_of_constants(values: Array, names: Sequence[Any]) -> None:
    """Warn of columns with gaps whose values are all the same, or one: how far they vary cannot be learned."""
    constant = (np.nanmin(values, axis=0) == np.nanmax(values, axis=0)) & np.isnan(values).any(axis=0)
    if constant.any():
        named = [name for name, flag in zip(names, constant, strict=True) if flag]
        warn_user(
            f"table: only one value in {named}: gaps are filled with it, and their "
            "standard deviations say nothing, as how far the column varies is not known; leave it out"
        )


def warn_of_few(values: Array, names: Sequence[Any]) -> None:
    """Warn of columns of two to nine values and more gaps than these: what fills most of them is a guess."""
    counts, missing = (~np.isnan(values)).sum(axis=0), np.isnan(values).sum(axis=0)
    few = (counts > 1) & (counts < _FEW) & (missing > counts)
    if few.any():
        columns = np.flatnonzero(few).tolist()
        said = (f"{names[p]!r} has {counts[p]} values and {missing[p]} gaps" for p in columns)
        warn_user(
            f"table: {first_of(said, _NAMED)}: most of what is filled there is a guess, and how far it may be wrong is "
            "one, too: leave such a column out unless others say what it is"
        )


def warn_of_long_gaps(table: Table, summed: Sequence[int] = ()) -> None:
    """Warn of a series with a gap of more rows than it has values: how far it moves in that time is not seen.

    Columns whose sums are known besides are left out, and those of :func:`warn_of_few`.
    """
    if table.inputs.shape[1] != 1:
        return
    longest, counts = longest_runs(runs_of(table.missing[ordered_rows(table.inputs)])), table.known.sum(axis=0)
    lengths = {p: stop - start for p, (start, stop) in longest.items() if p not in summed}
    columns = [p for p, length in lengths.items() if length > counts[p] >= _FEW]
    if columns:
        said = (f"{table.names[p]!r} has {counts[p]} values and a gap of {lengths[p]} rows" for p in columns)
        warn_user(
            f"table: {first_of(said, _NAMED)}: how far a column moves in so long a time is not seen in it, so that "
            "even wide intervals can be too narrow"
        )


def negative_fills(
    values: Array, filled: Array, lower: Callable[[], Array] | None = None, one: str = "filled value"
) -> dict[int, tuple[str, str]]:
    """Columns with filled values below 0 where no observed one is, or many whose 95 % interval ends clearly below it.

    Args:
        values: observed ones, NaN where missing, ``(n, P)``.
        filled: those in gaps, NaN elsewhere, ``(k, P)``.
        lower: the lower ends of their intervals, likewise, computed where they are asked for.
        one: what one of them is called.

    Returns:
        By column: what is below 0, and the transform that has none, "rectified" where a twentieth of the observed
        values is 0.

    Example:
        >>> negative_fills(np.array([[0.0, -1.0], [3.0, 1.0]]), np.array([[-1.0, -2.0], [-2.0, 0.0]]))
        {0: ('2 of 2 filled values', 'rectified')}
    """
    found = {}
    least = np.nanmin(values, axis=0, initial=np.inf)
    asked = np.flatnonzero((least >= 0.0) & np.isfinite(least) & ~np.isnan(filled).all(axis=0))
    ends = filled if lower is None or not len(asked) else lower()
    for p in asked.tolist():
        seen, gaps = values[~np.isnan(values[:, p]), p], ~np.isnan(filled[:, p])
        unit = seen.std()
        below, reach = filled[gaps, p] < -_NOTHING * unit, (unit > 0.0) & (ends[gaps, p] < -_LITTLE * unit)
        if below.any():
            said = f"{below.sum()} of {counted(gaps.sum(), one)}"
            if reach.sum() > below.sum():
                said += f" and 95 % intervals of {reach.sum()}"
        elif reach.mean() >= _MANY:
            said = f"95 % intervals of {reach.sum()} of {counted(gaps.sum(), one)}"
        else:
            continue
        found[p] = said, "rectified" if (seen == 0.0).mean() >= _OFTEN else "box-cox"
    return found


def warn_of_negatives(
    table: Table,
    known: Array,
    filled: Array,
    lower: Callable[[], Array] | None = None,
    one: str = "filled value",
) -> None:
    """Warn of :func:`negative_fills` of a table that is filled with ``(n, P)``, given values of a fit ``(m, P)``."""
    found = negative_fills(np.concatenate([known, table.values]), np.where(table.missing, filled, np.nan), lower, one)
    if found:
        said = ", ".join(f"{what} in {table.names[p]!r}" for p, (what, _) in found.items())
        transforms = {table.keys[p]: kind for p, (_, kind) in found.items()}
        warn_user(BelowZeroWarning(said, transforms))


def warn_of_repeats(table: Table, before: Sequence[Table] = (), *, is_time: bool) -> None:
    """Warn of values at a time, or label of the index, that their column has one at already, in tables before it, too.

    Args:
        table: n rows.
        before: those that it is added to.
        is_time: whether its input is a time.

    Warns:
        UserWarning: if there are such values. Inputs that are columns of numbers may repeat.
    """
    if table.inputs.shape[1] != 1 or not (is_time or table.has_index) or not len(table.inputs):
        return
    first, last = table.inputs.min(), table.inputs.max()
    parts = [(part, (part.inputs[:, 0] >= first) & (part.inputs[:, 0] <= last)) for part in before]
    inputs = np.concatenate([*(part.inputs[near, 0] for part, near in parts), table.inputs[:, 0]])
    values = np.concatenate([*(part.values[near] for part, near in parts), table.values])
    order, again, same = np.argsort(inputs, kind="stable"), *np.zeros((2, *values.shape), dtype=bool)
    for column in range(values.shape[1]):
        rows = order[~np.isnan(values[order, column])]
        again[rows[1:], column] = inputs[rows[1:]] == inputs[rows[:-1]]
        same[rows[1:], column] = values[rows[1:], column] == values[rows[:-1], column]
    repeats = again[-len(table.inputs) :].any(axis=1)
    if count := int(repeats.sum()):
        is_same = bool((same | ~again)[-len(table.inputs) :].all())
        rows_repeat = counted(count, "row repeats", "rows repeat")
        they = "it counts as a further reading, and sums count it twice"
        if count > 1:
            they = "they count as further readings, and sums count them twice"
        times = table.labels(0)[repeats]
        if is_time and table.has_index and are_set_back(times):
            warn_user(
                f"{'rows' if before else 'table'}: {rows_repeat} a time, in a night when clocks are set back: both are "
                "readings, and count; table.tz_localize('Europe/Berlin', ambiguous='infer') tells them apart"
            )
            return
        keep = "rows[~rows.index.isin(table.index)]" if before else "table[~table.index.duplicated()]"
        warn_user(
            f"{'rows' if before else 'table'}: {rows_repeat} a {'time' if is_time else 'label of the index'}"
            f"{', with the same values' if is_same else ''}: {they}; {keep} leaves them out if they are no others"
        )


def warn_of_swapped_days(times: Any) -> None:
    """Warn of times, an index of pandas, at regular distances only if days up to the twelfth are taken for months."""
    import pandas as pd

    times = times.tz_localize(None).unique()
    days, months = times.day.to_numpy(), times.month.to_numpy()
    is_early = days <= _MONTHS
    parts = {"year": times.year, "month": np.where(is_early, days, months), "day": np.where(is_early, months, days)}
    swapped = pd.DatetimeIndex(pd.to_datetime(parts)) + (times - times.normalize())
    absent, otherwise = _count_absent(times), _count_absent(swapped)
    if len(times) >= _FEWEST_DATES and absent > max(0.5 * len(times), 10.0 * otherwise):
        gaps = "rows are at irregular distances" if np.isinf(absent) else f"{absent:.0f} rows are absent"
        warn_user(
            f"table: day and month seem to have changed places up to the {_MONTHS}th of months: as dates are, {gaps}, "
            f"and otherwise {otherwise:.0f} rows are absent; pandas.to_datetime(..., dayfirst=True), or format=, tells"
        )


def _count_absent(times: Any) -> float:
    """How many rows are absent between times, infinite where they repeat or are at irregular distances."""
    apart = np.diff(np.sort(times.to_numpy())) / np.timedelta64(1, "s")
    found = absent_between(apart) if len(apart) and (apart > 0.0).all() else None
    return np.inf if found is None else float(found.sum())


def warn_of_strangers(values: Array, known: Array, names: Sequence[Any]) -> None:
    """Warn of new values ``(k, P)`` so far from all that were known, ``(n, P)``, that they look like codes."""
    low, high, counts = np.nanmin(known, axis=0), np.nanmax(known, axis=0), (~np.isnan(known)).sum(axis=0)
    reach = np.where((counts > _LEAST_VALUES) & (high > low), _FAR * (high - low), np.inf)
    with np.errstate(invalid="ignore"):
        far = (values < low - reach) | (values > high + reach)
    for column in np.flatnonzero(far.any(axis=0)).tolist():
        code = values[far[:, column], column][0]
        warn_user(
            f"table: {code:g} in {names[column]!r} is farther from all values before than {_FAR:g} times their range; "
            f"if it stands for what is missing, say so: missing_values={code:g}"
        )


def warn_of_uneven_errors(
    errors: Array, names: Sequence[Any], labels: Any, *, values: Array | None = None, is_auto: bool = False
) -> None:
    """Warn of columns that are quiet and then loud, or the other way round, as one noise for all rows cannot say.

    Sizes of errors before and after a quarter, a half and three quarters of a column are compared by their ranks.

    Args:
        errors: standardised, of every observed value predicted from the others, in the order of their inputs, NaN where
            there is none, ``(n, P)``.
        names: of the columns.
        labels: what the rows have as their input, ``(n,)``.
        values: of the columns that have no transform, NaN of others, ``(n, P)``: of one above 0 whose errors grow with
            its values a logarithm is named first.
        is_auto: whether transforms were looked for already.

    Warns:
        UserWarning: if there are such columns.
    """
    advice = "fit each part" if is_auto else "transforms='auto' may even it out, or a fit to each part"
    levels = np.full_like(errors, np.nan) if values is None else values
    for name, column, level in zip(names, np.abs(errors.T), levels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        found = _change(column[known]) if len(known) >= _LEAST_ERRORS else None
        if found is not None:
            row, factor = found
            (when,) = said_times([labels[known[row]]])
            side, other = (f"from {when} on", "before") if factor > 1 else (f"before {when}", "from then on")
            logs = {name: "log"}
            first = f"they grow with its values: transforms={logs!r}, or " if _grow(column, level) else ""
            warn_user(
                f"table: errors of {name!r} are {max(factor, 1 / factor):.1f} times as large "
                f"{side} as {other}, and their standard deviation is one for all rows: "
                f"intervals are too narrow where they are large ({first}{advice})"
            )


def _grow(sizes: Array, level: Array) -> bool:
    """Whether values are above 0, and errors clearly larger where they are."""
    known = ~np.isnan(sizes) & ~np.isnan(level)
    if known.sum() < _LEAST_ERRORS or level[known].min() <= 0.0:
        return False
    found = spearmanr(sizes[known], level[known])
    return bool(found.statistic > _GROWING and found.pvalue < _CHANCE)


def _change(sizes: Array) -> tuple[int, float] | None:
    """Where sizes become clearly larger or smaller, and how many times as large their median is from there on."""
    count, ranks = len(sizes), rankdata(sizes)
    starts = [int(share * count) for share in _SPLITS]
    scores = [
        (ranks[start:].mean() - ranks[:start].mean()) / np.sqrt(count**2 * (count + 1) / (12 * start * (count - start)))
        for start in starts
    ]
    best = int(np.argmax(np.abs(scores)))
    before, after = np.split(sizes, [starts[best]])
    first, second = float(np.median(before)), float(np.median(after))
    if max(first, second) < _SMALL:
        return None
    if abs(scores[best]) < _CLEAR or min(first, second) <= 0.0 or max(first, second) < _UNLIKE * min(first, second):
        return None
    return starts[best], second / first


def _repeated_ends(column: Array) -> dict[float, bool]:
    """The smallest and the largest value, if they repeat, and whether they are far from the others."""
    levels, counts = np.unique(column, return_counts=True)
    if len(levels) <= _LEAST_VALUES:
        return {}
    far = {}
    for end, next_one in ((0, 1), (-1, -2)):
        if counts[end] >= _LEAST:
            others = column[column != levels[end]]
            low, high = np.quantile(others, [_TAIL, 1.0 - _TAIL])
            far[float(levels[end])] = bool(abs(levels[end] - levels[next_one]) > high - low)
    return far
