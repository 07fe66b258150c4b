"""Metrics of runs, from their saved predictions alone."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.metrics import (
    DETECTOR_NAMES,
    classification_report,
    detect,
    detection_auroc,
    has_templates,
    mean_probabilities,
    uncertainty,
)
from experiments.prediction import Predictions, load_predictions
from experiments.runner.folder import RunFolder

__all__ = ["COLUMNS", "DETECTION_COLUMNS", "detection_rows", "predicted_sets", "run_folders", "score_rows"]

COLUMNS = {
    "accuracy": ("Acc %", 100, 1),
    "mcc": ("MCC %", 100, 1),
    "nll": ("NLL", 1, 3),
    "ece": ("ECE %", 100, 1),
    "mce": ("MCE %", 100, 1),
    "brier": ("Brier", 1, 3),
    "aurc": ("AURC ‰", 1000, 1),
    "auroc": ("AUROC of errors %", 100, 1),
    "confidence": ("confidence %", 100, 1),
    "unfamiliar_auroc": ("AUROC against test %", 100, 1),
}
"""Title, factor and digits of each column."""

DETECTION_COLUMNS = {
    "auroc": ("AUROC %", 100, 1),
    "aupr_in": ("AUPR-IN %", 100, 1),
    "aupr_out": ("AUPR-OUT %", 100, 1),
    "fpr95": ("FPR95 %", 100, 1),
}
"""The same of the detectors of unfamiliar inputs."""

_FIRST = ("test", "validation")


def run_folders(paths: Sequence[Path]) -> list[RunFolder]:
    """Find the complete runs in folders.

    Args:
        paths: folders of runs, or folders that hold some, such as `runs/cola`.

    Raises:
        ValueError: if a folder holds none.
    """
    found: list[RunFolder] = []
    for path in paths:
        here = [RunFolder(file.parent) for file in sorted(Path(path).rglob("run.json"))]
        runs = [folder for folder in here if folder.config.exists() and folder.predictions.is_dir()]
        if not runs:
            raise ValueError(f"runs: expected folders with complete runs, got {path}")
        found += runs
    return found


def predicted_sets(folder: RunFolder) -> list[str]:
    """Name the input sets that were predicted, test and validation first."""
    names = {path.stem for path in folder.predictions.glob("*.npz")}
    return [name for name in _FIRST if name in names] + sorted(names - set(_FIRST))


def score_rows(folder: RunFolder, protocol: str) -> list[dict[str, Any]]:
    """Score every input set of a run.

    Args:
        folder: of the run.
        protocol: of the classification metrics.

    Returns:
        One row a set; unlabelled ones have their confidence and the AUROC that tells them from the test set.
    """
    sets = {name: load_predictions(folder.predictions / f"{name}.npz") for name in predicted_sets(folder)}
    return [
        {"set": name, "n": len(found.ids), **_scores(found, sets.get("test"), protocol)} for name, found in sets.items()
    ]


def detection_rows(folder: RunFolder, protocol: str) -> list[dict[str, Any]]:
    """Measure how well every detector tells unlabelled input sets from the test set.

    Args:
        folder: of the run.
        protocol: of the scores.

    Returns:
        One row a set and a detector; a detector that has no score for some input has no numbers.
    """
    sets = {name: load_predictions(folder.predictions / f"{name}.npz") for name in predicted_sets(folder)}
    if not {"test", "validation"} <= set(sets):
        return []
    return [
        {"set": name, "detector": detector, **_detected(detector, sets["test"], found, sets["validation"], protocol)}
        for name, found in sets.items()
        for detector in DETECTOR_NAMES
        if found.labels is None
    ]


def _detected(
    detector: str, test: Predictions, found: Predictions, validation: Predictions, protocol: str
) -> dict[str, float]:
    labels = validation.labels
    if not has_templates(detector, test.logits, found.logits, validation_labels=labels, protocol=protocol):
        return dict.fromkeys(DETECTION_COLUMNS, math.nan)
    typical = (validation.logits, labels)
    return detect(detector, test.logits, found.logits, validation=typical, protocol=protocol)._asdict()


def _scores(found: Predictions, test: Predictions | None, protocol: str) -> dict[str, float]:
    confidence = {"confidence": float(mean_probabilities(found.logits).max(-1).mean())}
    if found.labels is not None:
        return classification_report(found.logits, found.labels, protocol=protocol)._asdict() | confidence
    if test is None:
        return confidence
    familiar, strange = uncertainty(test.logits).total, uncertainty(found.logits).total
    return confidence | {"unfamiliar_auroc": detection_auroc(familiar, strange)}
