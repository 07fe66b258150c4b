"""The tables and the learning curves of docs/results/in-context.md and in-context-larger.md."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.atomic_files import read_json, write_text
from experiments.evaluation.paired import mean_difference
from experiments.studies.in_context.curves import draw_curves
from experiments.studies.in_context.models import LABELS, TRUTH
from experiments.studies.in_context.tasks import KINDS

__all__ = ["FLAT", "Result", "gain", "results", "table"]

Array = NDArray[Any]

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
    seeds = sorted(ours.keys() & theirs.keys())
    keys = [f"{name}.{measure}" for name in sets]
    if (
        not keys
        or not seeds
        or any(key not in of[seed].scores for key in keys for of in (ours, theirs) for seed in seeds)
    ):
        return None
    rows = [
        np.concatenate([_shorter(ours[seed].scores[key], theirs[seed].scores[key]) for key in keys]) for seed in seeds
    ]
    return mean_difference(np.stack(rows))


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
    families = [folder.name for folder in sorted(out.glob("*")) if folder.is_dir()]
    found = {family: results(out, family) for family in families}
    levels, curves = [], []
    for family, of_models in found.items():
        _print_levels(family, of_models)
        _print_steps(family, of_models)
        levels += _level_rows(family, of_models)
        curves += _curve_rows(family, of_models)
    _write_csv(results_folder / "in-context.csv", levels)
    _write_csv(results_folder / "in-context-curves.csv", curves)
    draw_curves(curves, picture)


def _shorter(ours: Array, theirs: Array) -> Array:
    """Differences over the functions that both have."""
    count = min(len(ours), len(theirs))
    return np.asarray(ours[:count] - theirs[:count])


def _sets(of_models: Mapping[str, Mapping[int, Result]]) -> list[str]:
    """Test sets in their order."""
    names = dict.fromkeys(
        key.split(".")[0] for by_seed in of_models.values() for result in by_seed.values() for key in result.scores
    )
    return sorted(names, key=lambda name: KINDS.index(name) if name in KINDS else len(KINDS))


def _trained(sets: Sequence[str]) -> list[str]:
    """The sets of the kinds that were trained on."""
    return [name for name in sets if name in (*KINDS, "windows")]


def _level(by_seed: Mapping[int, Result], key: str) -> float | None:
    values = [result.scores[key].mean() for result in by_seed.values() if key in result.scores]
    return float(np.mean(values)) if values else None


def _print_levels(family: str, of_models: Mapping[str, Mapping[int, Result]]) -> None:
    sets = _sets(of_models)
    joint = _trained(sets)
    print(f"\n{family}: log-density, nats a target\n")
    print(f"| model | seeds | CPU s | late gain | {' | '.join(sets)} | {' | '.join(f'{s}, joint' for s in joint)} |")
    print("|---|" + "--:|" * (3 + len(sets) + len(joint)))
    for name, by_seed in of_models.items():
        cells = [_number(_level(by_seed, f"{s}.marginal")) for s in sets]
        cells += [_number(_level(by_seed, f"{s}.joint")) for s in joint]
        print(f"| {LABELS[name]} | {' | '.join([*_training(name, by_seed), *cells])} |")


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


def _print_steps(family: str, of_models: Mapping[str, Mapping[int, Result]]) -> None:
    sets = _sets(of_models)
    trained = _trained(sets)
    shifted = [name for name in sets if name not in trained]
    print(f"\n{family}: what buys what, nats a target\n\n| step | one by one | together | shifted |\n|---|--:|--:|--:|")
    for label, ours, theirs in _STEPS:
        if ours in of_models and theirs in of_models:
            asked = ((trained, "marginal"), (trained, "joint"), (shifted, "marginal"))
            cells = [_difference(gain(of_models[ours], of_models[theirs], *what)) for what in asked]
            print(f"| {label} | {' | '.join(cells)} |")


def _level_rows(family: str, of_models: Mapping[str, Mapping[int, Result]]) -> list[dict[str, Any]]:
    rows = []
    for name, by_seed in of_models.items():
        for test in _sets(of_models):
            for measure in ("marginal", "joint", "inside"):
                key = f"{test}.{measure}"
                level = _level(by_seed, key)
                if level is None:
                    continue
                functions = len(next(iter(by_seed.values())).scores[key])
                place = {"family": family, "model": name, "set": test, "measure": measure, "seeds": len(by_seed)}
                pair = None
                if name not in (_REFERENCE, TRUTH) and _REFERENCE in of_models:
                    pair = gain(by_seed, of_models[_REFERENCE], [test], measure)
                ends = ("", "") if pair is None else tuple(f"{value:.4f}" for value in pair)
                difference = {f"minus {_REFERENCE}": ends[0], "error": ends[1]}
                rows.append({**place, "functions": functions, "mean": f"{level:.4f}", **difference})
    return rows


def _curve_rows(family: str, of_models: Mapping[str, Mapping[int, Result]]) -> list[dict[str, Any]]:
    return [
        {"family": family, "model": name, "seed": seed, **point}
        for name, by_seed in of_models.items()
        for seed, result in by_seed.items()
        for point in result.run.get("curve", [])
    ]


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        raise ValueError("out: expected a folder of finished runs (`train` writes one), got none")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "−")


def _difference(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:+.3f} ± {pair[1]:.3f}".replace("-", "−")
