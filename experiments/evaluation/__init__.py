"""Metrics as pure functions of saved predictions: logits (S, N, C) of each draw and labels (N,).

Tensors of any device and arrays are taken; numpy float64 is computed with; numbers and NamedTuples come back.
"""

from experiments.evaluation.detection import DETECTORS, detect
from experiments.evaluation.metrics import (
    label_log_probabilities,
    matthews_correlation,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    negative_log_likelihood,
    uncertainty,
)
from experiments.evaluation.protocols import (
    PROTOCOLS,
    classification_report,
)

__all__ = [
    "DETECTORS",
    "PROTOCOLS",
    "classification_report",
    "detect",
    "label_log_probabilities",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "uncertainty",
]
