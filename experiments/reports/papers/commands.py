"""`table` and `list_tables`: what the command line calls."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.evaluation import PROTOCOLS, Protocol
from experiments.reports.demo_tables import console_of_width
from experiments.reports.papers.cache import Cache
from experiments.reports.papers.catalogue import TABLES, find_tables
from experiments.reports.papers.measure import Meter
from experiments.reports.papers.render import EXTENSIONS, RENDERERS, Format, as_rich
from experiments.reports.papers.rows import Row, rows
from experiments.reports.papers.runs import find_runs
from experiments.reports.papers.specification import Block, TableSpec
from experiments.reports.papers.status import UNDEFINED, data_root, status, waiting_for
from experiments.storage import write_text

__all__ = ["CACHE", "list_tables", "table", "table_rows"]

CACHE = ".metrics"


def table_rows(name: str, *, runs: Path, protocol: Protocol | None = None, cache: bool = True) -> dict[str, list[Row]]:
    """Measure tables: the numbers behind `table`, for use in Python.

    Args:
        name: of a table, "cgpt", "kep", "sgpa", or "all".
        runs: folder of runs.
        protocol: how our numbers are computed; without, as the paper's.
        cache: whether to remember metrics in `<runs>/.metrics`.

    Returns:
        Rows by the name of the table.

    Raises:
        ValueError: If there is no such table, protocol or folder.
    """
    if protocol is not None and protocol not in PROTOCOLS:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    specs = find_tables(name)
    found = find_runs(Path(runs))
    memory = Cache(Path(runs) / CACHE if cache else None)
    return {spec.name: rows(spec, found, Meter(protocol or spec.protocol, memory)) for spec in specs}


def table(
    name: str,
    *,
    runs: Path = Path("runs"),
    out: Path | None = None,
    format: Format = "terminal",  # noqa: A002 - the name of the option
    protocol: Protocol | None = None,
    cache: bool = True,
) -> None:
    """Print a table of a paper with our numbers beside the printed ones, recomputed from saved predictions.

    Args:
        name: of a table, or "cgpt", "kep", "sgpa" or "all"; "list" prints all tables, what is measured of them and
            what the rest waits for.
        runs: folder of runs, `<data>/<method>/seed-<n>/` beneath.
        out: a file, or a folder for a file a table; without, the table is printed.
        format: terminal, markdown, csv or latex.
        protocol: how our numbers are computed: pooled, cgpt, kep or sgpa; without, as the table's paper does.
        cache: whether to remember metrics in `<runs>/.metrics`.

    Raises:
        ValueError: If there is no such table, format, protocol or folder.
    """
    if format not in EXTENSIONS:
        raise ValueError(f"format: expected one of {', '.join(EXTENSIONS)}, got {format!r}")
    if name == "list":
        list_tables(runs=runs, cache=cache)
        return
    specs = find_tables(name)
    measured = table_rows(name, runs=runs, protocol=protocol, cache=cache)
    for spec in specs:
        _put(spec, measured[spec.name], out, format, one=len(specs) == 1)


def _put(spec: TableSpec, rows_: Sequence[Row], out: Path | None, format_: Format, *, one: bool) -> None:
    if out is None and format_ == "terminal":
        console = Console()
        console.print(as_rich(spec, rows_, console.width))
        return
    text = RENDERERS[format_](spec, rows_)
    if out is None:
        print(text, end="")
        return
    path = Path(out) if one and Path(out).suffix[1:].isalpha() else Path(out) / f"{spec.name}.{EXTENSIONS[format_]}"
    write_text(path, text)
    print(path)


def list_tables(
    name: str | None = None, *, runs: Path = Path("runs"), data: Path | None = None, cache: bool = True
) -> None:
    """Print which numbers of the tables are measured, and what the others wait for.

    Args:
        name: of a table, to list each of its rows; without, one line a table.
        runs: folder of runs.
        data: folder of the data sets; without, that of the environment variable CGP_DATA.
        cache: whether to remember metrics in `<runs>/.metrics`.

    Raises:
        ValueError: If there is no such table or folder.
    """
    root = data_root(data)
    measured = table_rows(name or "all", runs=runs, cache=cache)
    console = console_of_width(160)
    console.print(_overview(measured, root) if name is None else _detail(name, measured, root))
    if name is None:
        console.print(
            "One table: python -m experiments table cgpt-I. Its rows: python -m experiments tables --name cgpt-I",
            style="dim",
        )


def _overview(measured: dict[str, list[Row]], root: Path | None) -> Table:
    view = Table("Table", "Shows", "Measured", "The rest waits for", header_style="bold")
    for name, rows_ in measured.items():
        spec = TABLES[name]
        state = status(spec, rows_, root)
        rest = "; ".join(f"{count} {_waiting('for', what)}" for what, count in state.waits.items()) or "–"
        partial = f", {state.partial} in part" if state.partial else ""
        view.add_row(name, spec.title, f"{state.measured} of {state.total}{partial}", rest)
    return view


def _detail(name: str, measured: dict[str, list[Row]], root: Path | None) -> Group:
    return Group(*(part for spec in find_tables(name) for part in _rows_of(spec, measured[spec.name], root)))


def _rows_of(spec: TableSpec, rows_: Sequence[Row], root: Path | None) -> Iterator[RenderableType]:
    blocks = {block.title: block for block in spec.blocks}
    for group, part in itertools.groupby(rows_, key=lambda row: row.group):
        yield Text(f"{spec.name} · {group}", style="bold cyan")
        view = Table.grid(padding=(0, 2))
        methods: dict[str, list[Row]] = {}
        for row in part:
            methods.setdefault(row.method, []).append(row)
        for method, own in methods.items():
            view.add_row(f"{blocks[group].folders[0]}/{method}", _state(blocks[group], own, root))
        yield view
        yield ""


def _state(block: Block, rows_: Sequence[Row], root: Path | None) -> str:
    waits = dict.fromkeys(filter(None, (waiting_for(block, row, root) for row in rows_)))
    return "; ".join(_waiting("waiting for", what) for what in waits) or _seeds(rows_)


def _waiting(words: str, what: str) -> str:
    return what if what == UNDEFINED else f"{words} {what}"


def _seeds(rows_: Sequence[Row]) -> str:
    seeds = max(row.seeds for row in rows_)
    missing = dict.fromkeys(name for row in rows_ for name in row.missing)
    without = f", without {', '.join(missing)}" if missing else ""
    words = "".join(f"; {word}" for word in rows_[0].deviations)
    return f"{seeds} seed{'s' if seeds != 1 else ''}{without}{words}"
