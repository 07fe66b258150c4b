"""`table`: a table of a paper with our numbers beside the printed ones, in the terminal, as Markdown or as CSV."""

import itertools
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from experiments.atomic_files import write_text
from experiments.configuration import Protocol
from experiments.evaluation import PROTOCOLS
from experiments.grids import Cell, Fitted, Grid, as_markdown, console_of_width, print_csv, write_csv
from experiments.reports.papers.recorded import with_recorded
from experiments.reports.papers.specification import METRICS, TABLES, TableSpec
from experiments.reports.papers.tidy import Row, reported, rows
from experiments.reports.scores import Statistic, cells
from experiments.runs import Run, find_runs
from experiments.runs.rows import is_row

__all__ = ["find_tables", "table", "table_rows"]

Format = Literal["terminal", "markdown", "csv"]
_NOTHING = "–"
_REDUCED = re.compile(r"[\d,]+ of [\d,]+ train ")
_LEGEND = (
    "Printed by the paper above ours; mean ± standard deviation over seeds; bold: best of ours where it has several "
    "seeds. Numbers in the last column name the deviations from the paper; reduced are settings with fewer training "
    "examples than it has."
)


def find_tables(name: str) -> list[TableSpec]:
    """Return the table of that name, the tables of that paper, or all; case does not matter."""
    wanted = name.lower()
    exact = [spec for key, spec in TABLES.items() if key.lower() == wanted]
    specs = exact or [spec for key, spec in TABLES.items() if wanted in ("all", key.partition("-")[0])]
    if not specs:
        raise ValueError(f"name: expected list, all, cgpt, kep, sgpa or one of {', '.join(TABLES)}, got {name!r}")
    return specs


def table_rows(name: str, *, runs: Path, protocol: Protocol | None = None) -> dict[str, list[Row]]:
    """Measure tables: the tidy rows behind `table` by the name of the table, for use in Python."""
    specs = _specified(name, protocol)
    return _measured(specs, find_runs([runs]), protocol)


def _specified(name: str, protocol: Protocol | None) -> list[TableSpec]:
    if protocol is not None and protocol not in PROTOCOLS:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    return find_tables(name)


def _measured(specs: list[TableSpec], complete: list[Run], protocol: Protocol | None) -> dict[str, list[Row]]:
    return {spec.name: rows(spec, complete, protocol or spec.paper.protocol) for spec in specs}


def table(
    name: str = "list",
    *,
    runs: Path = Path("runs"),
    out: Path | None = None,
    format: Format = "terminal",  # noqa: A002 - the name of the option
    protocol: Protocol | None = None,
) -> None:
    """Print or write tables: `python -m experiments table`, where the arguments are explained."""
    if format not in get_args(Format):
        raise ValueError(f"format: expected one of {', '.join(get_args(Format))}, got {format!r}")
    console, specs = console_of_width(160), _specified("all" if name == "list" else name, protocol)
    try:
        of_names = _measured(specs, find_runs([runs]), protocol)
    except ValueError as error:
        sys.stderr.write(f"Our numbers are those that docs/results/papers has recorded ({error}).\n{_missing(specs)}")
        of_names = {key: with_recorded(key, each, _title) for key, each in _measured(specs, [], protocol).items()}
    if name == "list":
        console.print(_overview(of_names))
        return
    sys.stderr.write(_absent(of_names, runs, specs))
    measured = [(TABLES[key], of_table) for key, of_table in of_names.items()]
    if out is not None:
        for spec, of_table in measured:
            print(_write(spec, of_table, out, format, is_single=len(measured) == 1))
    elif format == "csv":
        print_csv(sys.stdout, [line for part in measured for line in _tidy(*part)], "\n")
    else:
        for part in measured:
            console.print(as_terminal(*part) if format == "terminal" else markdown(*part))


def _absent(of_names: Mapping[str, Sequence[Row]], runs: Path, specs: Sequence[TableSpec]) -> str:
    """A line where runs are there, but none of these tables."""
    if any(row.seeds for of_table in of_names.values() for row in of_table):
        return ""
    return f"No run of this table is in {runs}: it has the printed numbers alone.\n{_missing(specs)}"


def _missing(specs: Sequence[TableSpec]) -> str:
    """The command that makes the runs of a table; nothing for several tables."""
    if len(specs) > 1:
        return ""
    names = dict.fromkeys(f"{block.folders[0]}/{name}" for block in specs[0].blocks for name in block.methods.values())
    return f"The runs of this table: python -m experiments sweep {' '.join(filter(is_row, names))} --out runs\n"


def _write(spec: TableSpec, measured: Sequence[Row], out: Path, kind: Format, *, is_single: bool) -> Path:
    ending = {"terminal": "txt", "markdown": "md", "csv": "csv"}[kind]
    path = out if is_single and out.suffix[1:].isalpha() else out / f"{spec.name}.{ending}"
    if kind == "csv":
        write_csv(path, _tidy(spec, measured))
    else:
        write_text(path, markdown(spec, measured))
    return path


def _tidy(spec: TableSpec, measured: Sequence[Row]) -> list[dict[str, Any]]:
    return [{"table": spec.name} | row._asdict() | {"deviations": "; ".join(row.deviations)} for row in measured]


