"""Metrics as pure functions of saved predictions: logits (S, N, C) of each draw and labels (N,).

Tensors of any device and arrays are taken; numpy float64 is computed with; numbers and NamedTuples come back.
"""

from experiments.evaluation.calibration import fit_temperature, reliability_bins
from experiments.evaluation.detection import DETECTORS, detect, detection_report, detector_scores
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
    calibration_bins,
    calibration_error,
    classification_report,
    predictive_log_probabilities,
)

__all__ = [
    "DETECTORS",
    "PROTOCOLS",
    "calibration_bins",
    "calibration_error",
    "classification_report",
    "detect",
    "detection_report",
    "detector_scores",
    "fit_temperature",
    "label_log_probabilities",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "predictive_log_probabilities",
    "reliability_bins",
    "uncertainty",
]
