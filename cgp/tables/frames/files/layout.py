"""Which lines of a file are what: its delimiter, remarks, a header, units, rows, and what follows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .numbers import ABSENT, kind_of, main_kind
from .options import ReadOptions, UnclearError, option
from .text import BLANK, ONE_COLUMN, Grid, split

__all__ = ["Layout", "cells_of", "delimited", "layout_of"]

_DELIMITERS = (";", "\t", ",", "|")
_CLOSE = 0.02  # scores that are not told apart
_SEEN = 400  # records that a delimiter and the kinds of columns are known from
_MOST_UNITS = 3
_NAMES_OF_ROWS = ("time", "date", "datum", "datetime", "timestamp", "when", "day", "month", "year", "station", "site")


class Layout(NamedTuple):
    """The parts of a grid.

    Attributes:
        names: of the columns, each once.
        rows: the records that hold them.
        header: the record that holds the names, None for none.
        units: records of units below it.
        left: what is left as it is, in words.
        repeated: names that came more than once, and what the later ones are called.
        twins: records that say what another one says, and the one of these that is among the rows.
    """

    names: list[str]
    rows: list[int]
    header: int | None
    units: list[int]
    left: list[str]
    repeated: list[str]
    twins: Mapping[int, int] = MappingProxyType({})


def delimited(text: str, options: ReadOptions) -> Grid:
    """A text in fields, by the delimiter that makes a table of it."""
    if options.delimiter is not None:
        return split(text, options.delimiter)
    others = (options.decimal, options.thousands) if '"' not in text else ()
    grids = [split(text, sign) for sign in _DELIMITERS if sign in text and sign not in others]
    scores = [_score(grid, options) for grid in grids]
    best = [grid for grid, score in zip(grids, scores, strict=True) if score > max(0.0, max(scores) - _CLOSE)]
    if len(best) > 1:
        ways = [f"{_width(grid, options)[0]} columns ({option('delimiter', grid.delimiter)})" for grid in best]
        raise UnclearError(f"its lines have {' or '.join(ways)}: say which")
    if best:
        return best[0]
    blanks = split(text, BLANK)
    return blanks if _score(blanks, options) > 0.9 else split(text, ONE_COLUMN)


def layout_of(grid: Grid, options: ReadOptions) -> Layout:
    """What the records of a grid are."""
    remarks, blanks = _remarks(grid, options), _blanks(grid)
    width, _ = _width(grid, options)
    body = [n for n in range(options.skip_rows or 0, len(grid.records)) if n not in remarks]
    body = [n for n in body if n not in blanks] if width > 1 else _of_one_column(body, blanks, options)
    body, footer = _without_footer(grid, body, width, options)
    header, rows = _header_of(grid, body, remarks, width, options) if body else (None, [])
    if not rows:
        raise UnclearError("expected a table with rows below a header, got none")
    names, width = _names_of(grid, header, rows, width)
    units, rows = _units_of(grid, header, rows, options)
    _check_fields(grid, rows, width)
    names, repeated = _once(names)
    first = rows[0] if header is None else header
    left = {
        "before the header": [n for n in range(first) if n not in blanks or width == 1],
        "of remarks below it": [n for n in remarks if n > first],
        "blank": [n for n in blanks if n > first and width > 1],
        "below the table": footer,
    }
    said = [_lines(what, found) for what, found in left.items() if found]
    if units:
        said.insert(len(said) - bool(footer), f"units in line {', '.join(str(grid.line(n)) for n in units)}")
    return Layout(names, rows, header, units, said, repeated)


def cells_of(grid: Grid, layout: Layout) -> Any:
    """The rows as a frame of text without quotes and surrounding blanks, a column for each name."""
    import pandas as pd

    width = len(layout.names)
    return pd.DataFrame([grid.fields(n)[:width] for n in layout.rows], columns=layout.names, dtype="str")


def _remarks(grid: Grid, options: ReadOptions) -> set[int]:
    """Records that begin with the mark of a remark; a mark of most lines is none."""
    mark = "#" if options.comment is None else options.comment
    found = {n for n, fields in enumerate(grid.records) if mark and fields[0].lstrip(' "').startswith(mark)}
    return set() if options.comment is None and 2 * len(found) > len(grid.records) else found


def _blanks(grid: Grid) -> set[int]:
    return {n for n, fields in enumerate(grid.records) if len(fields) == 1 and not fields[0].strip()}


def _of_one_column(body: list[int], blanks: set[int], options: ReadOptions) -> list[int]:
    """Of one column blank lines are gaps; at its end they may be nothing."""
    full = [place for place, n in enumerate(body) if n not in blanks]
    last = len(body) - 1 - full[-1] if full else 0
    if last and options.skip_footer is None:
        raise UnclearError(
            f"the last {last} lines are blank: say {option('skip_footer', last)} if they are no rows, "
            f"{option('skip_footer', 0)} if they are gaps"
        )
    return body[full[0] :] if full else []


def _width(grid: Grid, options: ReadOptions) -> tuple[int, float]:
    """The number of fields that most records have, and their share."""
    left = _remarks(grid, options) | _blanks(grid) | {*range(options.skip_rows or 0)}
    counts = Counter(len(fields) for n, fields in enumerate(grid.records) if n not in left)
    width, count = max(counts.items(), key=lambda pair: pair[1], default=(1, 0))
    return width, count / max(counts.total(), 1)


def _score(grid: Grid, options: ReadOptions) -> float:
    """How far a delimiter makes a table of a text: the share of its cells that are something by themselves."""
    part = Grid(grid.records[:_SEEN], grid.ends[:_SEEN], grid.delimiter)
    width, share = _width(part, options)
    if width < 2 or share < 0.5:
        return 0.0
    records = [n for n in range(len(part.records)) if part.width(n) == width][1:] or [*range(len(part.records))]
    cells = [field for n in records for field in part.fields(n)]
    whole = [kind_of(cell) != "word" or not any(sign in cell for sign in ";\t|") for cell in cells]
    return share * sum(whole) / len(whole)


def _without_footer(grid: Grid, body: list[int], width: int, options: ReadOptions) -> tuple[list[int], list[int]]:
    """The records before a footer, and the footer; one that is not named is refused."""
    if options.skip_footer is not None:
        end = len(body) - options.skip_footer
        return body[:end], body[end:]
    count = next((n for n, record in enumerate(reversed(body)) if grid.width(record) == width), 0)
    if count and len(body) > count:
        raise UnclearError(
            f"{grid.shown(body[-count])}, has {grid.width(body[-count])} fields, the rows above it have {width}: say "
            f"{option('skip_footer', count)} if the table ends there"
        )
    return body, []


def _header_of(
    grid: Grid, body: list[int], remarks: set[int], width: int, options: ReadOptions
) -> tuple[int | None, list[int]]:
    """The record of the names, and the records below it."""
    if options.header is False:
        return None, body
    skipped = 0 if options.skip_rows is not None or width == 1 else _preamble(grid, body, width, options)
    first, rows = body[skipped], body[skipped + 1 :]
    if options.header is True or not rows:
        return first, rows
    says = _is_header(grid, first, rows, width)
    commented = max((n for n in remarks if n < first and grid.width(n) == width), default=None)
    if says is not True and commented is not None and _is_header(grid, commented, body[skipped:], width):
        return commented, body[skipped:]
    if says is None:
        raise UnclearError(
            f"{grid.shown(first)}, may hold names or values: say {option('header')} or {option('header', False)}"
        )
    return (first, rows) if says else (None, body[skipped:])


def _preamble(grid: Grid, body: list[int], width: int, options: ReadOptions) -> int:
    """How many records are before the header: those of other widths, but for one that lacks a name or has one more."""
    first = next(k for k, n in enumerate(body) if grid.width(n) == width and sum(map(bool, grid.fields(n))) > 1)
    if not first or _is_header(grid, body[first], body[first + 1 :] or body[first:], width) is True:
        return first
    before = grid.width(body[first - 1])
    if before == 1 and width == 2 and grid.delimiter == "," and options.delimiter is None:
        raise UnclearError(
            f"{grid.shown(body[first])}, is a number with a decimal comma ({option('decimal', ',')}) or two fields "
            f"({option('delimiter', ',')}): say which"
        )
    return first - 1 if abs(before - width) == 1 else first


def _columns(grid: Grid, rows: Sequence[int], width: int) -> list[list[str]]:
    """The first cells of each column."""
    seen = [grid.fields(n) for n in rows[:_SEEN]]
    return [[fields[j] for fields in seen if j < len(fields)] for j in range(width)]


def _is_header(grid: Grid, record: int, rows: Sequence[int], width: int) -> bool | None:
    """Whether a record holds names: words above numbers or times; None if it may."""
    fields, below = grid.fields(record)[:width], _columns(grid, rows, width)
    kinds = [main_kind(cells) for cells in below]
    pairs = [(j, kind_of(fields[j]), kinds[j]) for j in range(len(fields)) if kinds[j] != "word"]
    alike = [own for _, own, kind in pairs if own and own == kind]
    named = [j for j, own, kind in pairs if own == "word" and kind and fields[j] not in {*below[j], *ABSENT}]
    if "time" in alike:
        return False
    if named and (not alike or (named[0] == 0 and kinds[0] == "time")):
        return True
    counted = [text for text in fields if text] == [str(n) for n in range(len(fields) - 1)]  # as pandas writes no names
    return True if {*kinds} <= {"word", ""} or (not fields[0] and counted) else None


def _names_of(grid: Grid, header: int | None, rows: list[int], width: int) -> tuple[list[str], int]:
    """The names of the columns; where all rows end in a delimiter, nothing follows it."""
    if header is None:
        return [f"column {j + 1}" for j in range(width)], width
    names = grid.fields(header)
    names[0] = names[0].lstrip("# ") if names[0].startswith("#") else names[0]
    ends = width > 1 and not any(grid.fields(n)[-1] for n in rows if grid.width(n) == width)
    if len(names) == width + 1 and not names[-1]:
        return names[:-1], width
    if ends and (len(names) == width - 1 or (len(names) == width and not names[-1])):
        return names[: width - 1], width - 1
    if len(names) != width:
        raise UnclearError(
            f"line {grid.line(header)} names {len(names)} columns, the rows below it have {width} fields: a name is "
            f"missing, and it is not known which: mend it, or say {option('header', False)} "
            f"{option('skip_rows', grid.line(header))}"
        )
    return names, width


def _units_of(grid: Grid, header: int | None, rows: list[int], options: ReadOptions) -> tuple[list[int], list[int]]:
    """Records of words below the header, where the rows hold numbers and times."""
    if header is None or options.units_row is False:
        return [], rows
    if options.units_row:
        return rows[:1], rows[1:]
    units: list[int] = []
    while len(rows) > 2 and len(units) < _MOST_UNITS:
        fields, below = grid.fields(rows[0]), _columns(grid, rows[1:], grid.width(rows[0]))
        kinds = [(j, kind_of(fields[j])) for j, cells in enumerate(below) if main_kind(cells) in ("number", "time")]
        has_words = any(own == "word" and fields[j] not in below[j] for j, own in kinds)
        if not has_words or any(own in ("number", "time") for _, own in kinds):
            break
        if any(text.lower() in _NAMES_OF_ROWS for text in fields):
            raise UnclearError(
                f"{grid.shown(rows[0])}, may hold names or units: say {option('skip_rows', grid.line(rows[0]) - 1)} "
                f"if it is the header, {option('units_row')} if it holds units"
            )
        units, rows = [*units, rows[0]], rows[1:]
    return units, rows


def _check_fields(grid: Grid, rows: list[int], width: int) -> None:
    """Refuse a line with too few or too many fields, or with a quote that is not closed."""
    for n in rows:
        if grid.is_broken(n):
            raise UnclearError(f"{grid.shown(n)}, has a quote that is not closed, or one within a field: mend it")
        if grid.width(n) < width or any(grid.fields(n)[width:]):
            raise UnclearError(
                f"{grid.shown(n)}, has {grid.width(n)} fields, the others have {width}: mend it "
                f"(a decimal comma that needs quotes, a {option('delimiter', ';')} of another kind, a cut line?)"
            )


def _once(names: list[str]) -> tuple[list[str], list[str]]:
    """Names, each once, and what repeated ones are called."""
    result: list[str] = []
    repeated = []
    for place, name in enumerate(names):
        chosen = name or f"unnamed {place + 1}"
        number = 1
        while chosen in result:
            number += 1
            chosen = f"{name} ({number})"
        if number > 1:
            repeated.append(f"the column {place + 1} is called {chosen!r}, as {name!r} comes before")
        result.append(chosen)
    return result, repeated


def _lines(what: str, records: Sequence[int]) -> str:
    lines = "line" if len(records) == 1 else "lines"
    return f"{len(records)} {what} {lines}" if what == "blank" else f"{len(records)} {lines} {what}"
