"""The report of a run: one HTML file that needs nothing but itself, and the same table for the terminal."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.table import Table

from experiments.evaluation.diagnostics import collapse_of_runs
from experiments.reports.pages import write_page
from experiments.runs.drawing import draw_run
from experiments.runs.folder import RunFolder
from experiments.runs.scoring import COLUMNS, DETECTION_COLUMNS, detection_rows, read_sets, score_rows
from experiments.reports.demo_tables import write_csv

__all__ = ["report_run", "score_table"]


def report_run(folder: RunFolder, protocol: str) -> list[dict[str, Any]]:
    """Write `report.html`, `scores.csv`, `detection.csv` where there are OOD inputs, and the pictures of a run.

    Args:
        folder: of a complete run.
        protocol: of the classification metrics.

    Returns:
        The scores, one row an input set.
    """
    sets = read_sets(folder)
    rows = score_rows(sets, protocol)
    keys = dict.fromkeys(key for row in rows for key in row)
    write_csv(folder.path / "scores.csv", [{key: row.get(key, math.nan) for key in keys} for row in rows])
    detected = detection_rows(sets, protocol)
    if detected:
        write_csv(folder.path / "detection.csv", detected)
    pictures = [
        picture._asdict() | {"data": base64.b64encode(picture.png).decode("ascii")} for picture in draw_run(folder)
    ]
    write_page(
        folder.path / "report.html",
        "run",
        title=_title(folder),
        protocol=protocol,
        header=_header(rows),
        rows=[_cells(row, rows) for row in rows],
        corrupted=[row["set"] for row in rows if row["set"].startswith("corrupted-")],
        finding=_finding(folder),
        detectors=["input set", "detector", *(title for title, _, _ in DETECTION_COLUMNS.values())],
        detected=[_detection_cells(row) for row in detected],
        pictures=pictures,
        summary=folder.read_summary(),
        config=yaml.safe_dump(folder.plain_config(), sort_keys=False),
    )
    return rows


def score_table(folder: RunFolder, rows: Sequence[dict[str, Any]], protocol: str) -> Table:
    """Return the scores of a run for the terminal.

    Args:
        folder: of the run.
        rows: its scores.
        protocol: that they follow.
    """
    title = f"{_title(folder)}, {protocol} protocol"
    table = Table(title=title, title_justify="left", caption=_finding(folder), caption_justify="left")
    for number, title in enumerate(_header(rows)):
        table.add_column(title, justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*_cells(row, rows))
    return table


def _title(folder: RunFolder) -> str:
    config = folder.plain_config()
    return f"{folder.read_summary()['label']} on {config['name'].split('/')[0]}, seed {config['seed']}"


def _finding(folder: RunFolder) -> str | None:
    """What the scores do not show."""
    words = collapse_of_runs([folder.diagnostics])
    return None if words is None else f"{words[0].upper()}{words[1:]}."


def _shown(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The columns that some row has a number for."""
    return [key for key in COLUMNS if any(not math.isnan(row.get(key, math.nan)) for row in rows)]


def _header(rows: Sequence[dict[str, Any]]) -> list[str]:
    return ["input set", "n", *(COLUMNS[key][0] for key in _shown(rows))]


def _cells(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["set"], f"{row['n']:,}", *(_cell(key, row.get(key, math.nan)) for key in _shown(rows))]


def _detection_cells(row: dict[str, Any]) -> list[str]:
    return [row["set"], row["detector"], *(_cell(key, row[key], DETECTION_COLUMNS) for key in DETECTION_COLUMNS)]


def _cell(key: str, value: float, columns: Mapping[str, tuple[str, int, int]] = COLUMNS) -> str:
    _, scale, digits = columns[key]
    return "–" if math.isnan(value) else f"{scale * value:.{digits}f}"
