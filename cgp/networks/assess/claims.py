"""Detection of other inputs, and the conditions for a recommendation: a relevant gain, and enough data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from cgp.comparisons import Difference, critical_value
from cgp.networks.detect.detector import Detector
from cgp.networks.tasks import metrics

__all__ = [
    "FEWEST_INPUTS",
    "FEWEST_LABELS",
    "FEWEST_WRONG",
    "LEAST_AUROC",
    "LEAST_NATS",
    "Detection",
    "best_detector",
    "compare_detectors",
]

Array = NDArray[Any]

LEAST_NATS = 0.002
"""Smallest gain in NLL for a recommendation."""

LEAST_AUROC = 0.01
"""Smallest gain in AUROC for a recommendation."""

FEWEST_LABELS, FEWEST_WRONG = 20, 5
"""Below so many labels, or wrong answers among them, temperatures are claimed for logits that are calibrated
(docs/notes/reliability.md)."""

FEWEST_INPUTS = 20
"""Smallest number of other inputs for which detectors are compared."""


class Detection(NamedTuple):
    """Detection of out-of-distribution inputs by a score.

    Attributes:
        auroc: area under the ROC curve.
        fpr95: share of known inputs that are flagged if 95 % of the others are.
        gain: gain in AUROC over the first score, one minus the confidence, with DeLong's error.
        error: DeLong's standard error of ``auroc``.
        num_inputs: number of inputs of the smaller set.
    """

    auroc: float
    fpr95: float
    gain: Difference
    error: float
    num_inputs: int

    def is_right(self, z: float) -> bool:
        """Whether the score is larger outside than inside, and not the other way round, by ``z`` standard errors."""
        return Difference(self.auroc - 0.5, self.error).exceeds(LEAST_AUROC, z)


def best_detector(detectors: Mapping[str, Detection], comparisons: int) -> str | None:
    """The score with the largest AUROC among those with a significant gain over the first one, or None.

    Args:
        detectors: results of each score; the others are compared with the first one.
        comparisons: number of comparisons in the report.

    Returns:
        Its name. Its AUROC is also above one half: a score of the wrong sign is useless, even if another one is worse.
    """
    if min(d.num_inputs for d in detectors.values()) < FEWEST_INPUTS:
        return None
    z = critical_value(comparisons)
    better = [name for name, d in detectors.items() if d.gain.exceeds(LEAST_AUROC, z) and d.is_right(z)]
    return max(better, key=lambda name: detectors[name].auroc) if better else None


def compare_detectors(
    detectors: Sequence[Detector], known: dict[str, Array], others: Mapping[str, dict[str, Array]]
) -> dict[str, dict[str, Detection]]:
    """AUROC and FPR95 of every detector on every set of other inputs.

    Args:
        detectors: fitted to the known inputs.
        known: scores ``(N,)`` of in-distribution inputs by name.
        others: the same for other inputs, by the names of the sets.

    Returns:
        Results by the name of the set, then of the detector.
    """
    inside = {detector.name: detector.combined(known) for detector in detectors}
    outside = {name: {each.name: each.combined(scores) for each in detectors} for name, scores in others.items()}
    return {name: _detections({n: (inside[n], scores[n]) for n in inside}) for name, scores in outside.items()}


def _detections(pairs: dict[str, tuple[Array, Array]]) -> dict[str, Detection]:
    """AUROC and FPR95 of scores inside and outside, and their gain over the first one."""
    placed = {name: metrics.placements(*pair) for name, pair in pairs.items()}
    first = next(iter(placed.values()))
    detections = {}
    for name, pair in pairs.items():
        inside, outside = (part - plain for part, plain in zip(placed[name], first, strict=True))
        gain = Difference(float(outside.mean()), metrics.delong_error(inside, outside))
        scores = metrics.auroc(*pair), metrics.fpr95(*pair)
        detections[name] = Detection(*scores, gain, metrics.delong_error(*placed[name]), min(map(len, pair)))
    return detections
