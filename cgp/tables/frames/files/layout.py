"""Which lines of a file are what: remarks, a header, units, rows, and what follows them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

from .cells import kind_of
from .grid import BLANK, ONE_COLUMN, Grid, split, unquoted
from .header import header_of, names_of, units_of
from .hints import UnclearError, option
from .options import ReadOptions

__all__ = ["Layout", "cells_of", "delimited", "layout_of"]

_DELIMITERS = (";", "\t", ",", "|")
_CLOSE = 0.02  # scores that are not told apart
_NO_ROWS = "expected a table with rows below a header, got none"
_SEEN = 400  # records that a delimiter and the kinds of columns are known from


class Layout(NamedTuple):
    """The parts of a grid.

    Attributes:
        names: of the columns, each once.
        rows: the records that hold them.
        header: the record that holds the names, None for none.
        units: records of units below it.
        left: what is left as it is, in words.
        repeated: names that came more than once, and what the later ones are called.
    """

    names: list[str]
    rows: list[int]
    header: int | None
    units: list[int]
    left: list[str]
    repeated: list[str]


def delimited(text: str, options: ReadOptions) -> Grid:
    """A text in fields, by the delimiter that makes a table of it.

    Args:
        text: of a file.
        options: with a delimiter, or without.

    Returns:
        Its fields.

    Raises:
        UnclearError: if there are two delimiters.
    """
    if options.delimiter is not None:
        return split(text, options.delimiter)
    others = (options.decimal, options.thousands) if '"' not in text else ()
    signs = [sign for sign in _DELIMITERS if sign in text and sign not in others]
    grids = [split(text, sign) for sign in signs]
    scores = [_score(grid, options) for grid in grids]
    best = max(scores, default=0.0)
    if best > 0.0:
        chosen = [grid for grid, score in zip(grids, scores, strict=True) if score > best - _CLOSE]
        if len(chosen) > 1:
            ways = " or ".join(
                f"{_width(grid, options)[0]} columns ({option('delimiter', grid.delimiter)})" for grid in chosen
            )
            raise UnclearError(f"its lines have {ways}: say which")
        return chosen[0]
    blanks = split(text, BLANK)
    return blanks if _score(blanks, options) > 0.9 else split(text, ONE_COLUMN)


def layout_of(grid: Grid, options: ReadOptions) -> Layout:
    """What the records of a grid are.

    Args:
        grid: of a file.
        options: what is known.

    Returns:
        Names, rows and what is left alone.

    Raises:
        UnclearError: if a header may be one or not, or a line has too few or too many fields.
    """
    remarks, blanks = _remarks(grid, options), _blanks(grid)
    width, _ = _width(grid, options)
    body = [n for n in range(options.skip_rows or 0, len(grid.records)) if n not in remarks]
    body = [n for n in body if n not in blanks] if width > 1 else _without_blank_ends(body, blanks, options)
    body, footer = _without_footer(grid, body, width, options)
    if not body:
        raise UnclearError(_NO_ROWS)
    header, rows = header_of(grid, body, remarks, width, options)
    if not rows:
        raise UnclearError(_NO_ROWS)
    names, width = names_of(grid, header, rows, width)
    units, rows = units_of(grid, header, rows, options)
    _check_widths(grid, rows, width)
    names, repeated = _once(names)
    first = header if header is not None else rows[0] if rows else 0
    left = _described(grid, remarks - {first}, blanks if width > 1 else set(), first, units, footer)
    return Layout(names, rows, header, units, left, repeated)


def cells_of(grid: Grid, layout: Layout) -> Any:
    """The rows as a frame of text, read by pandas, without quotes and surrounding blanks.

    Args:
        grid: of a file.
        layout: its parts.

    Returns:
        A frame of text, a column for each name; nothing is taken for missing.

    Raises:
        UnclearError: if pandas reads other fields than the grid has, as where a quote is not closed.
    """
    import pandas as pd

    width = len(layout.names)
    ours = pd.DataFrame(
        {name: [unquoted(grid.records[n][j]) for n in layout.rows] for j, name in enumerate(layout.names)}, dtype="str"
    )
    text = "\n".join(grid.text_of(n) for n in layout.rows)
    separator = r"\s+" if grid.delimiter == BLANK else grid.delimiter
    explicit: dict[str, Any] = {"dtype": "str", "keep_default_na": False, "na_filter": False, "skip_blank_lines": False}
    try:
        read = pd.read_csv(StringIO(text), sep=separator, header=None, quotechar='"', index_col=False, **explicit)
    except (ValueError, csv.Error) as error:
        raise UnclearError(f"expected rows of fields, {error}: is a quote not closed?") from error
    theirs = read.iloc[:, :width].apply(lambda column: column.str.strip())
    differs = (theirs.to_numpy() != ours.to_numpy()).any(axis=1) if theirs.shape == ours.shape else [True]
    if any(differs):
        line = grid.line(layout.rows[int(np.argmax(differs))])
        raise UnclearError(f"line {line} can be split in two ways: a quote within a field, or one that is not closed")
    return ours


def _remarks(grid: Grid, options: ReadOptions) -> set[int]:
    """Records that begin with the mark of a remark; a mark of most lines is none."""
    mark = "#" if options.comment is None else options.comment
    found = {n for n, fields in enumerate(grid.records) if mark and fields[0].lstrip(' "').startswith(mark)}
    return set() if options.comment is None and 2 * len(found) > len(grid.records) else found


def _blanks(grid: Grid) -> set[int]:
    return {n for n, fields in enumerate(grid.records) if len(fields) == 1 and not fields[0].strip()}


def _without_blank_ends(body: list[int], blanks: set[int], options: ReadOptions) -> list[int]:
    """Of one column blank lines are gaps; at its end they may be nothing."""
    while body and body[0] in blanks:
        body = body[1:]
    last = next((place for place, n in enumerate(reversed(body)) if n not in blanks), 0)
    if last and options.skip_footer is None:
        raise UnclearError(
            f"the last {last} lines are blank: say {option('skip_footer', last)} if they are no rows, "
            f"{option('skip_footer', 0)} if they are gaps"
        )
    return body


def _width(grid: Grid, options: ReadOptions) -> tuple[int, float]:
    """The number of fields that most records have, and their share."""
    skip = options.skip_rows or 0
    remarks, blanks = _remarks(grid, options), _blanks(grid)
    counts = Counter(len(f) for n, f in enumerate(grid.records) if n >= skip and n not in remarks and n not in blanks)
    if not counts:
        return 1, 0.0
    width, count = counts.most_common(1)[0]
    return width, count / counts.total()


def _score(grid: Grid, options: ReadOptions) -> float:
    """How far a delimiter makes a table of a text: the share of its cells that are something by themselves."""
    part = Grid(grid.records[:_SEEN], grid.ends[:_SEEN], grid.delimiter)
    width, share = _width(part, options)
    if width < 2 or share < 0.5:
        return 0.0
    records = [fields for fields in part.records if len(fields) == width][1:] or part.records
    kinds = [kind_of(unquoted(field)) for fields in records for field in fields]
    plain = [not any(sign in field for sign in ";\t|") for fields in records for field in map(unquoted, fields)]
    words = [kind != "word" or is_plain for kind, is_plain in zip(kinds, plain, strict=True)]
    return share * sum(words) / len(words)


def _without_footer(grid: Grid, body: list[int], width: int, options: ReadOptions) -> tuple[list[int], list[int]]:
    """The records before a footer, and the footer; one that is not named is refused."""
    if options.skip_footer is not None:
        end = len(body) - options.skip_footer
        return body[:end], body[end:]
    count = next((n for n, record in enumerate(reversed(body)) if grid.width(record) == width), 0)
    if count and len(body) > count:
        line = grid.line(body[-count])
        raise UnclearError(
            f"line {line}, {grid.shown(body[-count])}, has {len(grid.records[body[-count]])} fields, the rows "
            f"above it have {width}: say {option('skip_footer', count)} if the table ends there"
        )
    return body, []


def _check_widths(grid: Grid, rows: list[int], width: int) -> None:
    """Refuse a line with too few or too many fields."""
    for n in rows:
        fields = grid.records[n]
        if len(fields) < width or any(unquoted(field) for field in fields[width:]):
            raise UnclearError(
                f"line {grid.line(n)}, {grid.shown(n)}, has {len(fields)} fields, the others have {width}: mend it "
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


def _described(
    grid: Grid, remarks: set[int], blanks: set[int], first: int, units: list[int], footer: list[int]
) -> list[str]:
    """What is left as it is, in words."""
    before = [n for n in range(first) if n not in blanks]
    parts = []
    if before:
        parts.append(f"{len(before)} {_lines(before)} before the header")
    if inside := [n for n in remarks if n > first]:
        parts.append(f"{len(inside)} {_lines(inside)} of remarks below it")
    if blank := [n for n in blanks if n > first]:
        parts.append(f"{len(blank)} blank {_lines(blank)}")
    if units:
        parts.append(f"units in line {', '.join(str(grid.line(n)) for n in units)}")
    if footer:
        parts.append(f"{len(footer)} {_lines(footer)} below the table")
    return parts


def _lines(records: Sequence[int]) -> str:
    return "line" if len(records) == 1 else "lines"
