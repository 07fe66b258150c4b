"""What the rows of a table are known by: times in one column or several, numbers, places, or their order."""

from __future__ import annotations

from typing import Any

from .cells import kind_of, looks_like_number, main_kind
from .clocks import Rows, as_times, calendar_rows, dated_rows, plain_name
from .hints import UnclearError, option
from .notation import form_of_numbers
from .options import ReadOptions
from .times import Times, looks_like_time

__all__ = ["rows_of"]

# Names of numbers that rows are known by
_COUNTED = frozenset(
    """index id row nr no time t timestamp epoch date seconds second minutes minute hours hour days day year""".split()  # noqa: SIM905
)
_SEEN = 400  # cells that the kind of a column is known from
_CALLED_TIME = frozenset("date datum time timestamp datetime zeit fecha".split())  # noqa: SIM905
_PLACES = (
    ("latitude", "longitude"),
    ("lat", "lon"),
    ("lat", "lng"),
    ("lat", "long"),
    ("easting", "northing"),
    ("x", "y"),
)


def rows_of(cells: Any, options: ReadOptions) -> Rows:
    """What the rows of a frame of text are known by.

    Args:
        cells: the frame.
        options: with an index or inputs, or without.

    Returns:
        Labels of the rows.

    Raises:
        UnclearError: if there are two columns of times, or one that can be read in two ways.
        ValueError: if a column is not there.
    """
    named = [] if isinstance(options.index, bool) or options.index is None else [*options.index]
    absent = [name for name in [*named, *options.inputs] if name not in cells]
    if absent:
        raise ValueError(f"expected columns of the table, {[*cells]}, got {absent}")
    if named and options.inputs:
        raise ValueError("index and inputs: expected one of them, got both")
    if options.index is False:
        return Rows({}, [], "in their order")
    if options.inputs:
        labels = {name: _label(cells[name], options) for name in options.inputs}
        return Rows({name: label for name, (label, _) in labels.items()}, [*options.inputs], "")
    if named:
        return _named(cells, named, options)
    return _looked_for(cells, options)


def _named(cells: Any, names: list[str], options: ReadOptions) -> Rows:
    if len(names) == 1:
        label, times = _label(cells[names[0]], options)
        return Rows({names[0]: label}, names, "") if times is None else _timed(names[0], times)
    joined = calendar_rows(cells[names]) or (
        dated_rows(cells, names[0], names[1], options, is_asked=True) if len(names) == 2 else None
    )
    if joined is None:
        raise ValueError(f"index: expected one column, or one of dates and one of times of day, got {names}")
    return joined


def _looked_for(cells: Any, options: ReadOptions) -> Rows:
    others = cells.drop(columns=[name for name in options.leave if name in cells])
    for look in (_in_columns, _calendar, _counted, _places):
        result: Rows | None = look(others, options)
        if result is not None:
            return result
    _refuse_unread(others)
    return Rows({}, [], "in their order")


def _refuse_unread(cells: Any) -> None:
    """Refuse to take rows in their order where a column is called a time, and could not be read as one."""
    if 2 * sum(map(looks_like_time, map(str, cells))) > cells.shape[1] > 2:
        raise UnclearError(
            f"most columns have times for names, such as {cells.columns[-1]!r}: turn the table, so that each row is a "
            f"time, or say {option('index', False)} for rows in their order"
        )
    name = next((name for name in cells if plain_name(name) in _CALLED_TIME), None)
    if name is None or (cells[name] == "").all():
        return
    if cells[name].map(looks_like_number).all() and name != cells.columns[0]:
        return
    raise UnclearError(
        f"{name!r} is not read as times, nor as numbers that grow: {cells[name].iloc[0]!r}. Say "
        f"{option('index', [str(name)])} if rows are known by it, {option('time_format', '%d.%m.%Y %H:%M')} if it is "
        f"written otherwise, or {option('index', False)} for rows in their order"
    )


def _label(column: Any, options: ReadOptions) -> tuple[Any, Times | None]:
    """A column as times or numbers, for every row."""
    empty = column.eq("")
    if empty.any():
        raise UnclearError(f"{column.name!r}: expected a time or a number in every row, got none in {int(empty.sum())}")
    times = as_times(column, options, is_asked=True)
    if times is not None:
        return times.values, times
    numbers = _as_numbers(column, options)
    if numbers is None:
        _refuse_odd_ones(column)
        raise UnclearError(
            f"{column.name!r}: expected times or numbers, got {column.iloc[0]!r}: "
            f"{option('time_format', '%d.%m.%Y %H:%M')} says how times are written"
        )
    return numbers, None


