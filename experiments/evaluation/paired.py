"""Comparison of methods on the same inputs: levels over seeds, and paired differences with standard errors."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, TypeVar

import numpy as np

from cgp.networks.tasks import metrics
from experiments.evaluation.metrics import Array, matthews_correlation

__all__ = ["MEASURES", "Measure", "Scored", "auroc_difference", "difference", "mean_difference"]

T = TypeVar("T")

_RESAMPLES = 200


class Scored(NamedTuple):
    """Scored predictions, each ``(..., N)``; leading axes are other versions of the same N inputs."""

    loss: Array
    confidence: Array
    predicted: Array
    labels: Array

    @classmethod
    def of(cls, probabilities: Array, labels: Array) -> Self:
        """Score probabilities, ``(..., N, classes)``."""
        shape, classes = probabilities.shape[:-1], probabilities.shape[-1]
        labels = np.broadcast_to(labels, shape)
        loss = metrics.log_losses(probabilities.reshape(-1, classes), labels.reshape(-1)).reshape(shape)
        return cls(loss, probabilities.max(-1), probabilities.argmax(-1), labels)

    @property
    def right(self) -> Array:
        """Whether each prediction is right."""
        return self.predicted == self.labels

    def resampled(self, rows: Array) -> Self:
        """The inputs at some positions, with all their versions in one row."""
        return type(self)(*(values[..., rows].reshape(-1) for values in self))


class Measure(NamedTuple):
    """A metric in the units of the tables: the mean of a value per input, ``(..., N)``, or one number of all inputs."""

    digits: int
    each: Callable[[Scored], Array] | None = None
    whole: Callable[[Scored], float] | None = None

    def __call__(self, scored: Scored) -> float:
        """Value of the metric."""
        if self.each is not None:
            return float(self.each(scored).mean())
        assert self.whole is not None, "neither values nor a number"
        return self.whole(scored.resampled(np.arange(scored.loss.shape[-1])))


MEASURES: Mapping[str, Measure] = {
    "accuracy %": Measure(1, each=lambda scored: 100.0 * scored.right),
    "MCC %": Measure(1, whole=lambda scored: 100 * matthews_correlation(scored.predicted, scored.labels)),
    "NLL": Measure(3, each=lambda scored: scored.loss),
    "ECE %": Measure(1, whole=lambda scored: 100 * metrics.calibration_error(scored.confidence, scored.right)),
    "AURC ‰": Measure(1, whole=lambda scored: 1000 * metrics.aurc(scored.confidence, scored.right)),
}


def difference(measure: Measure, runs: Mapping[int, Scored], reference: Mapping[int, Scored]) -> str:
    """Mean difference over the common seeds, and the larger of its standard errors, over inputs and over seeds.

    The error of a mean over inputs is that of paired differences; that of other measures is by 200 paired resamples.
    """
    pairs = _paired(runs, reference)
    count = pairs[0][0].loss.shape[-1]
    if measure.each is not None:
        values = np.array([measure.each(ours) - measure.each(theirs) for ours, theirs in pairs])
        over_inputs = _error(values.reshape(-1, count).mean(0))  # over the seeds and an input's versions
    else:
        generator = np.random.default_rng(0)
        chosen = [np.asarray(generator.integers(count, size=count)) for _ in range(_RESAMPLES)]
        means = [
            np.mean([measure(a.resampled(rows)) - measure(b.resampled(rows)) for a, b in pairs]) for rows in chosen
        ]
        over_inputs = float(np.std(means, ddof=1))
    by_seed = np.array([measure(ours) - measure(theirs) for ours, theirs in pairs])
    return _with_error(by_seed, over_inputs, measure.digits + 1)


def mean_difference(values: Array) -> tuple[float, float]:
    """Mean of paired differences ``(seeds, N)``, and the larger of its standard errors, over inputs and over seeds."""
    return float(values.mean()), max(_error(values.mean(0)), _error(values.mean(1)))


def auroc_difference(runs: Mapping[int, tuple[Array, Array]], reference: Mapping[int, tuple[Array, Array]]) -> str:
    """Difference of the AUROC of scores in and out of distribution, with DeLong's error over the inputs."""
    pairs = _paired(runs, reference)
    if not pairs:
        return ""
    areas = np.array([metrics.auroc(*ours) - metrics.auroc(*theirs) for ours, theirs in pairs])
    placed = [(metrics.placements(*ours), metrics.placements(*theirs)) for ours, theirs in pairs]
    sides = [np.mean([ours[side] - theirs[side] for ours, theirs in placed], axis=0) for side in (0, 1)]
    return _with_error(areas, metrics.delong_error(*sides), 4)


def _paired(runs: Mapping[int, T], reference: Mapping[int, T]) -> list[tuple[T, T]]:
    """Pairs of the common seeds."""
    return [(runs[seed], reference[seed]) for seed in sorted(runs.keys() & reference.keys())]


def _with_error(by_seed: Array, over_inputs: float, digits: int) -> str:
    return f"{np.mean(by_seed):+.{digits}f} ± {max(over_inputs, _error(by_seed)):.{digits}f}"


def _error(values: Array) -> float:
    """Standard error of the mean; 0 for a single value, from which it cannot be estimated."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
