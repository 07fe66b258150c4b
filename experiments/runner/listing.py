"""`list`: rows, and how far their runs are."""

from pathlib import Path

from rich.table import Table

from experiments.runner.folder import RunFolder
from experiments.runner.rows import row_names

__all__ = ["row_table"]


def row_table(rows: str, out: Path) -> Table:
    """Return the rows with the seeds that are done and those that were begun.

    Args:
        rows: pattern of rows.
        out: folder of all runs.
    """
    table = Table(title=f"Rows, and their runs in {out}", title_justify="left")
    for title in ("row", "seeds done", "begun", "s/epoch", "departures"):
        table.add_column(title)
    for name in row_names(rows):
        folders = [RunFolder(path) for path in sorted((out / name).glob("seed-*"))]
        done = [folder for folder in folders if folder.is_complete]
        begun = [folder for folder in folders if not folder.is_complete and folder.config.exists()]
        summaries = [folder.read_summary() for folder in done]
        seconds = [summary["seconds_per_epoch"] for summary in summaries if "seconds_per_epoch" in summary]
        table.add_row(
            name,
            _seeds(done),
            _seeds(begun),
            f"{sum(seconds) / len(seconds):.1f}" if seconds else "",
            str(len(summaries[0]["reduced"])) if summaries else "",
        )
    return table


def _seeds(folders: list[RunFolder]) -> str:
    return " ".join(folder.path.name.removeprefix("seed-") for folder in folders)
