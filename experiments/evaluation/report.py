"""Every number of a classification table from saved predictions."""

from typing import Any, NamedTuple

import numpy as np

from experiments.evaluation._checks import as_labels
from experiments.evaluation.calibration import calibration_error
from experiments.evaluation.protocols import predictive_log_probabilities, rules
from experiments.evaluation.scores import accuracy, brier_score, matthews_correlation, negative_log_likelihood
from experiments.evaluation.selective import (
    area_under_risk_coverage,
    excess_area_under_risk_coverage,
    failure_prediction,
)

__all__ = ["ClassificationReport", "classification_report"]


class ClassificationReport(NamedTuple):
    """Metrics in natural units (no percent); the last four are NaN where all predictions are right, or all wrong."""

    accuracy: float
    nll: float
    ece: float
    mce: float
    brier: float
    mcc: float
    aurc: float
    eaurc: float
    auroc: float
    aupr_success: float
    aupr_error: float
    fpr95: float


def classification_report(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> ClassificationReport:
    """Score saved predictions by a protocol.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C), in the order in which they were predicted (some protocols
            average batches).
        labels: Classes (N,).
        protocol: One of ``pooled``, ``cgpt``, ``kep``, ``sgpa``.

    Returns:
        All metrics by name; ``._asdict()`` is a table row.

    Example:
        >>> report = classification_report([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], [0, 1, 1])
        >>> round(report.accuracy, 3), round(report.nll, 3), round(report.aurc, 3)
        (0.667, 0.471, 0.111)
    """
    fixed = rules(protocol)
    log_p = predictive_log_probabilities(logits, protocol=protocol)
    labels = as_labels(labels, *log_p.shape)
    probabilities = np.exp(log_p)
    confidence = probabilities.max(axis=-1).astype(fixed.dtype)
    predictions = log_p.argmax(axis=-1)
    correct = predictions == labels
    return ClassificationReport(
        accuracy(log_p, labels),
        negative_log_likelihood(log_p, labels),
        *calibration_error(logits, labels, protocol=protocol),
        brier_score(probabilities, labels),
        matthews_correlation(predictions, labels, batch_size=fixed.mcc_batch),
        area_under_risk_coverage(confidence, correct),
        excess_area_under_risk_coverage(confidence, correct),
        *failure_prediction(confidence, correct, rule=fixed.fpr_rule),
    )
