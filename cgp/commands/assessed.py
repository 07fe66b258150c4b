"""What ``cgp assess`` writes of guarantees, and answers to inputs without labels."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cgp.atomic_files import write_aside
from cgp.spelling import counted

__all__ = ["AS_SAVED", "Answering", "InSets", "how_many", "said_by", "write_answers"]

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

    def answered(self, found: Any) -> Any:
        """Whether each input of a prediction is answered, ``(N,)``."""
        return found.confidence.double() > self.threshold

    def entry(self) -> dict[str, Any]:
        """What a report in numbers has of it."""
        return {"of": self.of} | self._asdict()


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

    def entry(self) -> dict[str, Any]:
        """What a report in numbers has of it."""
        return {"of": self.of} | self._asdict()


def said_by(method: str) -> str:
    """By what row of a report something is, in a sentence."""
    return method if method == "as trained" else f"by the {method}"


def how_many(path: Path, found: Any, answering: Answering | None) -> str:
    """How many inputs a table of answers has, how many of them are answered, and how many flagged."""
    inputs = counted(len(found), "input")
    if answering is not None:
        inputs = f"{int(answering.answered(found).sum())} of {inputs}"
    flags = [each.tolist() for each in found.flags.values()]
    flagged = f", and flags {sum(map(any, zip(*flags, strict=True)))}" if flags else ""
    return f"{path.name} answers {inputs}{flagged}."


def write_answers(
    path: Path,
    found: Any,
    method: str,
    answering: Answering | None,
    sets: Any,
    names: Sequence[str] = (),
    beside: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Write a row per input: class and confidence, by which method, whether flagged, whether withheld, set of classes.

    Args:
        path: csv.
        found: the prediction, with the scores of the detectors and their limits.
        method: the row of the report that it is by.
        answering: which answers keep to a risk, if that was asked.
        sets: whether each class is in the set of each input, ``(N, C)``, if that was asked.
        names: of the classes, if they have some.
        beside: what the file of inputs has besides, by column, such as their names.
    """
    classes = _named(found.classes.tolist(), names)
    columns: dict[str, list[Any]] = {"class": classes}
    columns |= {"confidence": found.confidence.double().tolist(), "method": [method] * len(classes)}
    columns |= {name: flags.int().tolist() for name, flags in found.flags.items()}
    if answering is not None:
        columns["withheld"] = (~answering.answered(found)).int().tolist()
    if sets is not None:
        between = "; " if any(" " in name for name in names) else " "
        columns["set"] = [between.join(map(str, _named(row.nonzero()[:, 0].tolist(), names))) for row in sets]
    given = {name + " (given)" * (name in {"input", *columns}): [*texts] for name, texts in beside.items()}
    columns = {"input": [*range(len(classes))]} | given | columns

    def write(aside: Path) -> None:
        with aside.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])

    write_aside(path, write)


def _named(numbers: Sequence[int], names: Sequence[str]) -> list[Any]:
    """Numbers of classes, or their names where they have some."""
    return [names[number] for number in numbers] if names else [*numbers]
