"""Does the variance of a layer know an OOD input? By layer."""

from __future__ import annotations

from pathlib import Path

import torch

import cgp
from experiments.data import corrupted_digits
from experiments.data.images import read_arrays
from experiments.evaluation import detection_auroc
from experiments.reports.demo_tables import write_csv
from experiments.storage import write_text
from experiments.studies.conversion.parts import cifar10_parts
from experiments.studies.conversion.training import trained

__all__ = ["variance"]

_SHIFTS = ("noise", "blur", "contrast", "occlusion", "rotation")
_SETS = ("cifar100", "textures")


def variance(*, data: Path, out: Path = Path("runs/conversion"), images: int = 500, strength: int = 4) -> None:
    """AUROC of the mean token variance, corrupted or OOD images against held-out ones, before any calibration.

    Args:
        data: folder with cifar10, cifar100 and textures.
        out: the folder that `train` wrote.
        images: of each set.
        strength: of the disturbance, 1 to 5.
    """
    model = trained(out)
    clean = cifar10_parts(data).selection.images[:images]
    sets = {"": clean}
    sets |= {kind: corrupted_digits(clean, kind, strength, seed=0) for kind in _SHIFTS}
    sets |= {name: read_arrays(data / name / "test.npz").images[:images] / 255 for name in _SETS}
    with torch.no_grad():
        entropies = {name: cgp.predict(model, x, 1, batch_size=250).total[None] for name, x in sets.items()}
    rows = [{"layer": "entropy of the prediction", "spread": ""} | _row(entropies, 0)]
    converted = cgp.convert(model, "cgp", "all")
    scores = {name: _variances(converted, x) for name, x in sets.items()}
    for layer in range(len(scores[""])):
        tokens = scores[""][layer]
        spread = float(tokens.quantile(0.99) / tokens.median())
        rows.append({"layer": layer + 1, "spread": spread} | _row(scores, layer))
    write_csv(out / "variance.csv", rows)
    names = [name for name in sets if name]
    lines = [f"| layer | q99 / median | {' | '.join(names)} |", "| --- |" + " ---: |" * (len(names) + 1)]
    for row in rows:
        spread = f"{row['spread']:.3g}" if row["spread"] != "" else ""
        cells = " | ".join(f"{row[name]:.2f}" for name in names)
        lines.append(f"| {row['layer']} | {spread} | {cells} |")
    write_text(out / "variance.md", "\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)


def _variances(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:  # shape: (layers, N)
    """Mean variance over tokens and heads."""
    found = cgp.predict(model, images, 1, seed=0, batch_size=250).token_variance
    return torch.stack([variance.mean((1, 2)) for variance in found.values()])


def _row(scores: dict[str, torch.Tensor], layer: int) -> dict[str, float]:
    clean = scores[""][layer]
    return {name: detection_auroc(clean, found[layer]) for name, found in scores.items() if name}
