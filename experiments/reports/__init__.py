"""Tables, figures and pages from saved predictions."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from experiments.evaluation import classification_report
from experiments.reports.tables import escape, write_csv
from experiments.runs import Run
from experiments.storage import write_text

__all__ = ["report"]


def report(runs: Sequence[Run], out: Path, protocol: str) -> list[RenderableType]:
    """Score the test predictions of runs; write `results.csv` and `report.html`.

    Args:
        runs: complete runs.
        out: folder to write.
        protocol: of the metrics.
    """
    rows = []
    for run in runs:
        test = run.predictions("test")
        scores = classification_report(test.logits, test.labels, protocol=protocol)._asdict()
        rows.append({"row": run.name, "seed": run.seed, "label": run.label, **scores})
    table = Table(*map(str, rows[0]), title=f"Test predictions, {protocol} protocol")
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    write_csv(out / "results.csv", rows)
    lines = "".join(f"<p>{escape(str(row), 'html')}</p>" for row in rows)
    write_text(out / "report.html", f"<!DOCTYPE html><meta charset='utf-8'><title>Report</title>{lines}")
    return [table]
