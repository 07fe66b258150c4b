"""How seconds and bytes grow: slopes on logarithmic axes."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from experiments.benchmarks.cases import BLOCKS, CENTRE, LABELS
from experiments.benchmarks.rows import Row

__all__ = ["slope", "slope_table"]

_AXES = {"n, 17 … 256": ("tokens", 0, 256), "n, from 256": ("tokens", 256, math.inf), "m": ("inducing", 0, math.inf)}


def slope_table(rows: Sequence[Row]) -> list[list[str]]:
    """A line a block: slopes of seconds against n, m and B, forward and with backward, and of bytes kept against n.

    Args:
        rows: what was measured.
    """
    head = ["", *(f"{axis}: forward / with backward" for axis in _AXES), "B", "bytes, n"]
    lines = [[LABELS[block], *_cells(rows, block)] for block in BLOCKS]
    lines = [line for line in lines if any(cell.strip("– /") for cell in line[1:])]
    return [head, *lines] if lines else []


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least-squares slope of log y against log x; None with fewer than two different x.

    Args:
        points: x and y, positive.

    Example:
        >>> round(slope([(1.0, 3.0), (2.0, 12.0), (4.0, 48.0)]), 6)
        2.0
    """
    if len({x for x, _ in points}) < 2:
        return None
    x, y = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def _cells(rows: Sequence[Row], block: str) -> list[str]:
    cells = []
    for axis, low, high in _AXES.values():
        found = [_points(rows, block, measure, axis, low, high) for measure in ("forward", "backward")]
        cells.append(" / ".join(_shown(slope(points)) for points in found))
    over_batch = _points(rows, block, "forward", "batch", 0, math.inf)
    kept = _points(rows, block, "counts", "tokens", 0, math.inf, lambda row: row["saved_bytes"] / row["batch"])
    return [*cells, _shown(slope(over_batch)), _shown(slope(kept))]


def _points(
    rows: Sequence[Row],
    block: str,
    measure: str,
    axis: str,
    low: float,
    high: float,
    value: Callable[[Row], float] | None = None,
) -> list[tuple[float, float]]:
    """Values along one axis through the centre; large n has smaller batches, so that values are a sequence's."""
    fixed = {
        key: own for key, own in CENTRE._asdict().items() if key not in (axis, "batch" if axis == "tokens" else "")
    }
    chosen = [
        row
        for row in rows
        if row.get("block") == block
        and row["measure"] == measure
        and row["suite"] in ("blocks", "memory")
        and all(row[key] == own for key, own in fixed.items())
        and low <= row[axis] <= high
        and not (axis == "tokens" and row["tokens"] == CENTRE.tokens and row["batch"] != CENTRE.batch)
    ]
    per_sequence = value or (lambda row: row["seconds"] / (row["batch"] if axis == "tokens" else 1))
    return [(row[axis], per_sequence(row)) for row in chosen]


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
