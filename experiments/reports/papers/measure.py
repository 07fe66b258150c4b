"""Metrics of one run for one question, recomputed from its predictions; and what departs from the paper."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.evaluation import classification_report, detect
from experiments.reports.papers.cache import Cache, Numbers
from experiments.reports.papers.runs import Run, read_predictions
from experiments.reports.papers.specification import Question

__all__ = ["Measured", "Meter"]


class Measured(NamedTuple):
    """What was measured of a run.

    Attributes:
        numbers: metrics in natural units by name; empty if nothing could be measured.
        missing: names of the input sets without predictions.
        partial: in words, what the numbers leave out.
    """

    numbers: Numbers
    missing: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()


class Meter(NamedTuple):
    """Measures runs by a protocol.

    Attributes:
        protocol: one of `experiments.evaluation.PROTOCOLS`.
        cache: remembers what was computed.
    """

    protocol: str
    cache: Cache

    def measure(self, run: Run, question: Question) -> Measured:
        """Answer a question about a run.

        Args:
            run: a complete run.
            question: what is asked.
        """
        ways: dict[str, Callable[[Run, Question], Measured]] = {
            "corrupted": self._corrupted,
            "ood": self._ood,
            "cost": lambda run, _: Measured(_cost(run)),
        }
        return ways.get(question.kind, self._tested)(run, question)

    def _tested(self, run: Run, question: Question) -> Measured:
        path = run.file(question.kind)
        if path is None:
            return Measured({}, (question.kind,))
        return Measured(self._report([path]) | _cost(run))

    def _corrupted(self, run: Run, question: Question) -> Measured:
        found = run.corrupted()
        missing = tuple(kind for kind in question.members if kind not in found)
        kinds = [kind for kind in question.members if kind in found]
        if not kinds:
            return Measured({}, ("corrupted images",))
        groups = [group for kind in kinds for group in self._groups(list(found[kind].values()))]
        return Measured(_mean([self._report(group) for group in groups]), missing, _partial(question, found))

    def _groups(self, files: list[Path]) -> list[list[Path]]:
        """Severities joined as in the official files, or apart as KEP-SVGP's tables and ours."""
        return [files] if self.protocol in ("cgpt", "sgpa") else [[path] for path in files]

    def _ood(self, run: Run, question: Question) -> Measured:
        test, validation = run.file("test"), run.file("validation")
        sets = {name: run.file(f"ood-{name}") for name in question.members}
        missing = tuple(name for name, path in sets.items() if path is None)
        files = [path for path in sets.values() if path is not None]
        if test is None or not files:
            return Measured({}, missing or ("test",))
        if validation is None and any(detector.startswith("KLMatching") for detector in question.detectors):
            return Measured({}, ("validation",))
        numbers = [self._detected(name, test, path, validation) for name in question.detectors for path in files]
        partial = (f"mean over {', '.join(name for name in sets if name not in missing)} only",) if missing else ()
        return Measured(_mean(numbers), missing, partial)

    def _report(self, files: Sequence[Path]) -> Numbers:
        def compute() -> Numbers:
            predictions = read_predictions(files)
            if predictions.labels is None:
                raise ValueError(f"{files[0]}: expected labels beside the logits, got none")
            return classification_report(*predictions, protocol=self.protocol)._asdict()

        return self.cache.numbers(f"report {self.protocol}", files, compute)

    def _detected(self, detector: str, test: Path, ood: Path, validation: Path | None) -> Numbers:
        files = [test, ood, *([validation] if validation else [])]

        def compute() -> Numbers:
            seen = [read_predictions([path]) for path in files]
            report = detect(
                detector,
                seen[0].logits,
                seen[1].logits,
                validation=seen[2] if len(seen) > 2 else None,
                protocol=self.protocol,
            )
            # KEP-SVGP's AUPR counts the familiar images as positive.
            return report._asdict() | {"aupr": report.aupr_in}

        return self.cache.numbers(f"detect {detector} {self.protocol}", files, compute)


def _mean(numbers: Sequence[Numbers]) -> Numbers:
    return {name: float(np.mean([one[name] for one in numbers])) for name in numbers[0]}


def _cost(run: Run) -> Numbers:
    seconds, memory = run.record.get("seconds_per_epoch"), run.record.get("peak_memory_bytes")
    found = {"seconds_per_epoch": seconds, "peak_memory": None if memory is None else memory / 2**30}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _partial(question: Question, found: dict[str, dict[int, Path]]) -> tuple[str, ...]:
    kinds = [kind for kind in question.members if kind in found]
    severities = sorted(set(itertools.chain.from_iterable(found[kind] for kind in kinds)))
    words = [] if len(kinds) == len(question.members) else [f"{len(kinds)} of {len(question.members)} corruptions"]
    if severities != [1, 2, 3, 4, 5]:
        words.append(f"severities {', '.join(map(str, severities))} of 1 to 5")
    return tuple(words)
