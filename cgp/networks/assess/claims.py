"""Conditions for a recommendation: a relevant gain, and enough data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cgp.comparisons import Difference, critical_value

__all__ = [
    "FEWEST_INPUTS",
    "FEWEST_LABELS",
    "FEWEST_WRONG",
    "LEAST_AUROC",
    "LEAST_NATS",
    "Detection",
    "best_detector",
]

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
