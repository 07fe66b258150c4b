"""What the figures show, as arrays read from runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.evaluation import classification_report, predictive_log_probabilities
from experiments.evaluation.diagnostics import DIAGNOSTICS
from experiments.reports.papers.measure import Meter
from experiments.reports.papers.names import method_label
from experiments.reports.papers.runs import Run, read_predictions
from experiments.reports.papers.specification import Question
from experiments.storage import read_arrays

__all__ = ["Array", "Confidence", "Material", "confidences", "cost_curves", "diagnostics", "severity_curves"]

Array = NDArray[Any]

_COST = Question("cost")


class Material(NamedTuple):
    """Runs that a figure may draw.

    Attributes:
        runs: of the methods that are there, in their order.
        meter: measures them.
    """

    runs: Mapping[str, Sequence[Run]]
    meter: Meter

    def by_label(self, array: Callable[[Run], Array | None]) -> dict[str, Array]:
        """An array of shape (R, ...) a method, over the runs that have one; methods without are left out."""
        found = {method: [array(run) for run in runs] for method, runs in self.runs.items()}
        kept = {method: [one for one in arrays if one is not None] for method, arrays in found.items()}
        return {method_label(method): _stacked(method, arrays) for method, arrays in kept.items() if arrays}


def _stacked(method: str, arrays: Sequence[Array]) -> Array:
    shapes = {one.shape for one in arrays}
    if len(shapes) > 1:
        raise ValueError(f"runs: expected arrays of one shape in all runs of {method}, got {sorted(shapes)}")
    return np.stack(arrays)


class Confidence(NamedTuple):
    """Confidence of predictions, all runs of a method together.

    Attributes:
        test: (N,) of test samples.
        correct: (N,) whether they are right.
        ood: (M,) of OOD inputs, empty if there are none.
    """

    test: Array
    correct: Array
    ood: Array


def diagnostics(run: Run, name: str) -> Array | None:
    """An array of `diagnostics.npz`, or nothing if the run has none.

    Args:
        run: the run.
        name: of the array.
    """
    path = run.folder / DIAGNOSTICS
    return read_arrays(path, name).get(name) if path.exists() else None


def cost_curves(runs: Sequence[Run], method: str, sizes: Sequence[int], metric: str, meter: Meter) -> Array | None:
    """Cost (R, K) of a method at K numbers of inducing inputs, NaN where a run is missing.

    Args:
        runs: all runs of a setting.
        method: without its variant.
        sizes: numbers of inducing inputs.
        metric: "seconds_per_epoch" or "peak_memory".
        meter: measures.
    """
    found = {(run.method, run.seed): meter.measure(run, _COST).numbers.get(metric, np.nan) for run in runs}
    names = [f"{method}-inducing-{size}" for size in sizes]
    seeds = sorted({seed for name, seed in found if name in names})
    curves = np.array([[found.get((name, seed), np.nan) for name in names] for seed in seeds])
    return curves if curves.size and np.isfinite(curves).any() else None


def severity_curves(run: Run, kind: str, metric: str, meter: Meter) -> dict[int, float]:
    """A metric on one kind of corruption by severity; 0 are the clean test samples.

    Args:
        run: the run.
        kind: of corruption.
        metric: of `experiments.evaluation.ClassificationReport`.
        meter: measures.
    """
    test = run.file("test")
    files = ({} if test is None else {0: test}) | run.corrupted().get(kind, {})
    return {severity: _number(path, metric, meter) for severity, path in files.items()}


def _number(path: Path, metric: str, meter: Meter) -> float:
    def compute() -> dict[str, float]:
        logits, labels = read_predictions([path])
        return classification_report(logits, labels, protocol=meter.protocol)._asdict()

    return meter.cache.numbers(f"report {meter.protocol}", [path], compute)[metric]


def confidences(runs: Sequence[Run], ood: str, protocol: str) -> Confidence | None:
    """Confidence on test samples and OOD inputs; nothing if no run has test predictions.

    Args:
        runs: of one method.
        ood: name of the OOD set.
        protocol: how draws are averaged.
    """
    tested = [path for run in runs if (path := run.file("test")) is not None]
    if not tested:
        return None
    parts = [_confident(path, protocol) for path in tested]
    strange = [path for run in runs if (path := run.file(f"ood-{ood}")) is not None]
    elsewhere = [_confident(path, protocol)[0] for path in strange]
    return Confidence(
        np.concatenate([confidence for confidence, _ in parts]),
        np.concatenate([correct for _, correct in parts]),
        np.concatenate(elsewhere) if elsewhere else np.empty(0),
    )


def _confident(path: Path, protocol: str) -> tuple[Array, Array]:
    logits, labels = read_predictions([path])
    log_p = predictive_log_probabilities(logits, protocol=protocol)
    correct = np.zeros(len(log_p), dtype=bool) if labels is None else log_p.argmax(-1) == labels
    return np.exp(log_p).max(-1).clip(0, 1), correct
