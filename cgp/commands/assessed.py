"""What ``cgp assess`` writes: its report in numbers, and answers to inputs without labels."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cgp.atomic_files import write_aside

__all__ = ["AS_SAVED", "Answering", "InSets", "said_by", "write_answers", "write_report"]

AS_SAVED = "as saved"
"""What the logits of a file are that holds them."""


class Answering(NamedTuple):
    """Which answers keep to a risk.

    Attributes:
        method: the row of the report whose confidence the threshold is of.
        risk: share of wrong answers.
        level: probability with which it is kept to.
        threshold: largest probability above which answers are given: 0 for all, 1 for none.
        share: of the labelled inputs that are answered.
    """

    method: str
    risk: float
    level: float
    threshold: float
    share: float

    @property
    def of(self) -> str:
        """What has to be above the threshold."""
        return f"the largest probability, {said_by(self.method)}"


class InSets(NamedTuple):
    """Which classes are in a set.

    Attributes:
        method: the row of the report whose probabilities the threshold is of.
        level: probability with which a set has the right class.
        threshold: smallest probability of a class in it; the likeliest is in it, too.
    """

    method: str
    level: float
    threshold: float

    @property
    def of(self) -> str:
        """What is in a set."""
        return f"classes whose probability, {said_by(self.method)}, is at least the threshold, and the likeliest"


def said_by(method: str) -> str:
    """By what row of a report something is, in a sentence."""
    return method if method == "as trained" else f"by the {method}"


def write_report(
    path: Path,
    report: Any,
    known: Any,
    sentence: str,
    limits: dict[str, float],
    answering: Answering | None,
    in_sets: InSets | None,
) -> None:
    """Write the tables of a report, its advice, and what thresholds are computed with, as JSON.

    Args:
        path: json.
        report: what :func:`cgp.assess` returned.
        known: the labelled predictions.
        sentence: its recommendation.
        limits: of the recommended detectors by name: the score above which an input is flagged.
        answering: which answers keep to a risk, if that was asked.
        in_sets: which classes are in a set, if that was asked.
    """
    content = {
        "labels": report.num_labels,
        "logits": known.of,
        "classes": [*known.classes] or None,
        "sentence": sentence,
        "method": report.method,
        "methods": {name: _method(report, name) for name in report.scores},
        "detection": {name: {s: _nested(of) for s, of in found.items()} for name, found in report.detection.items()},
        "flag": {name: _detector(report.fitted[name], limit) for name, limit in limits.items()},
        "answer": None if answering is None else {"of": answering.of} | _nested(answering),
        "sets": None if in_sets is None else {"of": in_sets.of} | _nested(in_sets),
    }
    text = json.dumps(_plain(content), indent=1, allow_nan=False, ensure_ascii=False)
    write_aside(path, lambda aside: aside.write_text(f"{text}\n", encoding="utf-8"))


def write_answers(
    path: Path,
    found: Any,
    method: str,
    answering: Answering | None,
    sets: Any,
    names: Sequence[str] = (),
) -> None:
    """Write a row per input: class and confidence, by which method, whether flagged, whether withheld, set of classes.

    Args:
        path: csv.
        found: the prediction, with the scores of the detectors and their limits.
        method: the row of the report that it is by.
        answering: which answers keep to a risk, if that was asked.
        sets: whether each class is in the set of each input, ``(N, C)``, if that was asked.
        names: of the classes, if they have some.
    """
    classes = _named(found.classes.tolist(), names)
    columns: dict[str, list[Any]] = {"input": [*range(len(classes))], "class": classes}
    columns |= {"confidence": found.confidence.double().tolist(), "method": [method] * len(classes)}
    columns |= {name: flags.int().tolist() for name, flags in found.flags.items()}
    if answering is not None:
        columns["withheld"] = (~(found.confidence.double() > answering.threshold)).int().tolist()
    if sets is not None:
        between = "; " if any(" " in name for name in names) else " "
        columns["set"] = [between.join(map(str, _named(row.nonzero()[:, 0].tolist(), names))) for row in sets]

    def write(aside: Path) -> None:
        with aside.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])

    write_aside(path, write)


def _named(numbers: Sequence[int], names: Sequence[str]) -> list[Any]:
    """Numbers of classes, or their names where they have some."""
    return [names[number] for number in numbers] if names else [*numbers]


def _method(report: Any, name: str) -> dict[str, Any]:
    """Scores of a method, changes against the network as trained with their errors, and its temperature."""
    changes = {key: change._asdict() for key, change in report.differences[name].items()}
    return report.scores[name] | {"temperature": report.choices[name].parameter, "change": changes}


def _detector(detector: Any, limit: float) -> dict[str, Any]:
    """The threshold of a sum of standardised scores, and the constants of each score."""
    from cgp.networks.detect.detector import RATE, units_of

    parts = []
    for score in detector.terms:
        config, tensors = score.saved()
        known = detector.parts.get(score.name)
        units = (0.0, 1.0) if known is None else units_of(known)
        constants = config["options"] | {name: tensor.tolist() for name, tensor in tensors.items()}
        said = {"score": score.name, "formula": score.formula}
        parts.append(said | {"mean": units[0], "deviation": units[1], "constants": constants})
    return {"threshold": limit, "share of the labelled": RATE, "sum of (score - mean) / deviation": parts}


def _nested(pairs: Any) -> Any:
    """A named tuple, and those in it, as dicts."""
    return {k: _nested(v) for k, v in pairs._asdict().items()} if hasattr(pairs, "_asdict") else pairs


def _plain(value: Any) -> Any:
    """Numbers that JSON knows: none that is not finite."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
