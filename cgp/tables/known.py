"""Sums and means of columns that are known over intervals, as a meter or a yearbook gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.regression.sums import Sums
from cgp.spelling import counted, meant
from cgp.warning import warn_user

from .frames.table import read_table
from .totals import checked_weights

if TYPE_CHECKING:
    from .frames.coordinates import Axis
    from .frames.table import Table

__all__ = ["KnownTotals", "adding_up", "known_sums", "rounded", "warn_of_beyond", "warn_of_far"]

Array = NDArray[Any]

_FARTHEST = 1.5  # steps between rows of an interval that has all its rows
_REGULAR = 0.9  # share of steps that are near their median, in a table that has a step
_NEAR = 0.3  # of the median step
_ROUNDING = 1e-6  # of a total
_FAR = 5.0  # times as far from a column's mean as the farthest mean of as many successive readings
_STRETCHES, _FEWEST_READINGS = 5, 20  # of such readings that a column has room for; readings that tell of them
_FEWEST = 3  # rows that have a step
_ON_STEP = 1e-3  # steps by which rows may be off their places
_WHOLE = 1e-6  # units of the last decimal by which a value may be below a whole number of them


@dataclass(frozen=True, eq=False)
class KnownTotals:
    """Totals of one column over intervals, with options.

    Args:
        values: a series of pandas whose index has periods or intervals; NaN is not known.
        mean: whether they are means instead of sums.
        noise: variance of their errors, a number or one for each; 0 for totals that are known exactly.
        of: "readings", as a meter adds them up, each with its noise, or "process", the function beneath them.
        weights: of the rows of the table in a sum, ``(n,)``; None is 1.

    Example:
        >>> import pandas as pd
        >>> monthly = pd.Series([40.0, 12.0], index=pd.period_range("2024-01", periods=2, freq="M"))
        >>> KnownTotals(monthly, mean=True).of
        'readings'
    """

    values: Any
    mean: bool = False
    noise: Any = 0.0
    of: str = "readings"
    weights: Any = None

    def __post_init__(self) -> None:
        if self.of not in ("readings", "process"):
            raise ValueError(f"of: expected 'readings' or 'process', got {self.of!r}")
        if not hasattr(self.values, "iloc") or hasattr(self.values, "columns"):
            raise ValueError(f"totals: expected a series of pandas for a column, got {type(self.values).__name__}")


def known_sums(totals: Any, table: Table, axis: Axis) -> Sums | None:
    """Totals as sums over the rows of a table, and over those at its step before its first and after its last one.

    Args:
        totals: by name of column a series or :class:`KnownTotals`; a frame, or a series with the name of its column;
            or sums as they are.
        table: n rows, P columns.
        axis: of the table.

    Returns:
        The sums; None if nothing is known.

    Raises:
        ValueError: if they do not fit the table; the total is named.
    """
    if totals is None or isinstance(totals, Sums):
        return totals
    if table.inputs.shape[1] != 1:
        raise ValueError(f"totals: expected a table of one input, got {table.inputs.shape[1]}")
    parts = [_of_column(column, each, table, axis) for column, each in _by_column(totals, table).items()]
    if not sum(len(part.values) for part in parts):
        return None
    offsets = np.cumsum([0, *(len(part.values) for part in parts)])[:-1]
    sums = np.concatenate([part.sums + offset for part, offset in zip(parts, offsets, strict=True)])
    names = tuple(name for part in parts for name in part.names)
    places, weights, values, noise, of_readings = (
        np.concatenate([getattr(part, field) for part in parts])
        for field in ("places", "weights", "values", "noise", "of_readings")
    )
    return Sums(places, weights, sums, values, noise, of_readings, names)


def warn_of_beyond(sums: Sums, table: Table) -> None:
    """Warn of sums over rows before the first and after the last one of a table."""
    first, last = table.inputs[:, 0].min(), table.inputs[:, 0].max()
    for column in np.unique(sums.outputs):
        places = np.unique(sums.places[sums.outputs == column, 0])
        before, after = int((places < first).sum()), int((places > last).sum())
        if before or after:
            warn_user(
                f"totals: those of {table.names[column]!r} reach over rows that the table does not have, {before} "
                f"before its first and {after} after its last, which are taken for rows without a value"
            )


def warn_of_far(sums: Sums, table: Table) -> None:
    """Warn of totals that need fills far beyond what was observed, as after a slip of the decimal point.

    What they need on average is compared with the means of as many successive readings, or of a fifth of all.

    Args:
        sums: known ones.
        table: n rows, P columns.

    Warns:
        UserWarning: if there are some; each is named, with what it would be about.
    """
    inputs, outputs, count = table.inputs[:, 0], sums.outputs, len(sums.values)
    order = np.argsort(inputs, kind="stable")
    for p in np.unique(outputs):
        seen, terms = order[table.known[order, p]], outputs == p
        if len(seen) < _FEWEST_READINGS:
            continue
        readings, weights, which = table.values[seen, p], sums.weights[terms], sums.sums[terms]
        read = _read_at(sums.places[terms, 0], inputs[seen], readings)
        gaps, centre = np.isnan(read), float(readings.mean())
        known = np.bincount(which, np.where(gaps, 0.0, weights * read), minlength=count)
        share, lacking = (np.bincount(which, each, minlength=count) for each in (weights * gaps, gaps))
        asked = np.flatnonzero((lacking > 0) & (np.bincount(which, weights <= 0.0, minlength=count) == 0))
        lengths = np.clip(lacking[asked].astype(int), 1, max(len(readings) // _STRETCHES, 1))
        ends = {length: _extreme_means(readings, length) for length in np.unique(lengths)}
        for m, length in zip(asked, lengths, strict=True):
            needed = (sums.values[m] - known[m]) / share[m]
            is_above = needed > centre
            word, usual = ("largest" if is_above else "smallest"), ends[length][int(is_above)]
            if abs(needed - centre) > _FAR * abs(usual - centre):
                value = readings.max() if is_above else readings.min()
                warn_user(
                    f"totals: {sums.names[m]} is {sums.values[m]:g}, which takes fills of {needed:.4g} on average, far "
                    f"from all that was observed: the {word} value is {value:.4g}, the {word} mean of "
                    f"{counted(length, 'reading')} in a row {usual:.4g}; with fills at the column's mean the total "
                    f"would be {known[m] + share[m] * centre:.4g}: check its decimal point and units"
                )


def _read_at(places: Array, inputs: Array, readings: Array) -> Array:
    """The readings at places, by their inputs in increasing order, the last where inputs repeat; NaN without one."""
    at = np.searchsorted(inputs, places, side="right") - 1
    return np.where((at >= 0) & (inputs[at] == places), readings[at], np.nan)


def _extreme_means(readings: Array, length: int) -> tuple[float, float]:
    """The smallest and the largest mean of so many successive readings."""
    centre = readings.mean()
    added = np.concatenate([[0.0], (readings - centre).cumsum()])
    means = centre + (added[length:] - added[:-length]) / length
    return float(means.min()), float(means.max())


def adding_up(filled: Any, file: Any, totals: Any = None) -> Any:
    r"""A filled table so rounded to the digits of its file that values of known totals add up to them as written.

    Args:
        filled: by an imputer that was fitted to the file's frame with the totals.
        file: that :func:`.read_table` has read.
        totals: as of the fit, of all rows alike; None for none.

    Returns:
        What ``file.write`` is given.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pandas as pd
        >>> from cgp.tables import read_table
        >>> path = Path(tempfile.mkdtemp()) / "rain.csv"
        >>> _ = path.write_text("\n".join(["day,mm", "2024-03-01,1.3", "2024-03-02,", "2024-03-03,", "2024-03-04,"]))
        >>> file = read_table(path)
        >>> known = pd.Series([2.3], index=pd.PeriodIndex(["2024-03-01"], freq="4D"))
        >>> adding_up(file.frame.fillna(1 / 3), file, {"mm": known})["mm"].tolist()
        [1.3, 0.4, 0.3, 0.3]
    """
    if totals is None:
        return filled
    names = [name for name in file.frame if name not in file.inputs]
    digits = {name: file.precision(name) for name in names}
    plain = {name: each.decimals for name, each in digits.items() if not each.significant}
    return rounded(filled, file.frame, totals, plain)


def rounded(filled: Any, given: Any, totals: Any, decimals: Mapping[Any, int]) -> Any:
    """A filled table whose values are rounded so that those of a total still add up to it.

    What plain rounding leaves over goes to the largest remainders, so every filled value is one of its two neighbours
    with these decimals. Of totals with rows in common the one of fewer gaps comes first.

    Args:
        filled: by an imputer that was fitted with the totals.
        given: the table with gaps, a frame with one input in its index.
        totals: as of ``CorrelatedGPImputer.fit``, of all rows alike.
        decimals: of each column that is rounded.

    Returns:
        The filled table; columns without totals or decimals are as they were.

    Example:
        >>> import pandas as pd
        >>> given = pd.DataFrame({"rain": [np.nan] * 3}, index=[0.0, 1.0, 2.0])
        >>> known = pd.Series([1.0], index=pd.IntervalIndex.from_tuples([(0.0, 2.0)], closed="both"))
        >>> rounded(given.fillna(1 / 3), given, {"rain": known}, {"rain": 1})["rain"].tolist()
        [0.4, 0.3, 0.3]
    """
    table, axis = read_table(given, None)
    sums = known_sums(totals, table, axis)
    result = filled.copy()
    if sums is None:
        return result
    inputs = table.inputs[:, 0]
    for p in np.unique(sums.outputs):
        name = table.names[p]
        if name not in decimals:
            continue
        scale = 10.0 ** decimals[name]
        exact, settled = filled[name].to_numpy(dtype=np.float64) * scale, ~table.missing[:, p]
        values = exact.copy()
        places = [sums.places[sums.sums == m, 0] for m in np.unique(sums.sums[sums.outputs == p])]
        gaps = [np.isin(inputs, each) & table.missing[:, p] for each in places if np.isin(each, inputs).all()]
        for rows in sorted(gaps, key=np.count_nonzero):
            free = np.flatnonzero(rows & ~settled)
            values[free], settled[free] = np.floor(exact[free] + _WHOLE), True
            left = max(round(float(exact[rows].sum() - values[rows].sum())), 0)
            values[free[np.argsort(values[free] - exact[free], kind="stable")[:left]]] += 1.0
        result[name] = values / scale
    return result


def _by_column(totals: Any, table: Table) -> dict[int, KnownTotals]:
    """Totals by the number of their column."""
    if hasattr(totals, "columns"):
        totals = {name: totals[name] for name in totals.columns}
    elif hasattr(totals, "iloc"):
        totals = {totals.name: totals}
    if not isinstance(totals, Mapping):
        raise ValueError(f"totals: expected a frame, or a series by name of column, got {type(totals).__name__}")
    names = table.keys
    absent = [name for name in totals if name not in names]
    if absent:
        raise ValueError(
            f"totals: expected columns of the table, {list(names)}, got {absent}: a column of NaN is one that has "
            f"totals only{meant(absent, names)}"
        )
    known = {names.index(name): each for name, each in totals.items()}
    return {column: each if isinstance(each, KnownTotals) else KnownTotals(each) for column, each in known.items()}


class _Spans(NamedTuple):
    """Intervals on the axis of a table.

    Attributes:
        left: ``(M,)``.
        right: ``(M,)``.
        closed: whether the left and the right ends are in them.
    """

    left: Array
    right: Array
    closed: tuple[bool, bool]


def _of_column(column: int, totals: KnownTotals, table: Table, axis: Axis) -> Sums:
    """The sums of one column."""
    kept = np.asarray(totals.values.notna())
    labels, values = totals.values.index[kept], np.asarray(totals.values[kept], dtype=np.float64)
    noise = np.asarray(totals.noise, dtype=np.float64)
    noise = np.broadcast_to(noise, len(kept))[kept] if noise.shape in ((), kept.shape) else np.array([np.nan])
    if not (np.isfinite(noise) & (noise >= 0.0)).all():
        raise ValueError(f"noise: expected a variance, or one for each of {len(kept)} totals, got {totals.noise!r}")
    names = tuple(f"{table.names[column]!r} {label}" for label in labels)
    spans, weights = _spans(labels, table, axis), checked_weights(totals.weights, table)[:, column]
    beyond = _beyond(spans, table, axis) if totals.weights is None else np.empty(0)
    table, weights = _with_rows(table, beyond), np.pad(weights, (0, len(beyond)), constant_values=1.0)
    rows = _rows(spans, table, names, len(beyond))
    sums = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    at = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    shares = weights[at]
    if totals.mean:
        shares = shares / np.bincount(sums, shares, minlength=len(rows))[sums]
    names = _beside_readings(column, table, at, shares, sums, values, names)
    places = np.column_stack([table.inputs[at], np.full(len(at), float(column))])
    of_readings = np.full(len(values), totals.of == "readings")
    return Sums(places, shares, sums, values, np.array(noise), of_readings, names)


def _spans(labels: Any, table: Table, axis: Axis) -> _Spans:
    """The intervals of an index of pandas, as numbers."""
    import pandas as pd

    coordinate = axis.coordinates[0] if axis.coordinates else None
    if isinstance(labels, pd.PeriodIndex):
        times = axis.times(table.given)
        if times is None:
            raise ValueError("totals: expected intervals of numbers, as the rows have no times, got periods")
        left, right, closed = labels.start_time, (labels + 1).start_time, (True, False)
        if times.tz is not None:
            left, right = (each.tz_localize(times.tz, "NaT", "shift_forward") for each in (left, right))
    elif isinstance(labels, pd.IntervalIndex):
        left, right, closed = labels.left, labels.right, (labels.closed_left, labels.closed_right)
    else:
        raise ValueError(
            f"totals: expected an index of periods or intervals, got {type(labels).__name__}: monthly.to_period('M'), "
            "or pandas.IntervalIndex.from_breaks(times, closed='left')"
        )
    if coordinate is None:
        return _Spans(np.asarray(left, dtype=float), np.asarray(right, dtype=float), closed)
    return _Spans(coordinate.numbers(left), coordinate.numbers(right), closed)


def _beyond(spans: _Spans, table: Table, axis: Axis) -> Array:
    """The inputs of rows before the first and after the last one that intervals reach over, if rows have a step."""
    inputs = np.unique(table.inputs[:, 0])
    overlap = (spans.left <= inputs[-1]) & (spans.right >= inputs[0])
    if len(inputs) < _FEWEST or not overlap.any():
        return np.empty(0)
    step = float(np.median(np.diff(inputs)))
    low, high = spans.left[overlap].min(), spans.right[overlap].max()
    before, after = (max(int(np.ceil(far / step)), 0) + 1 for far in (inputs[0] - low, high - inputs[-1]))
    times, coordinate = axis.times(table.given), axis.coordinates[0] if axis.coordinates else None
    frequency = None if times is None else _frequency(times.unique().sort_values())
    if frequency is not None and coordinate is not None:
        import pandas as pd

        first, last = times.min(), times.max()
        ends = pd.date_range(end=first, periods=before + 1, freq=frequency)[:-1]
        ends = ends.append(pd.date_range(start=last, periods=after + 1, freq=frequency)[1:])
        found = coordinate.numbers(ends)
    elif np.allclose(np.diff(inputs) / step, np.round(np.diff(inputs) / step), rtol=0.0, atol=_ON_STEP):
        found = np.concatenate(
            [inputs[0] - step * np.arange(before, 0, -1), inputs[-1] + step * np.arange(1, after + 1)]
        )
    else:
        return np.empty(0)
    return found[(found >= low) & (found <= high)]


def _frequency(times: Any) -> Any:
    """The frequency of times in order, such as that of months, which are of several lengths; None if there is none."""
    import pandas as pd

    return times.freq or pd.DatetimeIndex(times, freq="infer").freq


def _with_rows(table: Table, inputs: Array) -> Table:
    """A table with further rows without values at its end."""
    shape = len(inputs), table.values.shape[1]
    values, left_out = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    return table._replace(
        inputs=np.concatenate([table.inputs, inputs[:, None]]),
        values=np.concatenate([table.values, values]),
        left_out=np.concatenate([table.left_out, left_out]),
    )


def _rows(spans: _Spans, table: Table, names: tuple[str, ...], num_beyond: int) -> list[Array]:
    """The rows of each interval; refused where some are not in the table, whose last ones are beyond its ends."""
    inputs = table.inputs[:, 0]
    order = np.argsort(inputs, kind="stable")
    inputs, is_given = inputs[order], np.append(order < len(inputs) - num_beyond, False)
    first = np.searchsorted(inputs, spans.left, side="left" if spans.closed[0] else "right")
    last = np.searchsorted(inputs, spans.right, side="right" if spans.closed[1] else "left")
    steps = np.diff(np.unique(inputs))
    step = float(np.median(steps)) if len(steps) else np.inf
    is_regular = len(steps) and np.mean(np.abs(steps - step) < _NEAR * step) > _REGULAR
    farthest = _FARTHEST * (step if is_regular else steps.max(initial=0.0))
    for name, begin, end, low, high in zip(names, spans.left, spans.right, first, last, strict=True):
        gaps, count = np.diff([begin, *inputs[low:high], end]), int(is_given[low:high].sum())
        ends = gaps[0] + gaps[-1] - (not any(spans.closed)) * step  # a row may stand for the step before or after it
        if not count or max(ends, gaps[1:-1].max(initial=0.0)) > farthest:
            raise ValueError(
                f"totals: expected a row of the table at every step of {name}, got {count}: rows that the table "
                "lacks are added by frame.asfreq, or frame.reindex"
            )
    return [order[low:high] for low, high in zip(first, last, strict=True)]


def _beside_readings(
    column: int, table: Table, at: Array, weights: Array, sums: Array, values: Array, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Totals beside what is known of them.

    Args:
        column: that they are of.
        table: n rows.
        at: row of each of t terms, ``(t,)``.
        weights: of each term, ``(t,)``.
        sums: the total that each term is in, ``(t,)``.
        values: of the totals, ``(M,)``.
        names: of the totals.

    Returns:
        Their names, with both numbers where every reading is known and they differ: a fit may refuse them.

    Raises:
        ValueError: if one of a column without negative values is below the sum of what is known of it.
    """
    readings, missing = table.values[:, column], np.isnan(table.values[at, column])
    known = np.bincount(sums, weights * np.nan_to_num(readings[at]), minlength=len(values))
    counts = np.stack([np.bincount(sums, each, minlength=len(values)) for each in (missing, ~missing)])
    partly, little = (counts > 0).all(axis=0), _ROUNDING * np.maximum(np.abs(values), np.abs(known))
    wrong = np.flatnonzero(partly & (known > values + little))
    if len(wrong) and not ((weights < 0.0).any() or (readings < 0.0).any()):
        m = wrong[0]
        raise ValueError(
            f"totals: {names[m]} is {values[m]:g}, and what is known of it is {known[m]:g} already, of a column "
            "without negative values: correct one of them, or leave the total out"
        )
    differs = (counts[0] == 0) & (np.abs(known - values) > little)
    both = (f" ({value:.6g}, by its readings {read:.6g})" for value, read in zip(values, known, strict=True))
    return tuple(name + end * bool(differ) for name, end, differ in zip(names, both, differs, strict=True))
