"""Metrics of runs, from their saved predictions alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.evaluation import (
    DETECTORS,
    classification_report,
    detect,
    detection_auroc,
    mean_probabilities,
    uncertainty,
)
from experiments.runs.prediction import Predictions, load_predictions
from experiments.runs.folder import RunFolder

__all__ = [
    "COLUMNS",
    "DETECTION_COLUMNS",
    "detection_rows",
    "predicted_sets",
    "read_sets",
    "run_folders",
    "score_rows",
]

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
    "ood_auroc": ("AUROC against test %", 100, 1),
}
"""Title, factor and digits of each column."""

DETECTION_COLUMNS = {
    "auroc": ("AUROC %", 100, 1),
    "aupr_in": ("AUPR-IN %", 100, 1),
    "aupr_out": ("AUPR-OUT %", 100, 1),
    "fpr95": ("FPR95 %", 100, 1),
}
"""The same of the detectors of OOD inputs."""

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


def read_sets(folder: RunFolder) -> dict[str, Predictions]:
    """Read the predictions on every input set of a run, test and validation first.

    Args:
        folder: of the run.
    """
    return {name: load_predictions(folder.predictions / f"{name}.npz") for name in predicted_sets(folder)}


def score_rows(sets: Mapping[str, Predictions], protocol: str) -> list[dict[str, Any]]:
    """Score every input set of a run.

    Args:
        sets: predictions by input set.
        protocol: of the classification metrics.

    Returns:
        One row a set; unlabelled ones have their confidence and the AUROC that tells them from the test set.
    """
    return [
        {"set": name, "n": len(found.ids), **_scores(found, sets.get("test"), protocol)} for name, found in sets.items()
    ]


def detection_rows(sets: Mapping[str, Predictions], protocol: str) -> list[dict[str, Any]]:
    """Measure how well every detector tells unlabelled input sets from the test set.

    Args:
        sets: predictions by input set.
        protocol: of the scores.

    Returns:
        One row a set and a detector; a detector that has no score for some input has no numbers.
    """
    if not {"test", "validation"} <= set(sets):
        return []
    test, validation = sets["test"].logits, (sets["validation"].logits, sets["validation"].labels)
    options: dict[str, Any] = {"validation": validation, "protocol": protocol}
    return [
        {
            "set": name,
            "detector": detector,
            **detect(detector, test, found.logits, **options)._asdict(),
        }
        for name, found in sets.items()
        for detector in DETECTORS
        if found.labels is None
    ]


def _scores(found: Predictions, test: Predictions | None, protocol: str) -> dict[str, float]:
    confidence = {"confidence": float(mean_probabilities(found.logits).max(-1).mean())}
    if found.labels is not None:
        return classification_report(found.logits, found.labels, protocol=protocol)._asdict() | confidence
    if test is None:
        return confidence
    familiar, strange = uncertainty(test.logits).total, uncertainty(found.logits).total
    return confidence | {"ood_auroc": detection_auroc(familiar, strange)}
