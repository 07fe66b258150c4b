"""`list`: rows, and how far their runs are."""

from pathlib import Path

from rich.table import Table

from experiments.runs.folder import RunFolder
from experiments.runs.rows import is_row, row_names

__all__ = ["row_table"]


def row_table(rows: str, out: Path) -> Table:
    """Return the rows with the seeds that are done and those that were begun; runs on data of one's own, too.

    Args:
        rows: pattern of rows.
        out: folder of all runs.

    Raises:
        ValueError: if there is neither a row nor a run of this name.
    """
    table = Table(title=f"Rows, and their runs in {out}", title_justify="left")
    for title in ("row", "seeds done", "begun", "s/epoch", "deviations"):
        table.add_column(title)
    for name in _names(rows, out):
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


def _names(pattern: str, out: Path) -> list[str]:
    """Runs that are called after no row, then the rows."""
    runs = out.glob(pattern if "/" in pattern else f"{pattern}/*")
    names = ("/".join(path.parts[-2:]) for path in runs if any(path.glob("seed-*/config.yaml")))
    own = sorted(name for name in names if not is_row(name))
    try:
        return [*own, *row_names(pattern)]
    except ValueError:
        if not own:
            raise
        return own


def _seeds(folders: list[RunFolder]) -> str:
    return " ".join(folder.path.name.removeprefix("seed-") for folder in folders)
