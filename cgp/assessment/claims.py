"""When a comparison counts: a correction for choosing, a smallest gain worth having, and enough data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

__all__ = [
    "FEWEST_INPUTS",
    "FEWEST_LABELS",
    "FEWEST_WRONG",
    "LEAST_AUROC",
    "LEAST_NATS",
    "LEVEL",
    "Detection",
    "Difference",
    "best_detector",
    "critical_value",
]

LEVEL = 0.05
"""Probability with which a report may claim anything of methods, or of detectors, where there is nothing."""

LEAST_NATS = 0.002
"""Smallest gain in NLL that is worth a recommendation."""

LEAST_AUROC = 0.01
"""Smallest gain in AUROC that is worth a recommendation."""

FEWEST_LABELS, FEWEST_WRONG = 20, 5
"""Below so many labels, or wrong answers among them, temperatures are claimed for logits that are calibrated
(docs/notes/reliability.md)."""

FEWEST_INPUTS = 20
"""Inputs of another kind below which detectors are not compared."""


class Difference(NamedTuple):
    """A paired difference.

    Attributes:
        mean: over the examples.
        error: standard error of that mean.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Difference:
        """Mean and standard error of values ``(N,)``, N at least 2."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def exceeds(self, least: float, z: float) -> bool:
        """Whether the mean is above ``least`` and above ``z`` standard errors."""
        return self.mean > max(least, z * self.error)

    def __neg__(self) -> Difference:
        """The difference the other way round."""
        return Difference(-self.mean, self.error)

    def __str__(self) -> str:
        """Both numbers; none has a sign that was rounded away."""
        mean = f"{self.mean:+.4f}"
        return f"{'0.0000' if float(mean) == 0.0 else mean} ± {self.error:.4f}"


class Detection(NamedTuple):
    """How well a score tells inputs of another kind.

    Attributes:
        auroc: area under the ROC curve.
        fpr95: share of known inputs that are flagged where 95 % of the others are.
        gain: in AUROC over the first score, one minus the confidence, with DeLong's error.
        error: DeLong's standard error of ``auroc``.
        num_inputs: of the smaller of the two sets.
    """

    auroc: float
    fpr95: float
    gain: Difference
    error: float
    num_inputs: int

    def is_right(self, z: float) -> bool:
        """Whether the score is larger outside than inside, and not the other way round, by ``z`` standard errors."""
        return Difference(self.auroc - 0.5, self.error).exceeds(LEAST_AUROC, z)


def critical_value(comparisons: int) -> float:
    r"""Standard errors by which the best of several comparisons has to stand out.

    .. math:: \max\{2, \Phi^{-1}(1 - 0.05 / m)\}

    Args:
        comparisons: m, out of which the largest difference is chosen.

    Returns:
        Two, or the one-sided normal quantile with Bonferroni's correction: under the null hypothesis the probability
        that any of the differences passes is at most 5 %, however they depend on each other.

    Example:
        >>> round(critical_value(1), 3), round(critical_value(8), 3)
        (2.0, 2.498)
    """
    return max(2.0, float(norm.isf(LEVEL / max(comparisons, 1))))


def best_detector(detectors: Mapping[str, Detection], comparisons: int) -> str | None:
    """The score of the largest AUROC among those that gain over the first one; None if there is none.

    Args:
        detectors: for each score; the first one is what the others are compared with.
        comparisons: of the whole report.

    Returns:
        Its name. Its AUROC is above one half, too: a score that points the wrong way is of no use, however much less so
        than the first one.
    """
    if min(d.num_inputs for d in detectors.values()) < FEWEST_INPUTS:
        return None
    z = critical_value(comparisons)
    better = [name for name, d in detectors.items() if d.gain.exceeds(LEAST_AUROC, z) and d.is_right(z)]
    return max(better, key=lambda name: detectors[name].auroc) if better else None
