"""Metrics of one run for one block, recomputed from its predictions, and how the run deviates from the paper."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from experiments.evaluation import classification_report, detect
from experiments.evaluation.diagnostics import collapse_of_runs
from experiments.reports.papers.specification import Block
from experiments.runs import Run
from experiments.runs.rows import derivation
from experiments.saved_predictions import Predictions

__all__ = ["Measured", "deviations", "measure"]

Numbers = dict[str, float]

_DRAWS = 10
_SPLITS = {"cola-pooled": "pooled", "cola-official": "official"}
_SPLIT_WORDS = {
    "pooled": "80 : 20 of train and dev together",
    "selected": "70 : 10 : 20 of train and dev together, selected on the 10 %",
    "official": "8,551 : 527",
}


class Measured(NamedTuple):
    """Measured metrics of a run, by name, in natural units; empty if there are none."""

    numbers: Numbers
    partial: tuple[str, ...] = ()  # omissions, in words
    shape: tuple[int, int] | None = None  # draws and samples of the predictions


def measure(run: Run, block: Block, protocol: str) -> Measured:
    """Compute the metrics of a block for a complete run, by a protocol."""
    if block.kind == "cost":
        return Measured(_cost(run))
    if block.kind == "corrupted":
        return _corrupted(run, block, protocol)
    if block.kind == "ood":
        return _ood(run, block, protocol)
    if block.kind not in run.predicted:
        return Measured({})
    predictions = run.predictions(block.kind)
    return Measured(_report(run, predictions, protocol) | _cost(run), shape=predictions.logits.shape[:2])


def _corrupted(run: Run, block: Block, protocol: str) -> Measured:
    severities_of = _severities(run)
    kinds = [kind for kind in block.members if kind in severities_of]
    if not kinds:
        return Measured({})
    # cgpt and sgpa join the severities of a kind, as in the official files.
    joined = protocol in ("cgpt", "sgpa")
    groups = [
        group
        for kind in kinds
        for group in ([severities_of[kind]] if joined else [[level] for level in severities_of[kind]])
    ]
    severities = sorted({level for kind in kinds for level in map(_severity, severities_of[kind])})
    partial = [] if len(kinds) == len(block.members) else [f"{len(kinds)} of {len(block.members)} corruptions"]
    if severities != [1, 2, 3, 4, 5]:
        partial.append(f"severities {', '.join(map(str, severities))} of 1 to 5")
    shape = run.predictions(severities_of[kinds[0]][0]).logits.shape[:2]
    return Measured(_mean([_report(run, _joined(run, group), protocol) for group in groups]), tuple(partial), shape)


def _severities(run: Run) -> dict[str, list[str]]:
    """Input sets of each kind of corruption, ascending in severity."""
    sets: dict[str, list[str]] = {}
    for name in sorted((name for name in run.predicted if name.startswith("corrupted-")), key=_severity):
        sets.setdefault(name.removeprefix("corrupted-").rpartition("-")[0], []).append(name)
    return sets


def _severity(name: str) -> int:
    return int(name.rpartition("-")[2])


def _joined(run: Run, names: Sequence[str]) -> Predictions:
    parts = [run.predictions(name) for name in names]
    if len({(len(part.logits), part.labels is None) for part in parts}) > 1:
        raise ValueError(f"{run.folder}: expected labels and as many draws in {', '.join(names)}")
    logits = np.concatenate([part.logits for part in parts], axis=1)
    labels = None if parts[0].labels is None else np.concatenate([part.labels for part in parts])
    return Predictions(logits, np.concatenate([part.ids for part in parts]), labels)


def _ood(run: Run, block: Block, protocol: str) -> Measured:
    names = [name for name in block.members if f"ood-{name}" in run.predicted]
    matching = any(detector.startswith("KLMatching") for detector in block.detectors)
    if not names or not {"test", *(["validation"] if matching else [])} <= set(run.predicted):
        return Measured({})
    test = run.predictions("test")
    seen = run.predictions("validation") if matching else None
    validation = None if seen is None else (seen.logits, seen.labels)
    foreign = [run.predictions(f"ood-{name}").logits for name in names]
    reports = [
        report
        for name in block.detectors
        for report in detect(name, test.logits, foreign, validation=validation, protocol=protocol)
    ]
    partial = (f"mean over {', '.join(names)} only",) if len(names) < len(block.members) else ()
    # KEP-SVGP's AUPR counts the in-distribution images as positive.
    numbers = [report._asdict() | {"aupr": report.aupr_in} for report in reports]
    return Measured(_mean(numbers), partial, test.logits.shape[:2])


def _report(run: Run, predictions: Predictions, protocol: str) -> Numbers:
    if predictions.labels is None:
        raise ValueError(f"{run.folder}: expected labels beside the logits, got none")
    return classification_report(predictions.logits, predictions.labels, protocol=protocol)._asdict()


def _mean(numbers: Sequence[Numbers]) -> Numbers:
    return {name: float(np.mean([of_set[name] for of_set in numbers])) for name in numbers[0]}


def _cost(run: Run) -> Numbers:
    seconds, memory = run.record.get("seconds_per_epoch"), run.record.get("peak_memory_bytes")
    costs = {"seconds_per_epoch": seconds, "peak_memory": None if memory is None else memory / 2**30}
    return {name: float(value) for name, value in costs.items() if value is not None and math.isfinite(value)}


def deviations(block: Block, run: Run, measured: Measured) -> Iterator[str]:
    """Yield all deviations of a run from the paper."""
    kind, data = block.kind, run.config.data
    yield from run.deviations
    # Settings of CoLA differ in their split, which is reported below.
    if run.setting != block.folders[0] and block.folders[0] not in _SPLITS:
        yield f"the setting {run.setting}, the paper's is {block.folders[0]}"
    if kind == "corrupted" and "generated" in (run.record.get("corruptions"), data.corruptions.source):
        yield "generated corruptions, not the published files"
    if kind == "ood":
        sources = {name: run.sources.get(f"ood-{name}") for name in block.members}
        yield from (f"{name}: {words}" for name, words in sources.items() if words)
    expected = _SPLITS.get(block.folders[0])
    if expected is not None and data.split != expected:
        yield f"CoLA split {_SPLIT_WORDS[data.split]}, the paper's is {_SPLIT_WORDS[expected]}"
    yield from _counts(block, run, measured)
    collapse = collapse_of_runs([run.diagnostics])
    if collapse is not None:
        yield collapse
    yield from measured.partial


def _counts(block: Block, run: Run, measured: Measured) -> Iterator[str]:
    if measured.shape is None:
        return
    draws, samples = measured.shape
    # One draw although more were requested: the model is deterministic.
    deterministic = draws == 1 and run.config.evaluation.draws != 1
    if draws != _DRAWS and not deterministic and derivation(run.method)[0] != "ensemble":
        yield f"{draws} draws, the paper's {_DRAWS}"
    if block.samples is not None and samples != block.samples:
        yield f"{samples:,} test samples, the paper's {block.samples:,}"
