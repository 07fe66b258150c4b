"""The columns of a table: which are filled, and which say where or when a row is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Columns", "usable_columns"]

# Names of numbers that rows are known by
_COUNTED = (
    "",
    "index",
    "id",
    "row",
    "time",
    "t",
    "timestamp",
    "epoch",
    "date",
    "seconds",
    "second",
    "minutes",
    "minute",
    "hours",
    "hour",
    "days",
    "day",
    "year",
)
_PLACES = (
    ("latitude", "longitude"),
    ("lat", "lon"),
    ("lat", "lng"),
    ("lat", "long"),
    ("easting", "northing"),
    ("x", "y"),
)
_CALENDAR = ("year", "month", "day", "hour", "minute", "second")
_CLOCK = r"^\s*(\d{1,2})[:.h](\d{2})(?:[:.](\d{2}))?\s*$"
_HOURS = ("hour", "hr", "time")  # names of whole hours beside a date


class Columns(NamedTuple):
    """The columns of a table that are used.

    Attributes:
        source: the table that is written, with the rows that were added.
        frame: what is filled, with its inputs.
        inputs: columns that say where a row is; none for the index.
        gaps: values that are missing.
        notes: for the user, what was chosen and what is left as it is.
    """

    source: Any
    frame: Any
    inputs: list[str]
    gaps: int
    notes: list[str]


class _Inputs(NamedTuple):
    """What rows are known by.

    Attributes:
        values: of each input, by name; where several columns make a time, the name is theirs together.
        columns: of the table, that these are made of.
    """

    values: dict[str, Any]
    columns: list[str]


def usable_columns(
    frame: Any,
    index: list[str] | None = None,
    inputs: list[str] | None = None,
    codes: Sequence[float] = (),
    every: str | None = None,
) -> Columns:
    """The columns of a table that can be filled, and its inputs.

    Args:
        frame: as it was read.
        index: the column with the times or numbers of rows, or those of date and time; None to look for them.
        inputs: columns that say where a row is, or None.
        codes: numbers that stand for what is missing.
        every: distance of the rows in time, such as "1h"; rows that are not there are added.

    Returns:
        The columns; those of text and those without a value are left out.

    Raises:
        ValueError: if a column is not there, or nothing is missing.
    """
    absent = [name for name in [*(index or []), *(inputs or [])] if name not in frame.columns]
    if absent:
        raise ValueError(f"expected columns of the table, {[*frame.columns]}, got {absent}")
    chosen = _named(frame, inputs) if inputs else _joined(frame, index) if index else _looked_for(frame)
    if every is not None:
        frame, chosen = _with_rows(frame, chosen, every)
    columns: dict[str, Any] = {}
    marks: dict[str, str] = {}
    for name in frame.columns.difference(chosen.columns, sort=False):
        numbers, mark = _numbers(frame[name], frame.attrs.get("decimal", "."))
        if numbers is not None:
            columns[name] = numbers.where(~numbers.isin(codes))
            marks |= {name: mark} if mark else {}
    kept = {name: column for name, column in columns.items() if column.notna().any()}
    gaps = sum(int(column.isna().sum()) for column in kept.values())
    others = [name for name in frame.columns if name not in (*chosen.columns, *kept)]
    if not kept:
        texts = ", ".join(f"{name!r} with {value!r}" for name in others for value in frame[name].dropna()[:1])
        raise ValueError(f"expected a column of numbers, got none: {texts or 'only what rows are known by'}")
    if not gaps:
        raise ValueError(
            f"expected gaps in columns of numbers, {[*kept]}, got none{_missing_rows(chosen)}; codes are named by "
            "--missing -200"
        )
    known = ", ".join(map(repr, chosen.values))
    where = f"rows are known by {known}" if known else "rows are taken in their order (--index, --inputs: by columns)"
    notes = [f"{len(frame)} rows, {len(kept)} columns, {gaps} values missing; {where}"]
    notes += [f"left as they are: {others} (no numbers)"] if others else []
    notes += [f"taken for missing: {mark!r} in {name!r}" for name, mark in marks.items()]
    table = frame[[]].assign(**chosen.values, **kept)
    return Columns(frame, table if chosen.values else table.reset_index(drop=True), [*chosen.values], gaps, notes)


def _named(frame: Any, names: list[str]) -> _Inputs:
    """Columns as they are, with times for what can be read as such."""
    read = {name: _times(frame[name]) for name in names}
    return _Inputs({name: frame[name] if times is None else times for name, times in read.items()}, names)


def _joined(frame: Any, names: list[str]) -> _Inputs:
    """One column, or a date and a time of day."""
    if len(names) == 1:
        return _named(frame, names)
    dates, clock = _times(frame[names[0]]), _time_of_day(frame[names[1]])
    if len(names) > 2 or dates is None or clock is None:
        raise ValueError(f"--index: expected a column, or one of dates and one of times of day, got {names}")
    return _Inputs({" ".join(names): dates + clock}, names)


def _looked_for(frame: Any) -> _Inputs:
    """Times, in one column or several; a first column of growing numbers whose name says so; or places."""
    for look in (_times_in_columns, _calendar, _counted, _places):
        result = look(frame)
        if result is not None:
            return result
    return _Inputs({}, [])


def _times_in_columns(frame: Any) -> _Inputs | None:
    """The first column of times, if it hardly repeats; or the first of dates, with one of times of day."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "biuf"]
    read = {name: times for name in texts if (times := _times(frame[name])) is not None}
    for name, times in read.items():
        if 2 * times.nunique() >= len(frame):
            return _Inputs({name: times}, [name])
    for date, times in read.items():
        for name in frame.columns.drop(date):
            clock = _time_of_day(frame[name]) if (times == times.dt.normalize()).all() else None
            if clock is not None and 2 * (times + clock).nunique() >= len(frame):
                return _Inputs({f"{date} {name}": times + clock}, [date, name])
    return None


