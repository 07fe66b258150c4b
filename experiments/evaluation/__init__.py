"""Metrics as pure functions of saved predictions: logits (S, N, C) per draw and labels (N,).

Tensors of any device and arrays are taken; numpy float64 is computed with; numbers and NamedTuples come back.
"""

from experiments.evaluation.calibration import (
    CalibrationError,
    ReliabilityBins,
    calibration_bins,
    calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_bins,
)
from experiments.evaluation.detectors import DETECTOR_NAMES, detect, detector_scores, has_templates
from experiments.evaluation.ood import (
    DETECTORS,
    DetectionReport,
    detection_auroc,
    detection_report,
    energy,
    epistemic_uncertainty,
    kl_matching_nearest,
    kl_matching_predicted,
    max_softmax,
    total_uncertainty,
)
from experiments.evaluation.predictive import (
    Uncertainty,
    log_probabilities,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    uncertainty,
)
from experiments.evaluation.protocols import PROTOCOLS, Protocol, predictive_log_probabilities
from experiments.evaluation.report import ClassificationReport, classification_report
from experiments.evaluation.scores import accuracy, brier_score, matthews_correlation, negative_log_likelihood
from experiments.evaluation.selective import (
    FailurePrediction,
    RiskCoverage,
    area_under_risk_coverage,
    excess_area_under_risk_coverage,
    failure_prediction,
    risk_coverage_curve,
)
from experiments.evaluation.separation import aupr, auroc, average_precision, false_positive_rate
from experiments.evaluation.temperature import fit_temperature

__all__ = [
    "DETECTORS",
    "DETECTOR_NAMES",
    "PROTOCOLS",
    "CalibrationError",
    "ClassificationReport",
    "DetectionReport",
    "FailurePrediction",
    "Protocol",
    "ReliabilityBins",
    "RiskCoverage",
    "Uncertainty",
    "accuracy",
    "area_under_risk_coverage",
    "aupr",
    "auroc",
    "average_precision",
    "brier_score",
    "calibration_bins",
    "calibration_error",
    "classification_report",
    "detect",
    "detection_auroc",
    "detection_report",
    "detector_scores",
    "energy",
    "epistemic_uncertainty",
    "excess_area_under_risk_coverage",
    "expected_calibration_error",
    "failure_prediction",
    "false_positive_rate",
    "fit_temperature",
    "has_templates",
    "kl_matching_nearest",
    "kl_matching_predicted",
    "log_probabilities",
    "matthews_correlation",
    "max_softmax",
    "maximum_calibration_error",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "predictive_log_probabilities",
    "reliability_bins",
    "risk_coverage_curve",
    "total_uncertainty",
    "uncertainty",
]
