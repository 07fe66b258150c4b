"""The results as tables: for the terminal, as Markdown, as CSV; and in words."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.reports.results import COLUMNS, Column, Statistic, statistics
from experiments.storage import write_atomically

__all__ = ["arrow", "cell", "console_of_width", "markdown", "table_cells", "terminal", "verdict", "write_csv"]

_GOAL_POINTS = 2.0
_COMPARED = {"nll": "NLL", "ece": "ECE", "shift_nll": "corrupted NLL", "shift_ece": "corrupted ECE"}


def console_of_width(width: int) -> Console:
    """Return the console; where the output is no terminal, lines may have the given width.

    Args:
        width: in characters.
    """
    console = Console()
    return console if console.is_terminal else Console(width=width)


def cell(column: Column, statistic: Statistic) -> str:
    """Format mean ± standard deviation.

    Args:
        column: decides scale and digits.
        statistic: what to format.
    """
    if math.isnan(statistic.mean):
        return "–"
    mean = f"{statistic.mean * column.scale:.{column.digits}f}"
    return mean if math.isnan(statistic.sd) else f"{mean} ± {statistic.sd * column.scale:.{column.digits}f}"


def table_cells(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> list[list[tuple[str, bool]]]:
    """Return the cells of the table, each with whether its mean is the best of its column.

    Args:
        rows: one row a method and seed.
        labels: name in the table of each method.
    """
    table = {method: statistics(rows, method) for method in labels}
    return [
        [
            (labels[method], False),
            *((cell(column, table[method][column.key]), _best(column, method, table)) for column in COLUMNS),
        ]
        for method in labels
    ]


def _best(column: Column, method: str, table: Mapping[str, Mapping[str, Statistic]]) -> bool:
    """Say whether a method has the best mean of a column, to the digits shown."""
    if column.better is None or len(table) == 1:
        return False
    sign = 1 if column.better == "high" else -1
    shown = {name: round(sign * row[column.key].mean * column.scale, column.digits) for name, row in table.items()}
    return shown[method] == max((value for value in shown.values() if not math.isnan(value)), default=math.nan)


def terminal(rows: list[dict[str, Any]], labels: Mapping[str, str], title: str) -> Table:
    """Return the table for the terminal.

    Args:
        rows: one row a method and seed.
        labels: name in the table of each method.
        title: what it shows.
    """
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("", no_wrap=True)
    for column in COLUMNS:
        table.add_column(f"{column.title}{arrow(column)}", justify="right")
    for cells in table_cells(rows, labels):
        narrow = [(text.replace(" ± ", "\n± "), best) for text, best in cells]
        table.add_row(*(f"[bold]{text}[/bold]" if best else text for text, best in narrow))
    return table


def markdown(rows: list[dict[str, Any]], labels: Mapping[str, str]) -> str:
    """Return the table as Markdown.

    Args:
        rows: one row a method and seed.
        labels: name in the table of each method.
    """
    header = ["", *(f"{column.title}{arrow(column)}" for column in COLUMNS)]
    body = [[f"**{text}**" if best else text for text, best in cells] for cells in table_cells(rows, labels)]
    rule = ["---", *("---:" for _ in COLUMNS)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *body]) + "\n"


def arrow(column: Column) -> str:
    """Return the direction in which a column is better.

    Args:
        column: a column of the table.
    """
    return {"high": " ↑", "low": " ↓", None: ""}[column.better]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same keys.

    Args:
        path: the file.
        rows: at least one.
    """

    def write(aside: Path) -> None:
        with aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    write_atomically(path, write)


def verdict(
    rows: list[dict[str, Any]], labels: Mapping[str, str], *, baseline: str, challengers: Sequence[str]
) -> list[str]:
    """Compare the Gaussian-process rows with the baseline, in words, whatever came out.

    Args:
        rows: one row a method and seed.
        labels: name in the table of each method.
        baseline: the method to compare with.
        challengers: the methods to compare.
    """
    if baseline not in labels or not challengers:
        return []
    base = statistics(rows, baseline)
    sentences = []
    for name in challengers:
        own = statistics(rows, name)
        points = 100 * (own["accuracy"].mean - base["accuracy"].mean)
        within = "within" if points >= -_GOAL_POINTS else "not within"
        better = [title for key, title in _COMPARED.items() if own[key].mean < base[key].mean]
        rest = [title for title in _COMPARED.values() if title not in better]
        difference = f"{points:+.1f}".replace("-", "−")
        remainder = f"; not better in {', '.join(rest)}" if rest else ""
        sentences.append(
            f"{labels[name]}: accuracy {difference} points against {labels[baseline]} ({within} {_GOAL_POINTS:.0f}); "
            f"better in {', '.join(better) or 'nothing'}{remainder}."
        )
    return sentences
