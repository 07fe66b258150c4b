"""What the rows of a table are known by: times in one column or several, numbers, places, or their order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from cgp.spelling import counted

from .numbers import form_of_numbers, kind_of, looks_like_number, main_kind
from .options import ReadOptions, UnclearError, check_columns, option
from .times import DECIMAL_HOURS, DOTTED_MONTH, TimeForm, Times, looks_like_time, read_times

__all__ = ["Rows", "calendar_columns", "holds_times_of_day", "rows_of"]

_CALLED_TIME = frozenset({"date", "datum", "time", "timestamp", "datetime", "zeit", "fecha"})
_DATED = _CALLED_TIME | {"day", "tag", "data", "jour", "dato"}
_COUNTED = frozenset(  # names of numbers that rows are known by
    """index id row nr no time t timestamp epoch date seconds second minutes minute hours hour days day year""".split()  # noqa: SIM905
)
_HOURS = ("hour", "hr", "time", "stunde")  # names of whole hours beside a date
_CALENDAR = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}
_CALENDAR |= dict.fromkeys(("doy", "yday", "dayofyear", "day_of_year", "julian"), "%j")
_PARTS = {"%Y": "year", "%m": "month", "%d": "day", "%H": "hour", "%M": "minute", "%S": "second", "%j": "day_of_year"}
_PLACES = ({"latitude", "longitude"}, {"lat", "lon"}, {"lat", "lng"}, {"lat", "long"}, {"easting", "northing"}, {*"xy"})
_MIDNIGHT = r"[ T]00?:00(?::00(?:\.0+)?)?$"  # that dates of workbooks end with
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AaPp][Mm])?"
_SEEN = 400  # cells that the kind of a column is known from


class Rows(NamedTuple):
    """What rows are known by.

    Attributes:
        labels: a series of pandas for each input: times or numbers; none for the order of the rows.
        columns: of the table, that these are made of.
        said: how, in words.
        forms: how each of these columns is written, where they are times.
    """

    labels: dict[str, Any]
    columns: list[str]
    said: str = ""
    forms: tuple[TimeForm, ...] = ()

    @property
    def times(self) -> Any:
        """The times of the rows, or None."""
        return next(iter(self.labels.values())) if self.forms else None

    @property
    def is_reversed(self) -> bool:
        """Whether the times go backwards."""
        return bool(self.times.is_monotonic_decreasing and not self.times.is_monotonic_increasing)

    def write(self, times: Any) -> dict[str, list[str]]:
        """The text of the columns for further times."""
        return {name: form.write(times) for name, form in zip(self.columns, self.forms, strict=True)}

    def dates(self, times: Any) -> dict[str, Any]:
        """Further times for each of the columns: their days alone where a column has no times of day."""
        return {
            name: times if re.search("%[HI]", form.format) or not self.forms[1:] else times.normalize()
            for name, form in zip(self.columns, self.forms, strict=True)
        }


def rows_of(cells: Any, options: ReadOptions) -> Rows:
    """What the rows of a frame of text are known by."""
    index = () if options.index is None or isinstance(options.index, bool) else options.index
    named = [*(options.long[1:-1] or index)]
    check_columns(options, ("index", "inputs"), cells)
    if named:
        return _named(cells, named, options)
    if options.inputs:
        return Rows({name: _label(cells[name], options)[0] for name in options.inputs}, [*options.inputs])
    if options.index is None:
        others = cells.drop(columns=[name for name in options.leave if name in cells])
        for look in (_in_columns, _calendar, _counted, _places):
            if (found := look(others, options)) is not None:
                return found
        _refuse_unread(others)
    return Rows({}, [])


def calendar_columns(cells: Any, rows: Rows) -> dict[str, str]:
    """Columns that are called a part of a time, such as month, and have that of their rows: why each is left."""
    import pandas as pd

    found: dict[str, str] = {}
    for name in () if rows.times is None else cells.columns.drop(rows.columns):
        part = _PARTS.get(_CALENDAR.get(_plain(name), ""))
        if part is None:
            continue
        given = cells[name] != ""
        if given.any() and (pd.to_numeric(cells[name], errors="coerce") == getattr(rows.times.dt, part))[given].all():
            found[str(name)] = "part of the times of the rows"
    return found


def holds_times_of_day(column: Any) -> bool:
    """Whether a column has times of day, such as 13:00, where it has anything."""
    texts = column[column != ""]
    return bool(len(texts) and texts.str.fullmatch(_CLOCK).all())


def _named(cells: Any, names: list[str], options: ReadOptions) -> Rows:
    if len(names) == 1:
        label, times = _label(cells[names[0]], options)
        return Rows({names[0]: label}, names) if times is None else _timed(names[0], times)
    if (joined := _joined(cells[names], options, is_asked=True)) is None:
        days = cells[names[0]].str.removesuffix(_common_midnight(cells[names[0]]))
        pairs = zip(days, *(cells[name] for name in names[1:]), strict=True)
        odd = next((texts for texts in pairs if not looks_like_time(" ".join(texts))), ())
        such = f" with {', '.join(map(repr, odd))} in a row" if odd else ""
        asked = "long" if options.long else "index"
        raise ValueError(f"{asked}: expected one column, or one of dates and one of times of day, got {names}{such}")
    return joined


def _label(column: Any, options: ReadOptions) -> tuple[Any, Times | None]:
    """A column as times or numbers, for every row."""
    if empty := int((column == "").sum()):
        raise UnclearError(f"{column.name!r}: expected a time or a number in every row, got none in {empty}")
    if (times := _as_times(column, options, is_asked=True)) is not None:
        return times.values, times
    if (numbers := _as_numbers(column, options)) is None:
        _refuse_odd_ones(column)
        raise UnclearError(
            f"{column.name!r}: expected times or numbers, got {column.iloc[0]!r}: "
            f"{option('time_format', '%d.%m.%Y %H:%M')} says how times are written"
        )
    return numbers, None


def _as_times(column: Any, options: ReadOptions, *, is_asked: bool = False) -> Times | None:
    """A column as times, or None; whole numbers are dates where they are named so or asked for, or come first."""
    grows = column.str.len().isin([8, 10, 12, 14]).all() and column.is_monotonic_increasing and column.is_unique
    return read_times(column, options, is_whole=is_asked or _plain(column.name) in _DATED or bool(grows))


def _as_numbers(column: Any, options: ReadOptions) -> Any:
    """A column as numbers, whole ones as integers, or None if it is none."""
    if not column.map(looks_like_number).all():
        return None
    if column.str.fullmatch(r"[-+]?\d{1,15}").all():
        return column.astype("int64")
    texts = [*column.unique()]
    form = form_of_numbers({str(column.name): texts}, options, options.delimiter or ",")
    return column.map(dict(zip(texts, form.numbers(texts), strict=True))).astype("float64")


def _timed(name: str, times: Times) -> Rows:
    said = ", ".join(filter(None, [times.form.said, f"as {times.form.format}"]))
    return Rows({name: times.values}, [name], said, (times.form,))


def _joined(cells: Any, options: ReadOptions, *, is_asked: bool = False) -> Rows | None:
    """Times in several columns: of a calendar, by their names; or dates, and times of day or whole hours."""
    names = [*cells]
    if _plain(names[-1]) in _HOURS and _are_decimal(cells[names[-1]]):
        return _with_decimal_hours(cells, options)
    midnight = _common_midnight(cells[names[0]])
    days = cells.assign(**{names[0]: cells[names[0]].str.removesuffix(midnight)})
    texts = days[names[0]].str.cat(cells[names[1:]], sep=" ").rename(" ".join(names))
    form, hours = options.time_format, cells[names[-1]]
    units = [_CALENDAR.get(_plain(name), "") for name in names]
    if form is None and all(units) and "%Y" in units:  # without a year a day may be a date
        form = " ".join(units)
    is_clock = is_asked or _plain(names[-1]) in _HOURS
    is_hour = form is None and is_clock and hours.str.fullmatch(r"\d{1,2}").all()
    if form is None and not is_hour and not hours.str.match(r"\d" if is_clock else r"\d{1,2}:\d\d").all():
        return None
    try:
        times = read_times(texts + ":00" if is_hour else texts, replace(options, time_format=form))
    except UnclearError:
        raise
    except ValueError:
        return None
    if times is None:
        return None
    return _apart(days, times, times.form.format.removesuffix(":%M" if is_hour else ""), midnight)


def _common_midnight(column: Any) -> str:
    """What the text of every date ends with where it has the time of day of midnight, as in workbooks."""
    end = re.search(_MIDNIGHT, column.iloc[0])
    return end[0] if end is not None and column.str.endswith(end[0]).all() else ""


def _are_decimal(hours: Any) -> bool:
    """Whether hours have fractions, such as 13.5."""
    return bool(hours.str.fullmatch(r"\d{1,2}([.,]\d+)?").all() and hours.str.contains(r"[.,]\d*[1-9]").any())


def _with_decimal_hours(cells: Any, options: ReadOptions) -> Rows | None:
    """Times whose last column is an hour with a fraction, beside a date or the parts of one."""
    import pandas as pd

    *names, last = cells
    if len(names) == 1:
        times = _as_times(cells[names[0]], options, is_asked=True)
        days = None if times is None else _timed(names[0], times)
    else:
        days = _joined(cells[names], options)
    if days is None:
        return None
    hours = pd.to_timedelta(cells[last].str.replace(",", ".").astype(float), unit="h")
    form = TimeForm(DECIMAL_HOURS, min(cells[last], key=len))
    return Rows(
        {" ".join(cells): (days.times + hours).dt.round("s")}, [*cells], f"{days.said} and hours", (*days.forms, form)
    )


def _apart(cells: Any, times: Times, form: str, midnight: str) -> Rows:
    """Rows of times in several columns, each with its words of the format, the first ones with their midnight."""
    words, forms = form.split(" "), []
    for sample in (min(cells[name], key=len) for name in cells):
        count = sample.count(" ") + 1
        forms.append(TimeForm(" ".join(words[:count]), sample))
        words = words[count:]
    forms[0] = TimeForm(forms[0].format + midnight, forms[0].sample + midnight)
    said = ", ".join(filter(None, [times.form.said, f"as {form}"]))
    return Rows({" ".join(cells): times.values}, [*cells], said, tuple(forms))


def _in_columns(cells: Any, options: ReadOptions) -> Rows | None:
    """The only column of times that hardly repeats; or one of dates, with one of times of day."""
    read, problems = _all_times(cells, options)
    whole = [name for name, times in read.items() if 2 * times.values.nunique() > len(cells)]
    naive = [read[name].values.dt.tz_localize(None) for name in whole]
    if any((each - naive[0]).nunique() > 1 for each in naive):  # not apart by a constant
        ways = " or ".join(option("index", [name]) for name in whole)
        raise UnclearError(f"there are {len(whole)} columns of times, {whole}: say {ways}")
    for date in read if not whole else ():
        for name in cells.columns.drop(date):
            joined = _joined(cells[[date, name]], options)
            if joined is not None and 2 * joined.times.nunique() > len(cells):
                return joined
    chosen = whole or [*read]
    if not chosen and problems and (options.time_format is None or len(problems) == len(cells.columns)):
        raise problems[0]
    return _timed(chosen[0], read[chosen[0]]) if chosen else None


def _all_times(cells: Any, options: ReadOptions) -> tuple[dict[str, Times], list[ValueError]]:
    """The columns of times, and what is wrong with those that nearly are."""
    read: dict[str, Times] = {}
    problems: list[ValueError] = []
    numbers = [name for name in cells if cells[name].map(lambda text: not text or looks_like_number(text)).all()]
    parts = [name for name in numbers if _plain(name) in ("year", "month")]
    for name in cells.columns.drop([name for name in parts if not cells[name].str.fullmatch(DOTTED_MONTH).all()]):
        try:
            times = None if (cells[name] == "").any() else _as_times(cells[name], options)
            if times is None and options.time_format is None:
                _refuse_odd_ones(cells[name])
        except ValueError as error:
            problems.append(error)
        else:
            read |= {} if times is None else {str(name): times}
    return read, problems


def _calendar(cells: Any, options: ReadOptions) -> Rows | None:
    """Columns of a year and a month or a day of the year, and further parts of a time if there are such."""
    chosen = [name for name in cells if _plain(name) in _CALENDAR]
    units = {_CALENDAR[_plain(name)] for name in chosen}
    return _joined(cells[chosen], options) if "%Y" in units and units & {"%m", "%j"} else None


def _counted(cells: Any, options: ReadOptions) -> Rows | None:
    """The first column, where its numbers grow and it is called as such a one, or not at all."""
    name = cells.columns[0]
    is_named = _plain(name) in _COUNTED
    if not is_named and name not in ("unnamed 1", "column 1"):
        return None
    numbers = _as_numbers(cells[name], options)
    if numbers is None or not numbers.is_monotonic_increasing or (name == "column 1" and numbers.diff().nunique() != 1):
        return None
    if not numbers.is_unique and is_named and not options.repeats:
        raise UnclearError(
            f"{name!r} grows, but repeats itself: say {option('long', ['SERIES', str(name), 'VALUE'])} for one value "
            f"in each row, {option('index', [str(name)])} {option('repeats')} for several readings at a time, "
            f"or {option('index', False)}"
        )
    return Rows({name: numbers}, [name]) if numbers.is_unique or options.repeats else None


def _places(cells: Any, options: ReadOptions) -> Rows | None:
    """Latitude and longitude or the like, in every row."""
    names = {_plain(name): name for name in cells}
    chosen = next(([names[each] for each in names if each in pair] for pair in _PLACES if pair <= {*names}), [])
    numbers = {name: _as_numbers(cells[name], options) for name in chosen}
    return Rows(numbers, chosen) if chosen and all(each is not None for each in numbers.values()) else None


def _refuse_odd_ones(column: Any) -> None:
    """Refuse a column of times of which a few are none, such as a Total below them."""
    if main_kind(column.iloc[:_SEEN]) != "time":
        return
    is_odd = (column.map(kind_of) != "time").to_numpy()
    if not 0 < is_odd.sum() <= min(0.1 * len(column) + 1, len(column) // 2):
        return
    first, last = int(is_odd.argmax()), int(is_odd[::-1].cumprod().sum())
    end = f": say {option('skip_footer', last)} if the table ends above" if last == is_odd.sum() else ": mend them"
    raise UnclearError(
        f"{column.name!r}: expected a time in every row, got {column.iloc[first]!r} in row {first + 1} "
        f"({counted(int(is_odd.sum()), 'row')}){end}, or say {option('leave', [str(column.name)])}"
    )


def _refuse_unread(cells: Any) -> None:
    """Refuse to take rows in their order where a column is called a time, and could not be read as one."""
    if 2 * sum(map(looks_like_time, map(str, cells))) > cells.shape[1] > 2:
        raise UnclearError(
            f"most columns have times for names, such as {cells.columns[-1]!r}: turn the table, so that each row is a "
            f"time, or say {option('index', False)} for rows in their order"
        )
    name = next((name for name in cells if _plain(name) in _CALLED_TIME and (cells[name] != "").any()), None)
    if name is None or (name != cells.columns[0] and cells[name].map(looks_like_number).all()):
        return
    raise UnclearError(
        f"{name!r} is not read as times, nor as numbers that grow: {cells[name].iloc[0]!r}. Say "
        f"{option('index', [str(name)])} if rows are known by it, {option('time_format', '%d.%m.%Y %H:%M')} if it is "
        f"written otherwise, or {option('index', False)} for rows in their order"
    )


def _plain(name: Any) -> str:
    return str(name).strip().lower()
