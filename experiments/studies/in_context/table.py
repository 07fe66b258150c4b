"""The tables and the learning curves of docs/results/in-context.md and in-context-larger.md."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.atomic_files import read_json, write_text
from experiments.evaluation.metrics import Array
from experiments.evaluation.paired import mean_difference
from experiments.grids import markdown_table
from experiments.studies.in_context.curves import draw_curves
from experiments.studies.in_context.models import LABELS, TRUTH
from experiments.studies.in_context.tasks import KINDS

__all__ = ["FLAT", "Result", "gain", "results", "table"]

Runs = Mapping[str, Mapping[int, "Result"]]
"""Those of a family by model and seed."""

FLAT = 0.02
"""Nats a target within which a flat curve lies in the second half of the training."""

_REFERENCE = "fixed-8"
_STEPS = (
    ("translation equivariance", "tnp-equivariant", "tnp"),
    ("Gaussian-process attention in all layers", "tnp-gp", "tnp"),
    ("exact conditioning under one kernel that the same transformer writes", "written-1", "tnp-equivariant"),
    ("exact conditioning under eight of them, weighted by evidence", "written-8", "tnp-equivariant"),
    ("eight fixed kernels against ConvCNP", "fixed-8", "convcnp"),
    ("eight fixed kernels against TNP-D", "fixed-8", "tnp"),
    ("eight kernels weighted by evidence", "fixed-8", "fixed-1"),
    ("32 instead of eight", "fixed-32", "fixed-8"),
    ("training on joint densities too", "fixed-8", "fixed-8-marginal"),
    ("one kernel written by a transformer", "written-1", "fixed-1"),
    ("eight written by a transformer", "written-8", "fixed-8"),
    ("token features in the kernel", "features-8", "written-8"),
    ("a transformer and token features", "features-8", "fixed-8"),
)


class Result(NamedTuple):
    """A run: what its file says (empty of the truth), and its scores by function."""

    run: Mapping[str, Any]
    scores: Mapping[str, Array]

    @property
    def late_gain(self) -> float:
        """Nats a target by which the second half of the training improved the validation loss; NaN without a curve."""
        losses = self._late_losses()
        return losses[0] - losses[-1] if losses else math.nan

    @property
    def is_flat(self) -> bool:
        """Whether the losses of the second half lie within :data:`FLAT`."""
        losses = self._late_losses()
        return bool(losses) and max(losses) - min(losses) < FLAT

    def _late_losses(self) -> list[float]:
        curve = self.run["curve"]
        if not curve:
            return []
        half = min(curve, key=lambda point: abs(point["step"] - 0.5 * self.run["steps"]))
        return [point["loss"] for point in curve if point["step"] >= half["step"]]


def results(out: Path, family: str) -> dict[str, dict[int, Result]]:
    """The finished runs of a family by model and seed, in the order of the models."""
    read: dict[str, dict[int, Result]] = defaultdict(dict)
    for name in LABELS:
        for folder in sorted((out / family / name).glob("seed-*")):
            path = folder / "run.json"
            if name != TRUTH and not path.exists():
                continue  # not finished
            run = {} if name == TRUTH else read_json(path)
            with np.load(folder / "scores.npz") as arrays:
                read[name][int(folder.name.split("-")[1])] = Result(run, dict(arrays))
    return dict(read)


def gain(
    ours: Mapping[int, Result], theirs: Mapping[int, Result], sets: Sequence[str], measure: str
) -> tuple[float, float] | None:
    """Difference of log-densities, paired by function, and its error; None without a common seed or set."""
    pairs = [(ours[seed].scores, theirs[seed].scores) for seed in sorted(ours.keys() & theirs.keys())]
    keys = [f"{name}.{measure}" for name in sets]
    if not keys or not pairs or any(key not in scores for key in keys for pair in pairs for scores in pair):
        return None
    return mean_difference(np.stack([np.concatenate([_less(a[key], b[key]) for key in keys]) for a, b in pairs]))


def table(
    *,
    out: Path = Path("runs/in-context"),
    results_folder: Path = Path("docs/results"),
    picture: Path = Path("docs/images/in-context.png"),
) -> None:
    """Write in-context.csv, in-context-curves.csv and the picture of the curves, and print the tables.

    Args:
        out: folder of the runs.
        results_folder: folder of both files.
        picture: file of the learning curves.
    """
    found = {folder.name: results(out, folder.name) for folder in sorted(out.glob("*")) if folder.is_dir()}
    for family, runs in found.items():
        print(f"\n{family}: log-density, nats a target\n\n{_levels(runs)}")
        print(f"\n{family}: what buys what, nats a target\n\n{_steps(runs)}")
    levels = [row for family, runs in found.items() for row in _level_rows(family, runs)]
    curves = [row for family, runs in found.items() for row in _curve_rows(family, runs)]
    if not levels or not curves:
        raise ValueError("out: expected a folder of finished runs (`train` writes one), got none")
    points = pd.DataFrame(curves)
    write_text(results_folder / "in-context.csv", pd.DataFrame(levels).to_csv(index=False))
    write_text(results_folder / "in-context-curves.csv", points.to_csv(index=False))
    draw_curves(points, picture)


def _less(ours: Array, theirs: Array) -> Array:
    """Differences over the functions that both have."""
    count = min(len(ours), len(theirs))
    return np.asarray(ours[:count] - theirs[:count])


def _sets(runs: Runs) -> list[str]:
    """Test sets in their order."""
    keys = (key for by_seed in runs.values() for result in by_seed.values() for key in result.scores)
    names = dict.fromkeys(key.split(".")[0] for key in keys)
    return sorted(names, key=lambda name: KINDS.index(name) if name in KINDS else len(KINDS))


def _trained(sets: Sequence[str]) -> list[str]:
    """The sets of the kinds that were trained on."""
    return [name for name in sets if name in (*KINDS, "windows")]


def _level(by_seed: Mapping[int, Result], key: str) -> float | None:
    values = [result.scores[key].mean() for result in by_seed.values() if key in result.scores]
    return float(np.mean(values)) if values else None


def _levels(runs: Runs) -> str:
    sets = _sets(runs)
    keys = [*(f"{name}.marginal" for name in sets), *(f"{name}.joint" for name in _trained(sets))]
    header = ["model", "seeds", "CPU s", "late gain", *sets, *(f"{name}, joint" for name in _trained(sets))]
    rows = [
        [LABELS[name], *_training(name, by_seed), *(_number(_level(by_seed, key)) for key in keys)]
        for name, by_seed in runs.items()
    ]
    return markdown_table(header, rows)


def _training(name: str, by_seed: Mapping[int, Result]) -> list[str]:
    """Seeds, mean processor seconds, and by how much the second half of the training still improved."""
    if name == TRUTH:
        return ["", "", ""]
    seconds = np.mean([_seconds(result.run) for result in by_seed.values()])
    late, flat = np.mean([result.late_gain for result in by_seed.values()]), all(r.is_flat for r in by_seed.values())
    cell = "" if np.isnan(late) else f"{late:+.3f}{' flat' if flat else ''}"
    return [str(len(by_seed)), f"{seconds:.0f}", cell.replace("-", "−")]


def _seconds(run: Mapping[str, Any]) -> float:
    """Processor seconds of the training."""
    return float(run["seconds"] if "seconds" in run else run["curve"][-1]["seconds"])


def _steps(runs: Runs) -> str:
    sets = _sets(runs)
    trained = _trained(sets)
    asked = ((trained, "marginal"), (trained, "joint"), ([name for name in sets if name not in trained], "marginal"))
    rows = [
        [label, *(_difference(gain(runs[ours], runs[theirs], *what)) for what in asked)]
        for label, ours, theirs in _STEPS
        if ours in runs and theirs in runs
    ]
    return markdown_table(["step", "one by one", "together", "shifted"], rows)


def _level_rows(family: str, runs: Runs) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (name, by_seed), test, measure in product(runs.items(), _sets(runs), ("marginal", "joint", "inside")):
        level = _level(by_seed, key := f"{test}.{measure}")
        if level is None:
            continue
        place = {"family": family, "model": name, "set": test, "measure": measure, "seeds": len(by_seed)}
        is_compared = name not in (_REFERENCE, TRUTH) and _REFERENCE in runs
        pair = gain(by_seed, runs[_REFERENCE], [test], measure) if is_compared else None
        less, error = ("", "") if pair is None else (f"{value:.4f}" for value in pair)
        numbers = {"functions": len(next(iter(by_seed.values())).scores[key]), "mean": f"{level:.4f}"}
        rows.append({**place, **numbers, f"minus {_REFERENCE}": less, "error": error})
    return rows


def _curve_rows(family: str, runs: Runs) -> list[dict[str, Any]]:
    return [
        {"family": family, "model": name, "seed": seed, **point}
        for name, by_seed in runs.items()
        for seed, result in by_seed.items()
        for point in result.run.get("curve", [])
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "−")


def _difference(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:+.3f} ± {pair[1]:.3f}".replace("-", "−")
