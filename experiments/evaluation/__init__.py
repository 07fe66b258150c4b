"""Metrics as pure functions of saved predictions: logits (S, N, C) of each draw and labels (N,).

Arguments are tensors of any device or arrays, computations are in numpy float64, results numbers or NamedTuples.
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