def _overview(measured: Mapping[str, Sequence[Row]]) -> RenderableType:
    """Number of printed numbers for which we have measured ours."""
    lines = []
    for name, of_table in measured.items():
        methods = {method for block in TABLES[name].blocks for method in block.methods.values()}
        numbers = [row for row in of_table if row.method in methods]
        done = sum(not math.isnan(row.ours) for row in numbers)
        lines.append([Cell(name), Cell(f"{done} of {len(numbers)}"), Cell(TABLES[name].title)])
    hint = "One table: python -m experiments table cgpt-I; `list` shows the rows and their runs."
    return Fitted(Grid(("Table", "Measured", "Shows"), lines, notes=(hint,), left=("Shows",)))


def pivots(measured: Sequence[Row]) -> Iterator[Grid]:
    """Yield the pivot of each setting: methods by metrics, the printed line above ours, with references to notes."""
    notes = list(dict.fromkeys(word for row in measured for word in row.deviations))
    number = {word: index for index, word in enumerate(notes, start=1)}
    for setting, part in itertools.groupby(measured, key=lambda row: row.setting):
        yield _pivot(setting, list(part), number)


def _pivot(setting: str, measured: Sequence[Row], number: Mapping[str, int]) -> Grid:
    by_method = {name: list(part) for name, part in itertools.groupby(measured, key=lambda row: row.method)}
    metrics = next(iter(by_method.values()))
    ours = {row.metric: _column([line for line in measured if line.metric == row.metric]) for row in metrics}
    lines: list[list[Cell]] = []
    for method, of_method in by_method.items():
        printed = [Statistic(row.printed, row.printed_sd).text(row.scale, row.digits) for row in of_method]
        seeds = max(row.seeds for row in of_method)
        words = dict.fromkeys(word for row in of_method for word in row.deviations)
        label = of_method[0].label
        if any(text != _NOTHING for text in printed):
            lines.append([Cell(f"{label}, printed"), *map(Cell, printed), Cell(""), Cell("")])
            label = f"{label}, ours"
        elif not seeds:
            label = f"{label}, to be measured"
        notes = _ranges([number[word] for word in words])
        lines.append(
            [Cell(label), *(ours[row.metric][method] for row in of_method), Cell(str(seeds or _NOTHING)), Cell(notes)]
        )
    reduced = any(_REDUCED.match(word) for row in measured for word in row.deviations)
    title = f"{setting}, reduced" if reduced else setting
    return Grid(["Method", *map(_title, metrics), "Seeds", "Notes"], lines, title=title)


def _column(measured: Sequence[Row]) -> dict[str, Cell]:
    """Our numbers of one metric by method."""
    first = measured[0]
    numbers = {row.method: Statistic(row.ours, row.ours_sd) for row in measured}
    undefined = {row.method: Cell("undefined") for row in measured if row.seeds and math.isnan(row.ours)}
    shown = cells(numbers, METRICS[first.metric].better, first.scale, first.digits) | undefined
    return {row.method: shown[row.method]._replace(best=shown[row.method].best and row.seeds > 1) for row in measured}


def _title(row: Row) -> str:
    metric = METRICS[row.metric]
    scale = f" ×{row.scale:g}" if row.scale != 1 else ""
    unit = f" ({metric.unit})" if metric.unit else ""
    return f"{metric.label}{unit}{scale} {'↑' if metric.better == 'high' else '↓'}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers of notes, three or more in a row as a range.

    Example:
        >>> _ranges([1, 2, 3, 5, 6])
        '1–3,5,6'
    """
    groups = itertools.groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _caption(spec: TableSpec) -> str:
    kind, _, figure = spec.number.partition("-")
    place = f"Figure {figure}" if figure else f"Table {kind}" if reported(spec.paper.key, kind) else "Slides"
    return f"{place} of {spec.paper.title}: {spec.title}"


def _remarks(spec: TableSpec, measured: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Numbered notes, and further remarks."""
    notes = list(dict.fromkeys(word for row in measured for word in row.deviations))
    protocol = measured[0].protocol
    theirs = spec.paper.protocol
    differences = [] if protocol == theirs else [f"Ours follows the protocol {protocol}, the paper {theirs}."]
    return notes, [*differences, *spec.notes, *spec.paper.remarks]


class _Notes(NamedTuple):
    """Lines below tables, the numbered ones if the last column of one is shown, which refers to them."""

    numbered: Sequence[str]
    remarks: Sequence[str]
    tables: Sequence[Fitted]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Leave out what nothing refers to at the present width."""
        are_named = any(table.fitting(options.max_width) == len(table.grid.header) for table in self.tables)
        yield Text("\n".join([*(self.numbered if are_named else ()), *self.remarks]), style="dim")


def as_terminal(spec: TableSpec, measured: Sequence[Row]) -> Group:
    """Lay a table out for the terminal."""
    notes, remarks = _remarks(spec, measured)
    numbered = [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]
    fitted = [Fitted(grid, more="--format csv") for grid in pivots(measured)]
    grids = [part for table in fitted for part in (table, "")]
    return Group(Text(_caption(spec), style="bold"), "", *grids, _Notes(numbered, remarks, fitted))


def markdown(spec: TableSpec, measured: Sequence[Row]) -> str:
    """Return a table as a page of Markdown."""
    notes, remarks = _remarks(spec, measured)
    body = [part for grid in pivots(measured) for part in (f"## {grid.title}", "", as_markdown(grid))]
    numbered = [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    folded = ["<details>", "<summary>Deviations from the paper</summary>", "", *numbered, "", "</details>", ""]
    # Without "orphan", Sphinx warns of pages in no table of contents.
    head = ["---", "orphan: true", "---", f"# {_caption(spec)}", "", _LEGEND, ""]
    return "\n".join([*head, *body, *(folded if numbered else ()), *(f"- {note}" for note in remarks)]) + "\n"
