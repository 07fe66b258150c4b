"""Tables for the terminal, as Markdown and as CSV, with names escaped."""

import csv
import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from experiments.atomic_files import write_atomically

__all__ = [
    "Cell",
    "Fitted",
    "Grid",
    "as_markdown",
    "console_of_width",
    "escape",
    "line_of",
    "markdown_table",
    "print_csv",
    "write_csv",
]

_MARKDOWN = re.compile(r"([\\`*_\[\]|~$])")
_HARMFUL = ("C", "Zl", "Zp")
"""Unicode categories without a visible form: controls, line ends, marks that turn the direction of writing."""


def escape(text: str, to: Literal["terminal", "markdown", "csv", "html"]) -> str:
    r"""Escape a name of unknown origin for one line of a terminal, of Markdown or CSV, or for HTML.

    Invisible characters are written as their numbers; a cell of CSV never begins as a formula.

    Example:
        >>> escape("a\n\u202eb|<i>", "terminal"), escape("a|<i>", "markdown"), escape("=1+0.png", "csv")
        ('a\\n\\u202eb|<i>', 'a\\|&lt;i&gt;', "'=1+0.png")
    """
    line = "".join(_visible(letter) for letter in text)
    if to == "csv":
        return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
    if to == "markdown":
        return _MARKDOWN.sub(r"\\\1", html.escape(line, quote=False))
    return html.escape(line) if to == "html" else line


def _visible(letter: str) -> str:
    harmful = unicodedata.category(letter).startswith(_HARMFUL)
    return letter.encode("unicode_escape").decode("ascii") if harmful else letter


class Cell(NamedTuple):
    """Text of a cell, and whether it is the best of its column."""

    text: str
    best: bool = False


class Grid(NamedTuple):
    """A table to print: the first column holds names, the others are ordered by importance."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()
    left: Sequence[str] = ()  # titles of the columns that are aligned left, besides the first


class Fitted:
    """A table that fits the width of the terminal: it drops the last columns if necessary, but never digits."""

    def __init__(self, grid: Grid, *, more: str = "") -> None:
        self.grid, self.more = grid, more

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the table for the present width."""
        grid, shown = self.grid, self.fitting(options.max_width)
        if grid.title:
            yield Text(escape(grid.title, "terminal"), style="bold")
        table = Table(show_edge=False, box=None)
        for place, name in enumerate(grid.header[:shown]):
            left = not place or name in grid.left
            table.add_column(Text(name), justify="left" if left else "right", no_wrap=bool(place), overflow="fold")
        for row in grid.rows:
            table.add_row(*(Text(escape(cell.text, "terminal"), "bold" if cell.best else "") for cell in row[:shown]))
        yield table
        left_out = ", ".join(grid.header[shown:])
        where = f" ({self.more})" if self.more else ""
        dropped = [f"Not shown at {options.max_width} columns: {left_out}{where}."] if left_out else []
        for note in [*dropped, *grid.notes]:
            yield Text(escape(note, "terminal"), style="dim")

    def fitting(self, width: int) -> int:
        """Number of columns that fit whole."""
        columns = list(zip(*[[Cell(name) for name in self.grid.header], *self.grid.rows], strict=True))
        widths = [max(len(escape(cell.text, "terminal")) for cell in column) + 2 for column in columns]
        shown = len(widths)
        while shown > 2 and sum(widths[:shown]) > width:
            shown -= 1
        return shown


def as_markdown(grid: Grid) -> str:
    """Return a table as Markdown, without its title."""
    rows = [
        [f"**{text}**" if cell.best else text for cell in row for text in [escape(cell.text, "markdown")]]
        for row in grid.rows
    ]
    rule = ["---", *("---" if name in grid.left else "---:" for name in grid.header[1:])]
    header = [escape(name, "markdown") for name in grid.header]
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, rule, *rows])


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[object]], left: Sequence[str] = ()) -> str:
    """Return a table of texts and numbers as Markdown, where nothing is escaped; the first column is aligned left.

    Example:
        >>> print(markdown_table(["method", "NLL"], [["lines", 0.25]]), end="")
        | method | NLL |
        | --- | ---: |
        | lines | 0.25 |
    """
    rule = ["---", *("---" if name in left else "---:" for name in header[1:])]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in (header, rule, *rows))


def line_of(row: Mapping[str, Any]) -> str:
    """Return the names and values of a row as a line, numbers rounded.

    Example:
        >>> line_of({"method": "lines", "NLL": 0.123456})
        'method lines, NLL 0.1235'
    """
    return ", ".join(f"{name} {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in row.items())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file; a column that a row lacks is empty there."""

    def write(aside: Path) -> None:
        with aside.open("w", newline="", encoding="utf-8") as file:
            print_csv(file, rows)

    write_atomically(path, write)


def print_csv(file: TextIO, rows: Sequence[Mapping[str, Any]], end: str = "\r\n") -> None:
    """Print rows as CSV to a file that is open."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, fieldnames=names, lineterminator=end)
    writer.writeheader()
    writer.writerows({name: _csv_value(value) for name, value in row.items()} for row in rows)


def _csv_value(value: Any) -> Any:
    return escape(value, "csv") if isinstance(value, str) else value


def console_of_width(width: int) -> Console:
    """Return the console; lines may have the given width where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=width)
