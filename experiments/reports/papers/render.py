"""A table as text: for the terminal, as Markdown, CSV and LaTeX."""

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.reports.papers.names import METRICS
from experiments.reports.papers.rows import Row
from experiments.reports.papers.specification import PAPERS, TableSpec

__all__ = ["EXTENSIONS", "Format", "Line", "as_csv", "as_latex", "as_markdown", "as_rich", "as_terminal", "lines"]

Format = Literal["terminal", "markdown", "csv", "latex"]
EXTENSIONS: Mapping[str, str] = dict(zip(get_args(Format), ("txt", "md", "csv", "tex"), strict=True))

_COLUMNS = ("", "Method", "Paper", "Ours", "Difference", "Seeds", "Protocol", "Notes")
_NOTHING = "–"
_WIDTH = 100


class Line(NamedTuple):
    """A row as it is printed.

    Attributes:
        group: data set, metric, scale and direction; the same for the rows that are compared.
        method: name.
        paper: mean ± standard deviation.
        ours: the same.
        difference: with its sign.
        seeds: how many.
        protocol: how ours is computed.
        notes: numbers of the footnotes.
        best: whether ours is the best of its group.
        better: whether ours is better than the paper's, nothing where one is not there.
    """

    group: str
    method: str
    paper: str
    ours: str
    difference: str
    seeds: str
    protocol: str
    notes: tuple[int, ...]
    best: bool
    better: bool | None

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands in the columns."""
        return (self.group, self.method, self.paper, self.ours, self.difference, self.seeds, self.protocol)


def lines(rows: Sequence[Row]) -> tuple[list[Line], list[str]]:
    """Format rows.

    Args:
        rows: of one table.

    Returns:
        Lines, and the footnotes that they refer to, from 1.
    """
    notes = list(dict.fromkeys(word for row in rows for word in _words(row)))
    number = {word: index for index, word in enumerate(notes, start=1)}
    groups = itertools.groupby(rows, key=lambda row: (row.group, row.metric))
    return [line for _, group in groups for line in _group_lines(list(group), number)], notes


def _words(row: Row) -> tuple[str, ...]:
    return row.deviations if row.seeds else ()


def _group_lines(rows: Sequence[Row], number: Mapping[str, int]) -> list[Line]:
    sign = 1 if METRICS[rows[0].metric].better == "high" else -1
    shown = [_NAN if math.isnan(row.ours) else round(sign * row.ours * row.scale, row.digits) for row in rows]
    top = max(shown)
    several = sum(value > _NAN for value in shown) > 1
    return [
        Line(
            _title(row),
            row.label,
            _value(row.paper, row.paper_sd, row),
            "undefined" if row.seeds and math.isnan(row.ours) else _value(row.ours, row.ours_sd, row),
            _signed(row),
            str(row.seeds) if row.seeds else _NOTHING,
            row.protocol if row.seeds else _NOTHING,
            tuple(number[word] for word in _words(row)),
            several and value == top,
            None if math.isnan(row.difference) else sign * row.difference > 0,
        )
        for row, value in zip(rows, shown, strict=True)
    ]


_NAN = -math.inf


def _title(row: Row) -> str:
    metric = METRICS[row.metric]
    scale = f" ×{row.scale:g}" if row.scale != 1 else ""
    unit = f" ({metric.unit})" if metric.unit else ""
    return f"{row.group} · {metric.label}{unit}{scale} {'↑' if metric.better == 'high' else '↓'}"


def _value(mean: float, sd: float, row: Row) -> str:
    if math.isnan(mean):
        return _NOTHING
    text = f"{mean * row.scale:.{row.digits}f}"
    text = text.replace("-", "−")
    return text if math.isnan(sd) else f"{text} ± {sd * row.scale:.{row.digits}f}"


def _signed(row: Row) -> str:
    if math.isnan(row.difference):
        return _NOTHING
    return f"{row.difference * row.scale:+.{row.digits}f}".replace("-", "−")


def _caption(spec: TableSpec) -> str:
    return f"{spec.number} of {PAPERS[spec.paper].title}: {spec.title}"


def _remarks(spec: TableSpec, protocol: str) -> list[str]:
    own = [] if protocol == spec.protocol else [f"Ours follows the protocol {protocol}, the paper {spec.protocol}."]
    return [*own, *spec.notes, *PAPERS[spec.paper].settings]


def as_rich(spec: TableSpec, rows: Sequence[Row], width: int) -> Group:
    """The table for the terminal: green where ours is better than the paper's, bold where best of its group.

    Args:
        spec: the table.
        rows: its rows.
        width: of the terminal, in characters.
    """
    printed, notes = lines(rows)
    columns = [_COLUMNS[1:], *(_terminal_cells(line) for line in printed)]
    widths = [max(len(row[index]) for row in columns) for index in range(len(columns[0]))]
    widths[0] = max(12, min(widths[0], width - sum(widths[1:]) - 2 * len(widths[1:])))
    parts: list[RenderableType] = [Text(_caption(spec), style="bold"), "", _grid(widths, [_COLUMNS[1:]], style="bold")]
    for group, part in itertools.groupby(printed, key=lambda line: line.group):
        parts += ["", Text(group, style="bold cyan"), _grid(widths, [_styled(line) for line in part])]
    remarks = [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]
    text = "\n".join(["", *remarks, *_remarks(spec, rows[0].protocol)])
    return Group(*parts, Text(text, style="dim"))


def _grid(widths: Sequence[int], body: Iterable[Sequence[str | Text]], style: str = "") -> Table:
    table = Table.grid(padding=(0, 2))
    for name, size in zip(_COLUMNS[1:], widths, strict=True):
        left = name in ("Method", "Protocol", "Notes")
        table.add_column(justify="left" if left else "right", width=size, overflow="fold", style=style)
    for cells in body:
        table.add_row(*cells)
    return table


def _terminal_cells(line: Line) -> tuple[str, ...]:
    return (*line.cells[1:], _marks(line))


def _styled(line: Line) -> list[Text]:
    method, paper, ours, difference, *rest = _terminal_cells(line)
    colour = {True: "green", False: "red", None: ""}[line.better]
    best = "bold" if line.best else ""
    return [Text(method), Text(paper), Text(ours, best), Text(difference, colour), *(Text(cell) for cell in rest)]


def _marks(line: Line) -> str:
    """Numbers of the footnotes, three or more in a row as a range."""
    runs: list[list[int]] = []
    for number in line.notes:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs]
    return ",".join(parts)


def as_terminal(spec: TableSpec, rows: Sequence[Row]) -> str:
    """The table as plain text of a fixed width.

    Args:
        spec: the table.
        rows: its rows.
    """
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
    console.print(as_rich(spec, rows, _WIDTH))
    return console.file.getvalue()  # type: ignore[attr-defined]


def as_markdown(spec: TableSpec, rows: Sequence[Row]) -> str:
    """The table as Markdown.

    Args:
        spec: the table.
        rows: its rows.
    """
    printed, notes = lines(rows)
    body = ["| Data · metric | " + " | ".join(_COLUMNS[1:]) + " |", "|---|---|---:|---:|---:|---:|---|---|"]
    previous = ""
    for line in printed:
        ours = f"**{line.ours}**" if line.best else line.ours
        group = line.group if line.group != previous else ""
        body.append("| " + " | ".join([group, line.method, line.paper, ours, *line.cells[4:], _marks(line)]) + " |")
        previous = line.group
    remarks = [f"- {note}" for note in _remarks(spec, rows[0].protocol)]
    numbered = [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    departs = ["", "What departs from the paper:", "", *numbered] if numbered else []
    legend = "Mean ± standard deviation over seeds; bold: best of ours. Difference: ours − paper."
    # Sphinx warns of pages in no table of contents that do not say so.
    front = ["---", "orphan: true", "---"]
    return "\n".join([*front, f"# {_caption(spec)}", "", legend, "", *body, *departs, "", *remarks]) + "\n"


def as_csv(_: TableSpec, rows: Sequence[Row]) -> str:
    """The table as CSV in natural units; what is not there is empty.

    Args:
        _: the table.
        rows: its rows.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = ("group", "metric", "method", "paper", "paper_sd", "ours", "ours_sd", "difference", "seeds", "protocol")
    writer.writerow([*names, "scale", "deviations"])
    for row in rows:
        numbers = (row.paper, row.paper_sd, row.ours, row.ours_sd, row.difference)
        cells = ["" if math.isnan(value) else f"{value:.6g}" for value in numbers]
        words = "; ".join(_words(row))
        writer.writerow([row.group, row.metric, row.method, *cells, row.seeds, row.protocol, f"{row.scale:g}", words])
    return buffer.getvalue()


_LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "×": r"$\times$", "↑": r"$\uparrow$"}
    | {"↓": r"$\downarrow$", "−": "$-$", "–": "--", "·": r"$\cdot$", "²": "$^2$", "³": "$^3$"}
)


def as_latex(spec: TableSpec, rows: Sequence[Row]) -> str:
    r"""The table as LaTeX; the preamble needs `\usepackage{booktabs,longtable}`.

    Args:
        spec: the table.
        rows: its rows.
    """
    printed, notes = lines(rows)
    header = " & ".join(["Data, metric", *_COLUMNS[1:]]) + r" \\"
    body = [r"\begin{longtable}{llrrrrll}", rf"\caption{{{_caption(spec).translate(_LATEX)}}} \\"]
    body += [r"\toprule", header, r"\midrule", r"\endhead"]
    for index, (group, part) in enumerate(itertools.groupby(printed, key=lambda line: line.group)):
        body += [r"\midrule"] if index else []
        for position, line in enumerate(part):
            body.append(" & ".join([group.translate(_LATEX) if position == 0 else "", *_latex_cells(line)]) + r" \\")
    remarks = [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    words = " ".join([*remarks, *_remarks(spec, rows[0].protocol)]).translate(_LATEX)
    return "\n".join([*body, r"\bottomrule", r"\end{longtable}", rf"\noindent\footnotesize {words}"]) + "\n"


def _latex_cells(line: Line) -> list[str]:
    ours = line.ours.translate(_LATEX)
    ours = rf"\textbf{{{ours}}}" if line.best else ours
    cells = [cell.translate(_LATEX) for cell in line.cells]
    return [cells[1], cells[2], ours, *cells[4:], _marks(line).translate(_LATEX)]


RENDERERS: Mapping[str, Callable[[TableSpec, Sequence[Row]], str]] = dict(
    zip(get_args(Format), (as_terminal, as_markdown, as_csv, as_latex), strict=True)
)
