"""Failure prediction: does confidence tell right predictions from wrong ones?"""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import xlogy

from experiments.evaluation._checks import Array, as_mask, as_vector
from experiments.evaluation.separation import aupr, auroc, average_precision, false_positive_rate

__all__ = [
    "FailurePrediction",
    "RiskCoverage",
    "area_under_risk_coverage",
    "excess_area_under_risk_coverage",
    "failure_prediction",
    "risk_coverage_curve",
]


class RiskCoverage(NamedTuple):
    """Error rate among the most confident fraction of the samples."""

    coverage: Array  # (N,) 1/N, 2/N, ..., 1
    risk: Array  # (N,)


class FailurePrediction(NamedTuple):
    """Separation of right from wrong predictions by confidence; NaN where all are right, or all wrong."""

    auroc: float
    aupr_success: float  # positive: right predictions; trapezoidal
    aupr_error: float  # positive: wrong predictions; average precision
    fpr95: float  # positive: right predictions


def risk_coverage_curve(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
) -> RiskCoverage:
    r"""Selective risk at every coverage, :math:`r_k = \frac1k \sum_{i \le k} [\hat y_{(i)} \ne y_{(i)}]`.

    Samples are taken most confident first; samples of equal confidence keep their order (stable sort).

    Args:
        confidence: Confidence of each prediction (N,).
        correct: Whether it was right (N,).

    Returns:
        Coverage k/N and risk, both (N,).

    Example:
        >>> risk_coverage_curve([0.6, 0.9, 0.7, 0.8], [True, True, False, True]).risk.round(3).tolist()
        [0.0, 0.0, 0.333, 0.25]
    """
    confidence = as_vector(confidence, "confidence")
    wrong = ~as_mask(correct, len(confidence), "correct")
    kept = np.arange(1, len(wrong) + 1)
    return RiskCoverage(kept / len(wrong), np.cumsum(wrong[np.argsort(-confidence, kind="stable")]) / kept)


def area_under_risk_coverage(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
) -> float:
    r"""AURC: the mean selective risk over all coverages, :math:`\frac1N \sum_k r_k`.

    Args:
        confidence: Confidence of each prediction (N,).
        correct: Whether it was right (N,).

    Returns:
        A number in [0, 1], 0 if every prediction is right (Geifman et al. 2019, eq. 3).

    Example:
        >>> round(area_under_risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True]), 4)
        0.1458
    """
    return float(risk_coverage_curve(confidence, correct).risk.mean())


def excess_area_under_risk_coverage(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
) -> float:
    r"""E-AURC: AURC minus that of a perfect ranking of equal error rate r, :math:`r + (1 - r) \ln(1 - r)`.

    The subtracted area is the limit of many samples: on few samples a perfect ranking does not give exactly 0.

    Args:
        confidence: Confidence of each prediction (N,).
        correct: Whether it was right (N,).

    Returns:
        The excess (Geifman et al. 2019, section 3).

    Example:
        >>> excess_area_under_risk_coverage([0.9, 0.8], [False, False])
        0.0
    """
    risk = risk_coverage_curve(confidence, correct).risk
    error = risk[-1]
    return float(risk.mean() - (error + xlogy(1 - error, 1 - error)))


def failure_prediction(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
    *,
    rule: Literal["first", "nearest"] = "first",
) -> FailurePrediction:
    """AUROC, AUPR and FPR95 of confidence as a detector of right predictions.

    Args:
        confidence: Confidence of each prediction (N,).
        correct: Whether it was right (N,).
        rule: Threshold of FPR95, see `false_positive_rate`.

    Returns:
        Four numbers in [0, 1], NaN where there is only one group to separate.

    Example:
        >>> failure_prediction([0.9, 0.6], [True, False])
        FailurePrediction(auroc=1.0, aupr_success=1.0, aupr_error=1.0, fpr95=0.0)
    """
    confidence = as_vector(confidence, "confidence")
    correct = as_mask(correct, len(confidence), "correct")
    if correct.all() or not correct.any():
        return FailurePrediction(*[float("nan")] * 4)
    return FailurePrediction(
        auroc=auroc(confidence, correct),
        aupr_success=aupr(confidence, correct),
        aupr_error=average_precision(-confidence, ~correct),
        fpr95=false_positive_rate(confidence, correct, rule=rule),
    )
