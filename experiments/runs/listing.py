"""`list`: rows, and the progress of their runs."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from experiments.runs.rows import is_row, row_names
from experiments.runs.run import Run

__all__ = ["row_table"]


def row_table(rows: str, out: Path) -> Table:
    """Return the rows with their complete and their begun seeds, and the same for runs on other data."""
    table = Table(title=f"Rows, and their runs in {out}", title_justify="left")
    for title in ("row", "seeds done", "begun", "s/epoch", "deviations"):
        table.add_column(title)
    for name in _names(rows, out):
        runs = [Run(path) for path in sorted((out / name).glob("seed-*"))]
        done = [run for run in runs if run.is_complete]
        begun = [run for run in runs if not run.is_complete and run.config_file.exists()]
        seconds = [run.record["seconds_per_epoch"] for run in done if "seconds_per_epoch" in run.record]
        mean = f"{sum(seconds) / len(seconds):.1f}" if seconds else ""
        table.add_row(name, _seeds(done), _seeds(begun), mean, str(len(done[0].deviations)) if done else "")
    return table


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


def _seeds(runs: Sequence[Run]) -> str:
    return " ".join(run.folder.name.removeprefix("seed-") for run in runs)
