"""The header of a table: which line it is, what it names, and the lines of units below it."""

from __future__ import annotations

from collections.abc import Sequence

from .cells import ABSENT, kind_of, main_kind
from .grid import Grid, unquoted
from .hints import UnclearError, option
from .options import ReadOptions

__all__ = ["header_of", "names_of", "units_of"]

_SEEN = 400  # rows that the kinds of columns are known from
_MOST_UNITS = 3
_NAMES_OF_ROWS = frozenset(
    ["time", "date", "datum", "datetime", "timestamp", "day", "month", "year", "station", "site"]
)


def header_of(
    grid: Grid, body: list[int], remarks: set[int], width: int, options: ReadOptions
) -> tuple[int | None, list[int]]:
    """The record of the names, and the records below it."""
    if options.header is False:
        return None, body
    skipped = 0 if options.skip_rows is not None or width == 1 else _preamble(grid, body, width, options)
    first, rows = body[skipped], body[skipped + 1 :]
    if options.header is True or not rows:
        return first, rows
    says = _is_header(grid, first, rows, _kinds(grid, rows or [first], width))
    before = [n for n in remarks if n < first and grid.width(n) == width]
    if says is not True and before:
        commented, values = max(before), body[skipped:]
        if _is_header(grid, commented, values, _kinds(grid, values, width)):
            return commented, values
    if says is None:
        raise UnclearError(
            f"line {grid.line(first)}, {grid.shown(first)}, may hold names or values: "
            f"say {option('header')} or {option('header', False)}"
        )
    return (first, rows) if says else (None, body[skipped:])


def _preamble(grid: Grid, body: list[int], width: int, options: ReadOptions) -> int:
    """How many records are before the header: those of other widths, but for one that lacks a name or has one more."""
    widths = [grid.width(n) for n in body]
    first = next(n for n, each in enumerate(widths) if each == width and sum(map(bool, grid.fields(body[n]))) > 1)
    rows = body[first + 1 :]
    if not first or _is_header(grid, body[first], rows, _kinds(grid, rows or body[first:], width)) is True:
        return first
    if widths[first - 1] == 1 and width == 2 and grid.delimiter == "," and options.delimiter is None:
        raise UnclearError(
            f"line {grid.line(body[first])}, {grid.shown(body[first])}, is a number with a decimal comma "
            f"({option('decimal', ',')}) or two fields ({option('delimiter', ',')}): say which"
        )
    return first - 1 if abs(widths[first - 1] - width) == 1 else first


def _kinds(grid: Grid, rows: Sequence[int], width: int) -> list[str]:
    """What most of the cells of each column are."""
    seen = [grid.fields(n) for n in rows[:_SEEN]]
    return [main_kind(fields[j] for fields in seen if j < len(fields)) for j in range(width)]


def _is_header(grid: Grid, record: int, rows: Sequence[int], kinds: list[str]) -> bool | None:
    """Whether a record holds names: words above numbers or times; None if it may."""
    fields = grid.fields(record)
    below = [{grid.fields(n)[j] for n in rows[:_SEEN] if j < grid.width(n)} for j in range(len(fields))]
    pairs = [
        (j, kind_of(text), kind) for j, (text, kind) in enumerate(zip(fields, kinds, strict=False)) if kind != "word"
    ]
    alike = [own for _, own, kind in pairs if own and own == kind]
    named = [
        j for j, own, kind in pairs if own == "word" and kind and fields[j] not in below[j] and fields[j] not in ABSENT
    ]
    if "time" in alike:
        return False
    if named and (not alike or (named[0] == 0 and kinds[0] == "time")):
        return True
    if not any(kinds) or set(kinds) <= {"word", ""}:
        return True
    counted = [text for text in fields if text]
    if not fields[0] and counted == [str(n) for n in range(len(counted))]:
        return True  # as pandas writes columns without names
    return None


def names_of(grid: Grid, header: int | None, rows: list[int], width: int) -> tuple[list[str], int]:
    """The names of the columns; where all rows end in a delimiter, nothing follows it."""
    ends = all(not unquoted(grid.records[n][-1]) for n in rows if grid.width(n) == width) and width > 1 and rows
    if header is None:
        return [f"column {j + 1}" for j in range(width)], width
    names = grid.fields(header)
    names[0] = names[0].lstrip("# ") if names[0].startswith("#") else names[0]
    if len(names) == width - 1 and ends:
        return names, width - 1
    if len(names) == width + 1 and not names[-1]:
        return names[:-1], width
    if len(names) != width:
        raise UnclearError(
            f"line {grid.line(header)} names {len(names)} columns, the rows below it have {width} fields: a name is "
            f"missing, and it is not known which: mend it, or say {option('header', False)} "
            f"{option('skip_rows', grid.line(header))}"
        )
    if ends and not names[-1]:
        return names[:-1], width - 1
    return names, width


def units_of(grid: Grid, header: int | None, rows: list[int], options: ReadOptions) -> tuple[list[int], list[int]]:
    """Records of words below the header, where the rows hold numbers and times."""
    if header is None or options.units_row is False:
        return [], rows
    if options.units_row:
        return rows[:1], rows[1:]
    units: list[int] = []
    while len(rows) > 2 and len(units) < _MOST_UNITS:
        kinds = _kinds(grid, rows[1:], grid.width(rows[0]))
        fields = grid.fields(rows[0])
        values = [grid.fields(n) for n in rows[1:_SEEN]]
        pairs = [(j, kind_of(fields[j])) for j, kind in enumerate(kinds) if kind in ("number", "time")]
        words = [j for j, own in pairs if own == "word" and not any(j < len(v) and v[j] == fields[j] for v in values)]
        if not words or any(own in ("number", "time") for _, own in pairs):
            break
        if any(text.lower() in _NAMES_OF_ROWS for text in fields):
            line = grid.line(rows[0])
            raise UnclearError(
                f"line {line}, {grid.shown(rows[0])}, may hold names or units: say {option('skip_rows', line - 1)} "
                f"if it is the header, {option('units_row')} if it holds units"
            )
        units, rows = [*units, rows[0]], rows[1:]
    return units, rows
