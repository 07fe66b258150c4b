"""Scores of out-of-distribution inputs, compared with those of in-distribution inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from cgp.comparisons import Difference
from cgp.networks.detect.detector import Detector
from cgp.networks.tasks import metrics

from .claims import Detection

__all__ = ["compare_detectors"]

Array = NDArray[Any]


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
