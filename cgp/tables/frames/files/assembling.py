"""Rows and columns as one frame, where in the file each of its cells is, and times at which no row is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import counted, said_times
from cgp.tables.frames.gaps import JITTER, absent_between, usual_distance
from cgp.tables.frames.periods import are_set_back, period_of

from .columns import Columns
from .options import ReadOptions, UnclearError, option
from .rows import Rows, holds_times_of_day

__all__ = ["FEW_REPEATS", "Assembled", "absent_times", "pivoted", "said_step", "usual_step", "wide"]

FEW_REPEATS = 0.05  # of the rows
_SERIES_SHARE = 0.2  # of the rows, that distinct names of series may be
_HOURS = 24
_WIDER = 1.5  # of the rows' distance: months are not of one length
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_MONTH = 28 * 86_400, 31 * 86_400


class Assembled(NamedTuple):
    """A frame and the places of its cells.

    Attributes:
        frame: numbers to fill, ``(n, P)`` and inputs; the index is of times or numbers where rows are known by one.
        inputs: columns of the frame that say where a row is; none for the index.
        places: row of the file of each value, -1 for none, ``(n, P)``.
        fields: column of the file of each column of the frame.
        series: name of the series of each column of the frame, where the file is long.
        series_field: column of the file with these names.
        is_adding: whether values without a place get a row.
        absent: what ``every`` would be so that rows are added that are not there; nothing where all are.
        lacking: what is said of these rows.
        notes: for the reader.
    """

    frame: Any
    inputs: list[str]
    places: NDArray[np.int64]
    fields: list[str]
    series: list[str]
    series_field: str
    is_adding: bool
    absent: str
    lacking: str
    notes: list[str]

    @property
    def values(self) -> Any:
        """The frame without inputs."""
        return self.frame.drop(columns=self.inputs)


def wide(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> Assembled:
    """The frame of a file with one row for each time; refused where times repeat."""
    import pandas as pd

    notes = _repeats(cells, rows, columns, options)
    labels = [*rows.labels.items()]
    index = pd.Index(labels[0][1], name=labels[0][0]) if len(labels) == 1 else cells.index
    places = pd.DataFrame({name: np.arange(len(cells)) for name in columns.numbers}, index=index)
    absent = lacking = ""
    if options.every is not None:
        places = _with_further(places, rows, options.every)
        notes = [*notes, *_if_between(places, rows)]
    elif rows.times is not None:
        count, step = _absent(rows.times)
        if count:
            absent = step
            lacking = f"{counted(count, 'row is', 'rows are')} not there, which {option('every', step)} adds"
    inputs = [name for name, _ in labels] if len(labels) > 1 else []
    frame = _frame(places, columns, [*places])
    frame = frame if not inputs else pd.concat([pd.DataFrame(rows.labels), frame], axis=1)
    is_adding = options.every is not None
    return Assembled(frame, inputs, places.to_numpy(), [*places], [], "", is_adding, absent, lacking, notes)


def pivoted(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> Assembled:
    """The frame of a file with one value in each row, a column for each series; refused where one has two values."""
    import pandas as pd

    series, *_, value = options.long
    ((time, label),) = rows.labels.items()
    if value not in columns.numbers:
        reason = columns.left.get(value, "what rows are known by")
        raise UnclearError(f"{value!r}: expected a column of numbers, got {reason}")
    keys = pd.MultiIndex.from_arrays([label, cells[series]])
    if (cells[series] == "").any() or keys.duplicated().any():
        twice = [*map(str, keys[keys.duplicated()][0])] if keys.duplicated().any() else "no name"
        raise UnclearError(f"expected one row for each {series!r} and {time!r}, got several: {twice}")
    order = [*dict.fromkeys(cells[series])]
    places = pd.Series(np.arange(len(cells)), index=keys).unstack(fill_value=-1)[order].rename_axis(columns=None)
    names = f"{', '.join(map(repr, order[:6]))}{' …' if len(order) > 6 else ''}"
    notes = [f"{counted(len(cells), 'line')} of {len(order)} series of {series!r}: {names}"]
    absent = lacking = ""
    if options.every is not None:
        places = _with_further(places, rows, options.every)
    else:
        further, step = (0, "") if rows.times is None else _absent(rows.times)
        if count := int((places < 0).sum(axis=None)) + further * len(order):
            absent = step
            adds = f" ({option('every', step)} adds rows)" if step else ""
            one, more = "value has no row of its own: it is", "values have no row of their own: they are"
            lacking = f"{counted(count, one, more)} left out of the file, not of sums{adds}"
    fields = [value] * len(order)
    frame = _frame(places, columns, fields).rename_axis(index=time)
    is_adding = options.every is not None
    return Assembled(frame, [], places.to_numpy(), fields, order, series, is_adding, absent, lacking, notes)


def absent_times(times: Any, every: str) -> Any:
    """Times at which no row is: slots of a grid, and where rows are at none, evenly between two that are far apart.

    Args:
        times: of rows that should be at equal distances, a series of pandas.
        every: this distance, or a part of it.

    Returns:
        An index of pandas. As many are between two rows as :func:`~cgp.tables.frames.gaps.absent_between` counts where
        rows are at regular distances, which may drift against any grid, as those of a logger do.
    """
    import pandas as pd

    zone = times.dt.tz
    local = pd.DatetimeIndex(times.dt.tz_localize(None)).unique().sort_values()
    slots = _slots(local, every)
    edges = slots[:-1] + (slots[1:] - slots[:-1]) / 2
    slot = edges.searchsorted(local, side="right")
    free = slots[np.bincount(slot, minlength=len(slots)) == 0]
    wanted = _wanted_between(local, slots) if _is_fixed(_offset(every)) and len(slots) > 1 else None
    if wanted is None:
        return free.tz_localize(zone)
    is_near = np.abs(local - slots[slot]) <= JITTER * (slots[1] - slots[0])
    before = local.searchsorted(free) - 1  # the row that a free slot comes after
    fits = (np.bincount(before, minlength=len(wanted)) == wanted) & (2 * is_near.sum() >= len(local))
    apart = (local[1:] - local[:-1]) / (wanted + 1)
    even = [local[row] + number * apart[row] for row in np.flatnonzero(~fits) for number in range(1, wanted[row] + 1)]
    return free[fits[before]].append(pd.DatetimeIndex(even, dtype=free.dtype)).sort_values().tz_localize(zone)


def _wanted_between(local: Any, slots: Any) -> NDArray[np.int64] | None:
    """How many rows should be between successive ones; None if they are irregular or no multiple of a slot apart."""
    apart = ((local[1:] - local[:-1]) / (slots[1] - slots[0])).to_numpy()
    further, usual = absent_between(apart), usual_distance(apart)
    parts = round(usual)
    return None if further is None or parts < 1 or abs(usual - parts) > JITTER else (further + 1) * parts - 1


def usual_step(times: Any) -> float:
    """The most frequent distance of times that differ, or nearly so, in seconds, NaN for fewer than two."""
    return usual_distance(_distances(times))


def _distances(times: Any) -> NDArray[np.float64]:
    """Those of successive times that differ, in seconds, in the order of the times."""
    return np.asarray(times.drop_duplicates().sort_values().diff().dt.total_seconds().dropna(), dtype=np.float64)


def said_step(seconds: float) -> str:
    """A distance in time as text, such as 10 min."""
    if _MONTH[0] <= seconds <= _MONTH[1]:
        return "1 month"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.4g} {unit}"


def _frame(places: Any, columns: Columns, fields: list[str]) -> Any:
    """The values at their places, NaN where there is none."""
    import pandas as pd

    read = [columns.numbers[field].values.to_numpy() for field in fields]
    at = places.to_numpy().T
    values = [np.where(place >= 0, value[place], np.nan) for place, value in zip(at, read, strict=True)]
    return pd.DataFrame(np.column_stack(values), index=places.index, columns=places.columns)


def _with_further(places: Any, rows: Rows, every: str) -> Any:
    """Places with those of rows that are not there, in the order of time."""
    import pandas as pd

    if rows.times is None:
        known = ", ".join(map(repr, rows.labels)) or "their order"
        raise UnclearError(f"{option('every', every)}: expected rows that are known by times, got {known}")
    _refuse_unfit(rows.times, every)
    added = absent_times(rows.times, every).rename(places.index.name)
    return pd.concat([places, pd.DataFrame(-1, index=added, columns=places.columns)]).sort_index(kind="stable")


def _if_between(places: Any, rows: Rows) -> list[str]:
    """What is said of further rows between rows that are at their usual distance: nothing where there are none."""
    usual = usual_step(rows.times)
    if not _WIDER * usual_step(places.index.to_series()) < usual:
        return []
    said = f"rows of the file are mostly {said_step(usual)} apart, and sums count each further one between two of them"
    return [f"{said} as a reading, totals of rain, too"]


def _refuse_unfit(times: Any, every: str) -> None:
    """Refuse a distance clearly larger than that of rows that are mostly equally far apart, or no part of it."""
    import pandas as pd

    slots, step = _slots(pd.DatetimeIndex(times.dt.tz_localize(None)).sort_values(), every), usual_step(times)
    wanted = slots.to_series().diff().dt.total_seconds().median() if len(slots) > 1 else np.inf
    near = np.abs((distances := _distances(times)) - step) <= JITTER * step
    if 2 * near.sum() <= len(distances) + 1:  # as many as there are rows
        return
    if wanted > _WIDER * step:
        raise UnclearError(f"{option('every', every)}: expected at most the distance of the rows, {said_step(step)}")
    if _is_fixed(_offset(every)) and abs(step - round(step / wanted) * wanted) > JITTER * wanted:
        raise UnclearError(
            f"{option('every', every)}: expected a step that divides the distance of the rows, {said_step(step)}, such "
            f"as {_as_every(times, step / 2)}: most rows would be at none of its times"
        )


def _slots(local: Any, every: str) -> Any:
    """Times at equal distance from the first to the last, at round numbers where the rows nearly are."""
    import pandas as pd

    try:
        offset = _offset(every)
        if offset.n < 1:
            raise ValueError("a negative frequency")
    except (ValueError, AttributeError, TypeError) as error:
        raise UnclearError(
            f"expected a duration such as {option('every', '1h')}, 15min or 1D, got {every!r}"
        ) from error
    if not _is_fixed(offset):
        return pd.date_range(local[0], local[-1], freq=offset)
    step = pd.Timedelta(days=offset.n) if isinstance(offset, pd.offsets.Day) else pd.Timedelta(offset)
    start = local[0].normalize()
    apart = ((local - start) / step).to_numpy()
    off = apart - np.round(apart)
    if np.ptp(off) > 0 and np.abs(off).max() <= JITTER:
        phase = 0.0
    else:
        middle = np.angle(np.exp(2j * np.pi * apart).mean()) / (2 * np.pi)  # half a step early is half a step late
        phase = float(np.median(apart - np.round(apart - middle)))
    first, last = (round(float(place - phase)) for place in (apart[0], apart[-1]))
    return pd.DatetimeIndex([start + phase * step + number * step for number in range(first, last + 1)])


def _is_fixed(offset: Any) -> bool:
    """Whether a distance is of one length, as months are not."""
    import pandas as pd

    return isinstance(offset, pd.offsets.Day | pd.offsets.Tick)


def _offset(every: str) -> Any:
    """A distance of rows, such as 1h or 1 hour, as pandas has it."""
    from pandas.tseries.frequencies import to_offset

    return to_offset(period_of(every))


def _absent(times: Any) -> tuple[int, str]:
    """How many rows are not there between times at regular distances, and what ``every`` adds them."""
    further = absent_between(_distances(times))
    return (0, "") if further is None or not len(further) else (int(further.sum()), _as_every(times, usual_step(times)))


def _as_every(times: Any, seconds: float) -> str:
    """A distance as a frequency of pandas; months where times begin or end them."""
    if _MONTH[0] <= seconds <= _MONTH[1] and (times.dt.is_month_start.all() or times.dt.is_month_end.all()):
        return "MS" if times.dt.is_month_start.all() else "ME"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds % size == 0.0), _UNITS[-1])
    return f"{seconds / size:g}{unit.replace('d', 'D')}"


def _repeats(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> list[str]:
    """Refuse times that repeat because rows are of several series; few others are said."""
    repeated = next(iter(rows.labels.values())).duplicated() if len(rows.labels) == 1 else np.zeros(0, dtype=bool)
    count = int(repeated.sum())
    if not count:
        return []
    (time, label) = next(iter(rows.labels.items()))
    others, once = cells.drop(columns=rows.columns), ~cells.duplicated()
    names = _names_of_series(others[once], label[once], columns, count / len(cells))
    rows_repeat = counted(count, "row repeats", "rows repeat")
    if options.repeats:
        words = [option("long", [name, *rows.columns, "VALUE"]) for name in names if name in columns.left]
        return [f"{rows_repeat} a time{f' ({words[0]} if these are several series)' if words else ''}"]
    clock = next((name for name in others if holds_times_of_day(others[name])), None)
    has_clock = clock is not None and rows.times is not None and len(rows.columns) == 1
    if has_clock:
        both, besides = label.astype(str) + cells[clock], others.drop(columns=clock)
        names = (
            _names_of_series(besides[once], both[once], columns, count / len(cells)) if any(both.duplicated()) else []
        )
    value = next((name for name in columns.numbers if name not in names), "VALUE")
    if has_clock:
        ways = [f"{option('long', [name, time, clock, value])} if {name!r} names series" for name in names[:1]]
        raise UnclearError(
            f"{count} of {len(cells)} rows repeat {time!r}, and {clock!r} has times of day: "
            f"say {', or '.join([*ways, option('index', [time, clock])])}, each row a date and a time of day"
        )
    if names:
        texts = cells[names[0]]
        is_hour = rows.times is not None and texts.str.fullmatch(r"\d{1,2}").all() and texts.astype(int).max() <= _HOURS
        hours = f", {option('index', [rows.columns[0], names[0]])} if it holds the hours" if is_hour else ""
        raise UnclearError(
            f"{count} of {len(cells)} rows repeat a time, and {names[0]!r} tells them apart: "
            f"say {option('long', [names[0], *rows.columns, value])} if it names series, each row one value"
            f"{hours}, or {option('repeats')} if these are readings of the same thing"
        )
    if count > FEW_REPEATS * len(cells):
        raise UnclearError(
            f"{count} of {len(cells)} rows repeat {time!r}: say {option('repeats')} if these are readings of one thing"
        )
    (first,) = said_times(label[repeated].head(1))
    at_night = rows.times is not None and are_set_back(label[repeated].array)
    clocks = ", in a night when clocks are set back: both are readings" if at_night else ""
    return [f"{rows_repeat} a time, the first {first}{clocks}"]


def _names_of_series(others: Any, label: Any, columns: Columns, share: float) -> list[str]:
    """Columns of words, or of few whole numbers where many times repeat, that tell rows of the same time apart."""
    import pandas as pd

    found = []
    for name, texts in others.items():
        most = max(_HOURS, _SERIES_SHARE * len(texts))
        is_word = columns.left.get(name, "").startswith(("words", "numbers", "whole"))
        is_few = share >= _SERIES_SHARE and texts.nunique() <= most and texts.str.fullmatch(r"\d+").all()
        pairs = pd.MultiIndex.from_arrays([texts, label])
        if (is_word or is_few) and 1 < texts.nunique() < len(texts) and not pairs.duplicated().any():
            found.append(str(name))
    return found
