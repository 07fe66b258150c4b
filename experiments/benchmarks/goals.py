"""The goals: ratios that the blocks are to stay below, and how far they are."""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.benchmarks.cases import CENTRE, LABELS, Case
from experiments.benchmarks.rows import Row

__all__ = ["Goal", "Outcome", "outcomes"]


class Goal(NamedTuple):
    """A bound.

    Attributes:
        name: in words.
        suite: whose row it is about.
        block: of the row.
        measure: of the row.
        tokens: n of the row.
        bound: what the value must not exceed, or must reach.
        at_least: whether the bound is from below.
    """

    name: str
    suite: str
    block: str
    measure: str
    tokens: int
    bound: float
    at_least: bool = False


class Outcome(NamedTuple):
    """What became of a goal.

    Attributes:
        goal: the goal.
        value: what was measured; None if nothing was.
        spread: quartiles, as text; empty where a value is exact.
        reached: whether the value keeps the bound.
    """

    goal: Goal
    value: float | None
    spread: str
    reached: bool


_RATIOS = {
    ("kernel", 64): (1.0, 0.95),
    ("kernel", 512): (1.0, 1.0),
    ("sparse-direct", 64): (1.3, 1.3),
    ("sparse-direct", 512): (0.6, 0.6),
    ("sparse-direct", 4096): (0.10, 0.10),
    ("sparse-latent", 64): (1.6, 1.5),
    ("sparse-latent", 512): (0.7, 0.7),
    ("sparse-latent", 4096): (0.12, 0.12),
    ("exact-direct", 64): (3.0, 2.5),
    ("exact-latent", 64): (4.5, 4.0),
    ("exact-latent-objective", 64): (6.0, 6.0),
    ("softmax-bounded", 64): (1.5, 1.5),
    ("softmax-bounded", 512): (1.15, 1.15),
    ("softmax-bounded", 4096): (1.05, 1.05),
    ("sgpa", 64): (1.6, 1.7),
    ("kep", 64): (0.75, 0.8),
    ("kep", 512): (0.35, 0.35),
    ("kep", 4096): (0.06, 0.06),
}
_PRINTED = {"exact-latent": 50.0, "sparse-latent": 25.0, "sgpa": 3.5, "kep": 2.0}


def _goals() -> list[Goal]:
    goals = [
        Goal(LABELS[block], "blocks", block, measure, tokens, bound)
        for (block, tokens), bounds in _RATIOS.items()
        for measure, bound in zip(("forward", "backward"), bounds, strict=True)
    ]
    goals += [
        Goal(f"bytes kept, {LABELS[block]}", "memory", block, "counts", 64, 1.8)
        for block in ("sparse-direct", "sparse-latent")
    ]
    for block, bound in _PRINTED.items():
        name = f"the papers' formulas, {LABELS[block]}"
        goals += [Goal(name, "transcriptions", f"{block}, as printed", "backward", 64, bound, at_least=True)]
    for name, method in (("a sparse GP", "sparse-direct, last layer"), ("KEP-SVGP", "kep, last layer")):
        goals += [Goal(f"ten draws, last layer {name}", "prediction", method, "10 draws", 64, 1.5)]
    for block in ("sparse-direct", "exact-direct", "sgpa"):
        goals += [Goal(f"posterior(x), {LABELS[block]}", "posterior", f"{block}, posterior", "forward", 64, 1.4)]
    return goals


def outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Every goal with what was measured.

    Args:
        rows: what was measured, of any suite.
    """
    return [_outcome(goal, rows) for goal in _goals()]


def _outcome(goal: Goal, rows: Sequence[Row]) -> Outcome:
    row = _find(goal, rows)
    if row is None:
        return Outcome(goal, None, "", False)
    if goal.suite == "memory":
        softmax = _find(goal._replace(block="softmax"), rows)
        value, spread = row["saved_bytes"] / softmax["saved_bytes"] if softmax else None, "exact"
    else:
        value, spread = row["ratio"], f"{row['ratio_low']:.2f} – {row['ratio_high']:.2f}"
    reached = value is not None and (value >= goal.bound if goal.at_least else value <= goal.bound)
    return Outcome(goal, value, spread, reached)


def _find(goal: Goal, rows: Sequence[Row]) -> Row | None:
    """The row of the goal's block at the centre of the grid but for n (and the batch, which large n reduces)."""
    centre = {key: value for key, value in CENTRE._asdict().items() if key not in ("tokens", "batch")}
    wanted = centre | {"suite": goal.suite, "block": goal.block, "measure": goal.measure, "tokens": goal.tokens}
    if goal.tokens <= 512:
        wanted["batch"] = CENTRE.batch
    found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    return found[0] if found else None


def grid_case(row: Row) -> Case:
    """The case of a row.

    Args:
        row: any row of a block.
    """
    return Case(**{key: row[key] for key in Case._fields})
