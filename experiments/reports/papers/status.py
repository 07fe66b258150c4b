"""Which numbers of the papers' tables are measured, and what the others wait for."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.data.catalogue import IMAGE_SETS, has_set
from experiments.data.published import PUBLISHED
from experiments.reports.papers.rows import Row
from experiments.reports.papers.specification import Block, TableSpec

__all__ = ["UNDEFINED", "Status", "data_root", "status", "waiting_for"]

UNDEFINED = "undefined for these predictions"
"""Said of a number that no run will ever give, as a rate of errors without an error."""


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
        members = block.question.members if block.question.kind == "ood" and root is not None else ()
        there = [name for name in row.missing if name not in members or has_set(name, "test", root or Path())]
        return f"predictions: {', '.join(there)}" if there else f"data: {', '.join(row.missing)}"
    if row.seeds:
        return UNDEFINED
    absent, partly = _absent(block, root)
    if absent:
        return f"data: {', '.join(absent)}" + ("" if root else " (CGP_DATA is not set)")
    return f"a run on a GPU{partly}" if block.gpu else f"a run{partly}"


def _absent(block: Block, root: Path | None) -> tuple[list[str], str]:
    """What must be there and is not; and, in words, what the numbers will lack or be measured on instead."""
    if root is None:
        return list(block.data), ""
    absent = [name for name in block.data if not _trains(name, root)]
    question = block.question
    if absent or question.kind not in ("ood", "corrupted"):
        return absent, ""
    if question.kind == "corrupted":
        official = [PUBLISHED[name] for name in block.data if name in PUBLISHED]
        missing = [name for name in official if not (root / name).is_dir()]
        return [], f", on generated corruptions ({', '.join(missing)} is not there)" if missing else ""
    missing = [name for name in question.members if not has_set(name, "test", root)]
    if len(missing) == len(question.members):
        return missing, ""
    return [], f", without {', '.join(missing)} (not there)" if missing else ""


def _trains(name: str, root: Path) -> bool:
    """Whether a model can be trained on a data set."""
    return has_set(name, "train", root) if name in IMAGE_SETS else (root / name).exists()


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
