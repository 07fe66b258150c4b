"""Every number of the report, recomputed from the saved predictions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks.metrics import auroc, delong_error, placements
from experiments.evaluation import (
    DETECTORS,
    classification_report,
    label_log_probabilities,
    mean_probabilities,
    negative_log_likelihood,
    uncertainty,
)
from experiments.evaluation.detection import detector_scores, separations
from experiments.grids import Cell
from experiments.runs import Run
from experiments.saved_predictions import Predictions

__all__ = [
    "BASELINE",
    "COLUMNS",
    "Column",
    "Result",
    "Statistic",
    "cells",
    "crossed_losses",
    "methods",
    "score",
    "statistic",
]

Numbers = dict[str, float]

BASELINE = "softmax"
"""The method that the others are compared with."""


class Column(NamedTuple):
    """A column of the table: its key, title, better direction, factor, digits and meaning."""

    key: str
    title: str
    better: str | None  # "high" or "low"; None if neither is better
    scale: float
    digits: int
    meaning: str

    @property
    def heading(self) -> str:
        """Title with the direction in which the column is better."""
        return self.title + {"high": " ↑", "low": " ↓", None: ""}[self.better]


COLUMNS = (
    Column("accuracy", "Acc %", "high", 100, 1, "accuracy on the test inputs"),
    Column("mcc", "MCC %", "high", 100, 1, "Matthews correlation, of two classes"),
    Column("nll", "NLL", "low", 1, 3, "negative log-likelihood of the test labels, in nats"),
    Column("ece", "ECE %", "low", 100, 1, "expected calibration error"),
    Column("nll_cooled", "NLL at T", "low", 1, 3, "NLL after a temperature that was fitted on validation inputs"),
    Column("ece_cooled", "ECE at T %", "low", 100, 1, "ECE after that temperature"),
    Column(
        "ood_total", "OOD AUROC %", "high", 100, 1, "total uncertainty tells OOD from test inputs, mean over OOD sets"
    ),
    Column(
        "ood_epistemic",
        "OOD by draws %",
        "high",
        100,
        1,
        "AUROC of OOD by how much the draws of a method disagree (epistemic uncertainty); a single draw has none",
    ),
    Column("corrupted_nll", "corrupted NLL", "low", 1, 3, "NLL on corrupted inputs, mean over kinds and severities"),
    Column("corrupted_ece", "corrupted ECE %", "low", 100, 1, "ECE on corrupted inputs, the same mean"),
    Column("aurc", "AURC ‰", "low", 1000, 1, "area under the risk-coverage curve"),
    Column("brier", "Brier", "low", 1, 3, "Brier score, summed over classes"),
    Column("temperature", "T", None, 1, 2, "that temperature; above 1 where the model is over-confident"),
    Column("seconds_per_epoch", "s/epoch", None, 1, 2, "seconds of training for an epoch"),
)


class Result(NamedTuple):
    """Results of one run: columns (NaN if predictions are missing), input sets and detectors."""

    run: Run
    numbers: Numbers
    sets: list[dict[str, Any]]  # a row per input set
    detection: list[dict[str, Any]]  # a row per OOD set and detector

    @property
    def label(self) -> str:
        """The name of its method in tables."""
        return self.run.label


class Statistic(NamedTuple):
    """Mean over seeds, and their standard deviation (NaN for one seed)."""

    mean: float
    sd: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Statistic":
        """Mean and standard deviation of numbers; NaN if there are none."""
        if not values:
            return cls(math.nan, math.nan)
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan)

    def text(self, scale: float = 1.0, digits: int = 3) -> str:
        """Mean ± standard deviation."""
        if math.isnan(self.mean):
            return "–"
        mean = f"{self.mean * scale:.{digits}f}".replace("-", "−")
        return mean if math.isnan(self.sd) else f"{mean} ± {self.sd * scale:.{digits}f}"


def methods(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group results by the name of their row, `<setting>/<method>`; the baseline of a setting comes first."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.run.name, []).append(result)
    return dict(sorted(groups.items(), key=lambda item: (item[1][0].run.setting, item[1][0].run.method != BASELINE)))


def statistic(results: Sequence[Result], key: str) -> Statistic:
    """Return mean and standard deviation of a column over the runs that have a number."""
    return Statistic.of([result.numbers[key] for result in results if not math.isnan(result.numbers[key])])


def cells(numbers: Mapping[str, Statistic], better: str | None, scale: float, digits: int) -> dict[str, Cell]:
    """Texts of a column; the best to the shown digits are marked, if there are several and one direction is better."""
    sign = {"high": 1, "low": -1, None: math.nan}[better]
    rounded = {
        name: round(sign * number.mean * scale, digits)
        for name, number in numbers.items()
        if not math.isnan(number.mean)
    }
    top = max(rounded.values()) if len(rounded) > 1 else math.nan
    return {name: Cell(number.text(scale, digits), rounded.get(name) == top) for name, number in numbers.items()}


def score(run: Run, protocol: str) -> Result:
    """Score every input set of a complete run by a protocol."""
    # A missing test set must be an error that names its file.
    sets = {name: run.predictions(name) for name in dict.fromkeys(["test", *run.predicted])}
    rows = [
        {"set": name, "n": len(predictions.ids)} | _scores(predictions, protocol) for name, predictions in sets.items()
    ]
    for row, predictions in zip(rows, sets.values(), strict=True):
        row |= _against_test(predictions, sets["test"]) if predictions.labels is None else {}
    numbers = dict.fromkeys([*(column.key for column in COLUMNS), "ood_lead_error"], math.nan)
    numbers |= _cooled(sets, protocol) | _means(rows)
    if run.record.get("seconds_per_epoch") is not None:
        numbers["seconds_per_epoch"] = float(run.record["seconds_per_epoch"])
    return Result(run, numbers, rows, _detection(sets, protocol))


def _scores(predictions: Predictions, protocol: str) -> Numbers:
    confidence = {"confidence": float(mean_probabilities(predictions.logits).max(-1).mean())}
    if predictions.labels is None:
        return confidence
    report = classification_report(predictions.logits, predictions.labels, protocol=protocol)._asdict() | confidence
    return report if predictions.logits.shape[-1] == 2 else report | {"mcc": math.nan}


def _against_test(foreign: Predictions, test: Predictions) -> Numbers:
    """Detection of inputs without labels among the test inputs by uncertainty."""
    ours, strange = uncertainty(test.logits), uncertainty(foreign.logits)
    if len(test.logits) < 2:
        return {"ood_total": auroc(ours.total, strange.total)}
    total, epistemic = placements(ours.total, strange.total), placements(ours.epistemic, strange.epistemic)
    return {
        "ood_total": float(total[0].mean()),
        "ood_epistemic": float(epistemic[0].mean()),
        # Error of the lead of the epistemic part; averaged over several sets, as they share the test inputs.
        "ood_lead_error": delong_error(epistemic[0] - total[0], epistemic[1] - total[1]),
    }


def _cooled(sets: Mapping[str, Predictions], protocol: str) -> Numbers:
    """Numbers on the test inputs, with and without the temperature fitted to the validation inputs."""
    test, validation = sets["test"], sets.get("validation")
    numbers = _scores(test, protocol)
    if validation is None or validation.labels is None:
        return numbers
    temperature = _temperature(validation.logits, validation.labels)
    cooled = classification_report(test.logits / temperature, test.labels, protocol=protocol)
    return numbers | {
        "temperature": temperature,
        "nll_cooled": cooled.nll,
        "ece_cooled": cooled.ece,
        "validation_nll": negative_log_likelihood(validation.logits, validation.labels),
        "validation_nll_cooled": float(crossed_losses(validation).mean()),
    }


def _temperature(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Fit the temperature; 1 where every input is right, since the likelihood then has no optimum."""
    right = mean_probabilities(logits).argmax(-1) == labels
    return 1.0 if right.all() else fit_temperature(logits, labels)


