"""`list`: rows, and the progress of their runs."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from experiments.runs.rows import described, is_row, row_names
from experiments.runs.run import Run

__all__ = ["row_table"]


def row_table(rows: str, out: Path) -> Group:
    """Return the rows with their complete and their begun seeds, and the same for runs on other data.

    Rows without either follow by name, those of a data set in a line, then what each method is.
    """
    table = Table(title=f"Runs in {out}", title_justify="left")
    for title in ("row", "seeds done", "begun", "s/epoch", "deviations"):
        table.add_column(title)
    without, names = [], _names(rows, out)
    for name in names:
        runs = [Run(path) for path in sorted((out / name).glob("seed-*"))]
        done = [run for run in runs if run.is_complete]
        begun = [run for run in runs if not run.is_complete and run.config_file.exists()]
        if not done and not begun:
            without.append(name.split("/"))
            continue
        seconds = [run.record["seconds_per_epoch"] for run in done if "seconds_per_epoch" in run.record]
        mean = f"{sum(seconds) / len(seconds):.1f}" if seconds else ""
        table.add_row(name, _seeds(done), _seeds(begun), mean, str(len(done[0].deviations)) if done else "")
    others = Table(title=f"Rows without runs in {out}, named <data>/<method>", title_justify="left", box=None)
    for title in ("data", "methods"):
        others.add_column(title)
    for data, of_data in groupby(without, key=lambda parts: parts[0]):
        others.add_row(data, " ".join(method for _, method in of_data))
    return Group(*(part for part in (table, others) if part.row_count), *_methods(names))


def _methods(names: Sequence[str]) -> Iterator[Table | Text]:
    """What the methods of rows are: those with a block, then those that change softmax's network or predictions."""
    table = Table(title="Methods, before what differs by data", title_justify="left", box=None)
    for title in ("method", "in tables", "block"):
        table.add_column(title)
    changed = []
    for method, label, block in described(names):
        if block:
            table.add_row(method, label, block)
        else:
            changed.append(f"{method} ({label})")
    if table.row_count:
        yield table
    if changed:
        yield Text(f" Softmax, changed: {', '.join(changed)}")


def _names(pattern: str, out: Path) -> list[str]:
    """Names of runs that are no rows, then the rows."""
    folders = out.glob(pattern if "/" in pattern else f"{pattern}/*")
    names = ("/".join(path.parts[-2:]) for path in folders if any(path.glob("seed-*/config.yaml")))
    other_names = sorted(name for name in names if not is_row(name))
    try:
        return [*other_names, *row_names(pattern)]
    except ValueError:
        if not other_names:
            raise
        return other_names


def _seeds(runs: Sequence[Run]) -> Text:
    """The seeds as `--seeds` takes them."""
    return Text(f"[{','.join(run.folder.name.removeprefix('seed-') for run in runs)}]" if runs else "")