def _calendar(frame: Any) -> _Inputs | None:
    """Columns of year, month and day, and of hour, minute and second if there are such."""
    import pandas as pd

    names = {str(name).lower(): name for name in frame.columns}
    parts = {unit: names[unit] for unit in _CALENDAR if unit in names}
    if not {"year", "month", "day"} <= set(parts):
        return None
    try:
        times = pd.to_datetime(frame[[*parts.values()]].set_axis([*parts], axis=1))
    except (ValueError, TypeError):
        return None
    return None if times.isna().any() else _Inputs({" ".join(map(str, parts.values())): times}, [*parts.values()])


def _counted(frame: Any) -> _Inputs | None:
    name = frame.columns[0]
    column = frame[name]
    is_named = str(name).lower() in _COUNTED or str(name).startswith("Unnamed")
    if is_named and column.dtype.kind in "iuf" and column.notna().all() and column.is_monotonic_increasing:
        return _Inputs({name: column}, [name])
    return None


def _places(frame: Any) -> _Inputs | None:
    names = {str(name).lower(): name for name in frame.columns}
    for pair in _PLACES:
        chosen = [names[each] for each in pair if each in names]
        if len(chosen) == 2 and all(frame[name].dtype.kind in "iuf" and frame[name].notna().all() for name in chosen):
            return _Inputs({name: frame[name] for name in chosen}, chosen)
    return None


def _numbers(column: Any, decimal: str) -> tuple[Any, str]:
    """A column of numbers, or of text that is numbers but for one mark without letters or digits, and that mark."""
    import pandas as pd

    if column.dtype.kind in "biuf":
        return column, ""
    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.DatetimeTZDtype):
        return None, ""
    # A mark makes text of a column, and so keeps the file's reader from reading its decimal commas.
    points = column.map(lambda value: value.replace(decimal, ".") if isinstance(value, str) else value)
    numbers = pd.to_numeric(points, errors="coerce")
    marks = column[numbers.isna() & column.notna()].astype(str).str.strip().unique()
    if numbers.isna().all() or len(marks) > 1 or any(any(map(str.isalnum, mark)) for mark in marks):
        return None, ""
    return numbers, str(marks[0]) if len(marks) else ""


def _times(column: Any) -> Any:
    """A column of text or dates as times, or None if it is none; the day is first where the month cannot be."""
    import pandas as pd

    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.DatetimeTZDtype):
        return column
    if column.dtype.kind in "biuf" or column.isna().any() or column.astype(str).str.fullmatch(_CLOCK).any():
        return None
    zoned = bool(column.astype(str).str.contains(r"[+-]\d\d:?\d\d$").any())
    read = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of dates whose form is guessed
        for day_first in (False, True):
            try:
                read.append(pd.to_datetime(column, utc=zoned, dayfirst=day_first))
            except (ValueError, TypeError):
                continue
    # 03/04 is either: rows that are in order in one reading only are meant so.
    return next((times for times in read if times.is_monotonic_increasing), read[0] if read else None)


def _time_of_day(column: Any) -> Any:
    """A column such as 18:30, 18.30.00 or, named so, whole hours, as durations, or None if it is none."""
    import pandas as pd

    if column.isna().any() or column.dtype.kind in "bf":  # 12.25 is a number
        return None
    if column.dtype.kind in "iu":
        is_hour = str(column.name).lower() in _HOURS and column.between(0, 24).all()
        return pd.to_timedelta(column, unit="h") if is_hour else None
    parts = column.astype(str).str.extract(_CLOCK)
    if parts[[0, 1]].isna().any(axis=None):
        return None
    hours, minutes, seconds = (parts[part].fillna("0").astype(int) for part in range(3))
    if max(hours.max() / 24, minutes.max() / 59, seconds.max() / 59) > 1:
        return None
    return pd.to_timedelta(3600 * hours + 60 * minutes + seconds, unit="s")


def _with_rows(frame: Any, inputs: _Inputs, every: str) -> tuple[Any, _Inputs]:
    """A table with the rows that it does not have, at times of equal distance, which stand in one column then."""
    import pandas as pd

    times = _only_times(inputs)
    if times is None:
        raise ValueError(f"--every: expected rows that are known by times, got {[*inputs.values]}")
    try:
        grid = pd.date_range(times.min(), times.max(), freq=every)
    except ValueError as error:
        raise ValueError(f"--every: expected a duration such as 1h, 15min or 1D, got {every!r}") from error
    added = grid.difference(pd.DatetimeIndex(times))
    rest = frame.drop(columns=inputs.columns)
    rest.insert(0, times.name, times)
    whole = pd.concat([rest, pd.DataFrame({times.name: added})]).sort_values(times.name, kind="stable")
    whole = whole.reset_index(drop=True)
    whole.attrs = frame.attrs
    return whole, _Inputs({times.name: whole[times.name]}, [times.name])


def _only_times(inputs: _Inputs) -> Any:
    """The times of the rows by the name of their column, or None if they are known by anything else."""
    if len(inputs.values) != 1:
        return None
    ((name, times),) = inputs.values.items()
    return times.rename(name) if times.dtype.kind == "M" else None


def _missing_rows(inputs: _Inputs) -> str:
    """How many rows are not there between equally spaced times, as text."""
    times = _only_times(inputs)
    apart = None if times is None else times.sort_values().diff().dropna().dt.total_seconds()
    if apart is None or not apart.median() > 0:
        return ""
    count = int((apart / apart.median()).round().sub(1).clip(lower=0).sum())
    return f", but {count} rows are not there, which --every adds" if count else ""
