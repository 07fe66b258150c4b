"""Which numbers of the papers' tables are measured, and what the others wait for."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.paper_tables.rows import Row
from experiments.paper_tables.specification import Block, TableSpec

__all__ = ["Status", "data_root", "status", "waiting_for"]


class Status(NamedTuple):
    """State of one table.

    Attributes:
        measured: how many numbers have at least one seed.
        partial: how many of these lack some of the input sets that they are a mean over.
        total: how many there are to measure.
        waits: how many numbers wait for what.
    """

    measured: int
    partial: int
    total: int
    waits: dict[str, int]


def data_root(data: Path | None) -> Path | None:
    """The folder of the data sets: the given one, or that of the environment variable CGP_DATA."""
    named = os.environ.get("CGP_DATA")
    return data if data is not None else Path(named) if named else None


def waiting_for(block: Block, row: Row, root: Path | None) -> str:
    """What a number waits for, in words; empty if it is measured.

    Args:
        block: where it stands.
        row: the number.
        root: folder of the data sets.
    """
    if row.seeds and not math.isnan(row.ours):
        return ""
    if row.missing:
        return f"predictions: {', '.join(row.missing)}"
    if row.seeds:
        return "nothing: undefined for these predictions"
    absent = [name for name in block.data if root is None or not (root / name).exists()]
    if absent:
        return f"data: {', '.join(absent)}" + ("" if root else " (CGP_DATA is not set)")
    return "a run on a GPU" if block.gpu else "a run"


def status(spec: TableSpec, rows: Sequence[Row], root: Path | None) -> Status:
    """Count.

    Args:
        spec: a table.
        rows: its rows.
        root: folder of the data sets.
    """
    blocks = {block.title: block for block in spec.blocks}
    asked = [row for row in rows if row.method in blocks[row.group].methods.values()]
    waits = Counter(waiting_for(blocks[row.group], row, root) for row in asked)
    measured = waits.pop("", 0)
    partial = sum(bool(row.missing) and not math.isnan(row.ours) for row in asked)
    return Status(measured, partial, len(asked), dict(waits.most_common()))
