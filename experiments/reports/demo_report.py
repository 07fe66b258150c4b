"""The report: one HTML file that needs nothing but itself."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.reports.demo_tables import arrow, table_cells
from experiments.reports.pages import write_page
from experiments.reports.pictures import pictures
from experiments.reports.results import COLUMNS, Results
from experiments.runs.demo_runs import Run
from experiments.storage import write_atomically

__all__ = ["write_report"]


def write_report(
    runs: Sequence[Run],
    results: Results,
    root: Path,
    *,
    title: str,
    verdict: Sequence[str],
    config: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> None:
    """Write `report.html`, and the pictures as files of their own.

    Args:
        runs: complete runs.
        results: their numbers.
        root: the application's output folder.
        title: what the table shows.
        verdict: the comparison in words.
        config: the resolved configuration.
        provenance: versions, machine, commit, seeds.
    """
    drawn = []
    for picture in pictures(runs, results, root):
        write_atomically(
            root / "pictures" / f"{picture.name}.png", lambda aside, png=picture.png: aside.write_bytes(png)
        )
        drawn.append(picture._asdict() | {"data": base64.b64encode(picture.png).decode("ascii")})
    labels = {run.name: run.method.label for run in runs}
    write_page(
        root / "report.html",
        "report",
        title=title,
        verdict=verdict,
        columns=[column._asdict() | {"arrow": arrow(column)} for column in COLUMNS],
        rows=table_cells(results.runs, labels),
        pictures=drawn,
        methods=list({run.name: run.method for run in runs}.values()),
        config=yaml.safe_dump(dict(config), sort_keys=False),
        provenance=provenance,
    )