def crossed_losses(validation: Predictions) -> NDArray[np.float64]:
    """Validation losses by cross-fitting, each half with the temperature of the other: comparable to those without."""
    assert validation.labels is not None
    halves = [(validation.logits[:, half::2], validation.labels[half::2]) for half in (0, 1)]
    losses = np.empty(len(validation.labels))
    for half, ((logits, labels), other) in enumerate(zip(halves, halves[::-1], strict=True)):
        losses[half::2] = -label_log_probabilities(logits / _temperature(*other), labels)
    return losses


def _means(rows: Sequence[Mapping[str, Any]]) -> Numbers:
    """Means over corrupted and over OOD sets."""
    corrupted = [row for row in rows if row["set"].startswith("corrupted-") and "nll" in row]
    ood = [row for row in rows if row["set"].startswith("ood-")]
    return {
        f"corrupted_{key}": float(np.mean([row[key] for row in corrupted])) for key in ("nll", "ece") if corrupted
    } | {
        key: float(np.mean([row[key] for row in ood]))
        for key in ("ood_total", "ood_epistemic", "ood_lead_error")
        if ood and all(key in row for row in ood)
    }


def _detection(sets: Mapping[str, Predictions], protocol: str) -> list[dict[str, Any]]:
    """Rows of detectors, without those that score every input alike, such as by the disagreement of a single draw."""
    if "validation" not in sets:
        return []
    test, validation = sets["test"].logits, (sets["validation"].logits, sets["validation"].labels)
    ood = {name: predictions.logits for name, predictions in sets.items() if predictions.labels is None}
    scores = {
        detector: [
            detector_scores(detector, part, validation=validation, protocol=protocol) for part in (test, *ood.values())
        ]
        for detector in DETECTORS
    }
    told = {detector: parts for detector, parts in scores.items() if np.ptp(np.concatenate(parts)) != 0}
    reports = {detector: separations(parts, protocol) for detector, parts in told.items()}
    return [
        {"set": name, "detector": detector} | of_sets[place]._asdict()
        for place, name in enumerate(ood)
        for detector, of_sets in reports.items()
    ]