def _timed(name: str, times: Times) -> Rows:
    said = ", ".join(filter(None, [times.form.said, f"as {times.form.format}"]))
    return Rows({name: times.values}, [name], said, lambda further: {name: times.form.write(further)})


def _as_numbers(column: Any, options: ReadOptions) -> Any:
    """A column as numbers, whole ones as integers, or None if it is none."""
    if not column.map(looks_like_number).all():
        return None
    if column.str.fullmatch(r"[-+]?\d{1,15}").all():
        return column.astype("int64")
    texts = [*column.unique()]
    form = form_of_numbers({str(column.name): texts}, options.decimal, options.thousands, options.delimiter or ",")
    return column.map(dict(zip(texts, form.numbers(texts), strict=True))).astype("float64")


def _in_columns(cells: Any, options: ReadOptions) -> Rows | None:
    """The only column of times that hardly repeats; or one of dates, with one of times of day."""
    read, problems = _all_times(cells, options)
    whole = [name for name, times in read.items() if 2 * times.values.nunique() > len(cells)]
    if len(whole) > 1 and not _apart_by_a_constant([read[name].values for name in whole]):
        ways = " or ".join(option("index", [name]) for name in whole)
        raise UnclearError(f"there are {len(whole)} columns of times, {whole}: say {ways}")
    for date in read if not whole else ():
        found = [joined for name in cells.columns.drop(date) if (joined := dated_rows(cells, date, name, options))]
        if found and 2 * found[0].times.nunique() > len(cells):
            return found[0]
    chosen = whole or [*read]
    if not chosen and problems and (options.time_format is None or len(problems) == len(cells.columns)):
        raise problems[0]
    return _timed(chosen[0], read[chosen[0]]) if chosen else None


def _all_times(cells: Any, options: ReadOptions) -> tuple[dict[str, Times], list[ValueError]]:
    """The columns of times, and what is wrong with those that nearly are."""
    read: dict[str, Times] = {}
    problems: list[ValueError] = []
    for name in cells.columns.drop([name for name in cells if plain_name(name) in ("year", "month")]):
        try:
            times = None if (cells[name] == "").any() else as_times(cells[name], options)
            if times is None and options.time_format is None:
                _refuse_odd_ones(cells[name])
        except ValueError as error:
            problems.append(error)
        else:
            read |= {} if times is None else {str(name): times}
    return read, problems


def _apart_by_a_constant(columns: list[Any]) -> bool:
    naive = [each.dt.tz_localize(None) for each in columns]
    return all((each - naive[0]).nunique() == 1 for each in naive)


def _refuse_odd_ones(column: Any) -> None:
    """Refuse a column of times of which a few are none, such as a Total below them."""
    if main_kind(column.iloc[:_SEEN]) != "time":
        return
    kinds = column.map(kind_of)
    odd = column[kinds != "time"]
    if not 0 < len(odd) <= 0.1 * len(column) + 1 or len(odd) > len(column) // 2:
        return
    last = column.index.isin(odd.index)[::-1].cumprod().sum()
    end = f": say {option('skip_footer', int(last))} if the table ends above" if last == len(odd) else ": mend them"
    raise UnclearError(
        f"{column.name!r}: expected a time in every row, got {odd.iloc[0]!r} in row {odd.index[0] + 1} "
        f"({len(odd)} rows){end}, or say {option('leave', [str(column.name)])}"
    )


def _calendar(cells: Any, _: ReadOptions) -> Rows | None:
    return calendar_rows(cells)


def _counted(cells: Any, options: ReadOptions) -> Rows | None:
    name = cells.columns[0]
    is_named = plain_name(name) in _COUNTED
    named = is_named or name in ("unnamed 1", "column 1")
    numbers = _as_numbers(cells[name], options) if named and not (cells[name] == "").any() else None
    if numbers is None or not numbers.is_monotonic_increasing or (name == "column 1" and numbers.diff().nunique() != 1):
        return None
    if not numbers.is_unique and is_named and not options.repeats:
        raise UnclearError(
            f"{name!r} grows, but repeats itself: say {option('long', ['SERIES', str(name), 'VALUE'])} for one value "
            f"in each row, {option('index', [str(name)])} {option('repeats')} for several readings at a time, "
            f"or {option('index', False)}"
        )
    return Rows({name: numbers}, [name], "") if numbers.is_unique or options.repeats else None


def _places(cells: Any, options: ReadOptions) -> Rows | None:
    names = {plain_name(name): name for name in cells}
    for pair in _PLACES:
        chosen = [names[each] for each in names if each in pair]
        numbers = {name: _as_numbers(cells[name], options) for name in chosen}
        if len(chosen) == 2 and all(each is not None and each.notna().all() for each in numbers.values()):
            return Rows(numbers, chosen, "")
    return None
