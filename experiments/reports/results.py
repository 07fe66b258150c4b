"""Every number of the report, recomputed from the saved predictions."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.configuration import EvaluationConfig
from experiments.data import DIGITS_CORRUPTIONS, OOD_KINDS
from experiments.evaluation import classification_report, detection_auroc, mean_probabilities, uncertainty
from experiments.runs.demo_runs import Run
from experiments.runs.prediction import Predictions, corrupted_name, load_predictions, ood_name

__all__ = ["COLUMNS", "Column", "Results", "Statistic", "collect", "statistics"]

Row = dict[str, Any]


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        key: name in the CSV files.
        title: name in the table.
        better: "high", "low", or nothing where it is no contest.
        scale: factor in the table.
        digits: digits behind the point in the table.
        meaning: one line of explanation.
    """

    key: str
    title: str
    better: str | None
    scale: float
    digits: int
    meaning: str


COLUMNS = (
    Column("accuracy", "Acc %", "high", 100, 1, "accuracy on the test images, in percent"),
    Column("nll", "NLL", "low", 1, 3, "negative log-likelihood of the test labels, in nats"),
    Column("ece", "ECE %", "low", 100, 1, "expected calibration error, 15 bins, in percent"),
    Column("mce", "MCE %", "low", 100, 1, "maximum calibration error, 15 bins, in percent"),
    Column("brier", "Brier", "low", 1, 3, "Brier score"),
    Column("aurc", "AURC ‰", "low", 1000, 1, "area under the risk-coverage curve, in thousandths"),
    Column("shift_nll", "corrupted NLL", "low", 1, 3, "NLL on corrupted inputs, mean over kinds and strengths"),
    Column("shift_ece", "corrupted ECE %", "low", 100, 1, "ECE on corrupted inputs, mean over kinds and strengths"),
    Column("ood_total", "AUROC total %", "high", 100, 1, "AUROC of total uncertainty, ood against test, in percent"),
    Column("ood_epistemic", "AUROC epist. %", "high", 100, 1, "AUROC of epistemic uncertainty; a single draw has none"),
    Column("seconds_per_epoch", "s/epoch", None, 1, 2, "seconds of training an epoch, median"),
)


class Results(NamedTuple):
    """All numbers, one dict a row.

    Attributes:
        runs: one row a method and seed, with the columns of the table.
        shifts: one row a method, seed, kind and strength.
        ood: one row a method, seed and kind.
    """

    runs: list[Row]
    shifts: list[Row]
    ood: list[Row]


class Statistic(NamedTuple):
    """Mean over the seeds, and their standard deviation (NaN for one seed)."""

    mean: float
    sd: float


def collect(runs: list[Run], root: Path) -> Results:
    """Compute every number from what the runs saved.

    Args:
        runs: complete runs.
        root: the application's output folder.
    """
    results = Results([], [], [])
    for run in runs:
        folder = run.folder(root)
        key = {"method": run.name, "seed": run.seed}
        test = load_predictions(folder / "predictions" / "test.npz")
        shifts = [key | row for row in _shift_rows(folder, run.evaluation, test)]
        ood = [key | row for row in _ood_rows(folder, test)]
        results.runs.append(key | _run_row(run.summary(root), test, shifts, ood))
        results.shifts.extend(shifts)
        results.ood.extend(ood)
    return results


def statistics(rows: list[Row], method: str) -> dict[str, Statistic]:
    """Return mean and standard deviation over the seeds of one method, for every column of the table.

    Args:
        rows: the rows of `Results.runs`.
        method: name of the method.
    """
    chosen = [row for row in rows if row["method"] == method]
    columns = {column.key: np.array([row[column.key] for row in chosen]) for column in COLUMNS}
    return {
        key: Statistic(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan"))
        for key, values in columns.items()
    }


def _run_row(summary: Row, test: Predictions, shifts: list[Row], ood: list[Row]) -> Row:
    """Return the columns of the table for one run."""
    report = classification_report(test.logits, test.labels)
    return {
        **{name: getattr(report, name) for name in ("accuracy", "nll", "ece", "mce", "brier", "aurc")},
        "shift_nll": float(np.mean([row["nll"] for row in shifts if row["strength"] > 0])),
        "shift_ece": float(np.mean([row["ece"] for row in shifts if row["strength"] > 0])),
        "ood_total": float(np.mean([row["auroc_total"] for row in ood])),
        "ood_epistemic": float(np.mean([row["auroc_epistemic"] for row in ood])),
        "seconds_per_epoch": summary["seconds_per_epoch"],
        "validation_nll": summary["validation_nll"],
        "best_epoch": summary["best_epoch"],
        "parameters": summary["parameters"],
    }


def _shift_rows(folder: Path, evaluation: EvaluationConfig, test: Predictions) -> list[Row]:
    """Score the corrupted inputs; strength 0 is the test set itself."""
    rows = []
    for kind in DIGITS_CORRUPTIONS:
        for strength in (0, *evaluation.strengths):
            name = corrupted_name(kind, strength)
            predictions = test if strength == 0 else load_predictions(folder / "predictions" / f"{name}.npz")
            report = classification_report(predictions.logits, predictions.labels)
            confidence = float(mean_probabilities(predictions.logits).max(-1).mean())
            scores = {"accuracy": report.accuracy, "confidence": confidence, "nll": report.nll, "ece": report.ece}
            rows.append({"kind": kind, "strength": strength, **scores})
    return rows


def _ood_rows(folder: Path, test: Predictions) -> list[Row]:
    """Score how well uncertainty tells OOD inputs from the test images."""
    rows = []
    familiar = uncertainty(test.logits)
    for kind in OOD_KINDS:
        strange = uncertainty(load_predictions(folder / "predictions" / f"{ood_name(kind)}.npz").logits)
        draws = len(test.logits)
        rows.append(
            {
                "kind": kind,
                "auroc_total": detection_auroc(familiar.total, strange.total),
                "auroc_epistemic": detection_auroc(familiar.epistemic, strange.epistemic)
                if draws > 1
                else float("nan"),
            }
        )
    return rows
