"""Metrics as pure functions of saved predictions: logits (S, N, C) of each draw and labels (N,).

Tensors of any device and arrays are taken; numpy float64 is computed with; numbers and NamedTuples come back.
"""

from experiments.evaluation.calibration import ReliabilityBins, fit_temperature, reliability_bins
from experiments.evaluation.detection import (
    DETECTORS,
    DetectionReport,
    detect,
    detection_auroc,
    detection_report,
    detector_scores,
)
from experiments.evaluation.metrics import (
    RiskCoverage,
    Separation,
    Uncertainty,
    accuracy,
    area_under_risk_coverage,
    brier_score,
    excess_area_under_risk_coverage,
    false_positive_rate,
    matthews_correlation,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    negative_log_likelihood,
    risk_coverage_curve,
    separation,
    uncertainty,
)
from experiments.evaluation.protocols import (
    PROTOCOLS,
    CalibrationError,
    ClassificationReport,
    Protocol,
    calibration_bins,
    calibration_error,
    classification_report,
    predictive_log_probabilities,
)

__all__ = [
    "DETECTORS",
    "PROTOCOLS",
    "CalibrationError",
    "ClassificationReport",
    "DetectionReport",
    "Protocol",
    "ReliabilityBins",
    "RiskCoverage",
    "Separation",
    "Uncertainty",
    "accuracy",
    "area_under_risk_coverage",
    "brier_score",
    "calibration_bins",
    "calibration_error",
    "classification_report",
    "detect",
    "detection_auroc",
    "detection_report",
    "detector_scores",
    "excess_area_under_risk_coverage",
    "false_positive_rate",
    "fit_temperature",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "predictive_log_probabilities",
    "reliability_bins",
    "risk_coverage_curve",
    "separation",
    "uncertainty",
]
