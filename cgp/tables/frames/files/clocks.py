"""Times of rows in one column, in a date and a time of day, or in the columns of a calendar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .options import ReadOptions
from .times import TimeForm, Times, read_times, time_of_day

__all__ = ["Rows", "as_times", "calendar_rows", "dated_rows", "plain_name", "read_compact"]

_DATED = frozenset("date datum time timestamp datetime day tag fecha data zeit jour dato".split())  # noqa: SIM905
_CALENDAR = ("year", "month", "day", "hour", "minute", "second")
_COMPACT = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_DAY_OF_YEAR = ("doy", "yday", "dayofyear", "day_of_year", "julian")
_HOURS = frozenset(("hour", "hr", "time", "stunde"))  # names of whole hours beside a date

Writer = Callable[[Any], dict[str, list[str]]]


class Rows(NamedTuple):
    """What rows are known by.

    Attributes:
        labels: a series of pandas for each input: times or numbers; none for the order of the rows.
        columns: of the table, that these are made of.
        said: how, in words.
        write: the text of these columns for further times, None where there are no times.
    """

    labels: dict[str, Any]
    columns: list[str]
    said: str
    write: Writer | None = None

    @property
    def times(self) -> Any:
        """The times of the rows, or None."""
        labels = [*self.labels.values()]
        return labels[0] if len(labels) == 1 and labels[0].dtype.kind == "M" else None


def as_times(column: Any, options: ReadOptions, *, is_asked: bool = False) -> Times | None:
    """A column as times, or None; whole numbers are dates where they are named so or asked for."""
    if column.str.fullmatch(r"\d+").all() and options.time_format is None:
        is_dated = is_asked or plain_name(column.name) in _DATED or _is_first_and_grows(column)
        return read_compact(column) if is_dated else None
    return read_times(column, str(column.name), options.dayfirst, options.time_format)


def read_compact(cells: Any) -> Times | None:
    """A column such as 20240131 or 202401311200 as times, or None if some of them are none."""
    import pandas as pd

    texts = pd.Series(cells.unique())
    widths = {len(text) for text in texts}
    if len(widths) != 1 or not texts.str.fullmatch(r"(?:1[89]|2[01])\d+").all():
        return None
    form = _COMPACT.get(widths.pop())
    values = None if form is None else pd.to_datetime(texts, format=form, errors="coerce")
    if values is None or form is None or values.isna().any():
        return None
    return Times(cells.map(values.set_axis(texts)), TimeForm(form, (texts[0], texts[0]), ""))


def _is_first_and_grows(column: Any) -> bool:
    return bool(column.str.len().isin([8, 10, 12, 14]).all() and column.is_monotonic_increasing and column.is_unique)


def dated_rows(cells: Any, date: str, clock: str, options: ReadOptions, *, is_asked: bool = False) -> Rows | None:
    """Dates in one column and times of day in another, together; whole hours where they are named so, or asked for."""
    days, hours = cells[date], cells[clock]
    if (days == "").any() or (hours == "").any():
        return None
    times, hour = as_times(days, options, is_asked=True), time_of_day(hours)
    if hour is None and (is_asked or plain_name(clock) in _HOURS) and hours.str.fullmatch(r"\d{1,2}").all():
        hour = _whole_hours(hours)
    if times is None or hour is None or not (times.values == times.values.dt.normalize()).all():
        return None
    said = ", ".join(filter(None, [times.form.said, f"as {times.form.format} {hour.form.format}"]))

    def write(further: Any) -> dict[str, list[str]]:
        return {date: times.form.write(further), clock: hour.form.write(further)}

    return Rows({f"{date} {clock}": times.values + hour.values}, [date, clock], said, write)


def _whole_hours(hours: Any) -> Times | None:
    import pandas as pd

    numbers = hours.astype(int)
    if numbers.max() > 24:
        return None
    form = TimeForm("%H" if hours.str.len().min() == 2 else "%k", (hours.iloc[0],), "")
    return Times(pd.to_timedelta(numbers, unit="h"), form)


def calendar_rows(cells: Any) -> Rows | None:
    """Columns of a year and a month or a day of the year, and further parts of a time if there are such."""
    import pandas as pd

    names = {plain_name(name): name for name in cells}
    day = next((name for name in _DAY_OF_YEAR if name in names), None)
    parts = [unit for unit in _CALENDAR if unit in names]
    if "year" not in parts or not (day or "month" in parts):
        return None
    chosen = [names[unit] for unit in (*parts, *([day] if day else []))]
    frame = cells[chosen]
    if not frame.apply(lambda column: column.str.fullmatch(r"\d+").all()).all():
        return None
    numbers = {unit: frame[names[unit]].astype(int) for unit in parts}
    if day:
        numbers |= {"month": 1, "day": 1}
    try:
        start = pd.to_datetime(pd.DataFrame({"day": 1} | numbers))
    except ValueError:
        return None
    times = start + pd.to_timedelta(frame[names[day]].astype(int) - 1, unit="D") if day else start
    widths = {name: frame[name].str.len() for name in chosen}

    def write(further: Any) -> dict[str, list[str]]:
        values = {names[unit]: [getattr(time, unit) for time in further] for unit in parts}
        values |= {names[day]: [int(time.strftime("%j")) for time in further]} if day else {}
        padded = {name: int(widths[name].max()) if widths[name].nunique() == 1 else 1 for name in chosen}
        return {name: [f"{number:0{padded[name]}d}" for number in values[name]] for name in chosen}

    return Rows({" ".join(chosen): times}, chosen, "", write)


def plain_name(name: Any) -> str:
    """The name of a column, to be compared with others."""
    return str(name).strip().lower()
