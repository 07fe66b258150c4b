r"""The four protocols by which the literature computes the numbers of a table from predictions.

========  ============================  ========================  ==================================
protocol  averaged over                 what is binned            bins
========  ============================  ========================  ==================================
pooled    whole set                     top label                 15, (lo, hi], 1.0 in the last
cgpt      batches of 1000               top label                 10, [lo, hi), 1.0 in one of its own
cgpt,     batches of 32, weighted by    P(y = 1)                  10, [lo, hi), 1.0 in one of its own
C = 2     size
kep       whole set                     top label, mean logits    15, (lo, hi]
sgpa      whole set                     every class, flattened    10, [lo, hi), 1.0 dropped
========  ============================  ========================  ==================================

Only ``pooled`` is ours; the others reproduce the papers' published code, so that our numbers can be compared
with theirs. They use confidences in single precision, in which a saturated prediction is exactly 1. Small batches
inflate the error: perfectly calibrated predictions score an ECE of about 0.03 by ``cgpt`` on ten classes, 0.16 on two.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import log_softmax
from sklearn.metrics import roc_curve

from cgp.networks.tasks.metrics import aurc, auroc, brier_scores, fpr95
from experiments.configuration import Protocol
from experiments.evaluation import metrics
from experiments.evaluation.metrics import Array, as_array, as_labels

__all__ = [
    "PROTOCOLS",
    "CalibrationError",
    "ClassificationReport",
    "ReliabilityBins",
    "calibration_bins",
    "calibration_error",
    "classification_report",
    "predictive_log_probabilities",
    "reliability_bins",
    "rules",
]


class ReliabilityBins(NamedTuple):
    """Binned confidences; empty bins have count 0 and NaN means."""

    edges: Array  # (M + 1,)
    counts: Array  # (M,)
    confidence: Array  # (M,) mean confidence
    accuracy: Array  # (M,) fraction of outcomes that are true

    @property
    def expected_error(self) -> float:
        r"""Mean gap between confidence and accuracy, :math:`\sum_m \frac{n_m}{N} |c_m - a_m|`; 0 without samples."""
        return float(np.nansum(self._gaps * self.counts) / max(self.counts.sum(), 1))

    @property
    def maximum_error(self) -> float:
        r"""Largest gap of a bin that is not empty, :math:`\max_m |c_m - a_m|`; 0 without samples."""
        return float(np.nanmax(self._gaps, initial=0.0))

    @property
    def _gaps(self) -> Array:
        return np.abs(self.confidence - self.accuracy)


def reliability_bins(
    confidence: Any,  # shape: (N,)
    outcome: Any,  # shape: (N,)
    *,
    bins: int = 15,
    closed: Literal["right", "left"] = "right",
    ones: Literal["last", "own", "dropped"] = "last",
) -> ReliabilityBins:
    """Bins of equal width over [0, 1].

    Args:
        confidence: probabilities (N,); compared with the edges in their own precision.
        outcome: whether the event predicted with that probability occurred (N,).
        bins: number of bins M.
        closed: the edge of a bin that belongs to it; a confidence of 0 always falls in the first bin.
        ones: bin of a confidence of exactly 1: the last bin, a bin of its own as in torchmetrics (then
            there are M + 1), or none.
    """
    confidence, outcome = as_array(confidence, single=True), as_array(outcome).astype(bool)
    if confidence.shape != outcome.shape or not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError(
            f"confidence: expected numbers in [0, 1], one for each of {outcome.size} outcomes, got {confidence}"
        )
    if ones == "dropped":
        confidence, outcome = confidence[confidence < 1], outcome[confidence < 1]
    edges = np.linspace(0, 1, bins + 1).astype(confidence.dtype)
    index = np.clip(np.searchsorted(edges, confidence, side="left" if closed == "right" else "right") - 1, 0, bins - 1)
    if ones == "own":
        index, edges = np.where(confidence == 1, bins, index), np.append(edges, edges[-1])
    size = len(edges) - 1
    counts = np.bincount(index, minlength=size)
    # 0 / 0 = NaN marks an empty bin, which has no mean.
    with np.errstate(invalid="ignore"):
        means = [np.bincount(index, weights=values, minlength=size) / counts for values in (confidence, outcome)]
    return ReliabilityBins(edges, counts, *means)


PROTOCOLS: tuple[str, ...] = get_args(Protocol)


class Rules(NamedTuple):
    """Rules of a protocol besides its calibration error."""

    average: Literal["probabilities", "logits"]  # what is averaged over the draws
    dtype: type[np.floating[Any]]  # precision of the confidences, on which ties and exact ones depend
    fpr: Callable[[Array, Array], float]  # FPR95: at the first threshold, or at the nearest corner
    mcc_batch: int | None  # Matthews correlation averaged over batches of this size


class CalibrationError(NamedTuple):
    """Expected and maximum calibration error, both in [0, 1]."""

    ece: float
    mce: float


class ClassificationReport(NamedTuple):
    """Metrics in natural units (no percent); the last two are NaN where all predictions are right, or all wrong."""

    accuracy: float
    nll: float
    ece: float
    mce: float
    brier: float
    mcc: float
    aurc: float
    auroc: float  # of confidence as a detector of right predictions
    fpr95: float  # positive: right predictions


def _nearest_fpr95(inside: Array, outside: Array) -> float:
    """False positive rate at the corner of the ROC curve nearest to 95 %, above or below."""
    positive = np.repeat([0, 1], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(positive, np.concatenate([inside, outside]), drop_intermediate=True)
    return float(fpr[np.abs(tpr - 0.95).argmin()])


_RULES = {
    "pooled": Rules("probabilities", np.float64, fpr95, None),
    "cgpt": Rules("probabilities", np.float32, fpr95, None),
    "kep": Rules("logits", np.float32, _nearest_fpr95, 32),
    "sgpa": Rules("probabilities", np.float32, fpr95, None),
}


def rules(protocol: str) -> Rules:
    """Return the rules of a protocol, or raise a ValueError that names the protocols."""
    if protocol not in _RULES:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    return _RULES[protocol]


def predictive_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
    *,
    protocol: str = "pooled",
) -> Array:  # shape: (N, C)
    """Log-probabilities of the prediction that a protocol scores: ``kep`` averages logits, the others probabilities."""
    if rules(protocol).average == "logits":
        return np.asarray(log_softmax(metrics.mean_logits(logits), axis=-1))
    return metrics.mean_log_probabilities(logits)


def calibration_bins(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> list[tuple[float, ReliabilityBins]]:
    """Bins of each batch over which a protocol averages, with the weight of the batch; the weights sum to one."""
    p = np.exp(predictive_log_probabilities(logits, protocol=protocol)).astype(rules(protocol).dtype)
    labels = as_labels(labels, *p.shape)
    if protocol == "cgpt":
        return _cgpt_bins(p, labels)
    if protocol == "sgpa":
        outcome = np.eye(p.shape[-1], dtype=bool)[labels]
        return [(1.0, reliability_bins(p.ravel(), outcome.ravel(), bins=10, closed="left", ones="dropped"))]
    return [(1.0, reliability_bins(p.max(axis=-1), p.argmax(axis=-1) == labels))]


def _cgpt_bins(
    p: Array,  # shape: (N, C)
    labels: Array,  # shape: (N,)
) -> list[tuple[float, ReliabilityBins]]:
    binary = p.shape[-1] == 2
    confidence = p[:, 1] if binary else p.max(axis=-1)
    outcome = labels == 1 if binary else p.argmax(axis=-1) == labels
    size = 32 if binary else 1000
    parts = [np.arange(start, min(start + size, len(p))) for start in range(0, len(p), size)]
    # The published code weights batches equally for ten classes, and by their size for two.
    weights = [len(part) / len(p) if binary else 1 / len(parts) for part in parts]
    binned = [reliability_bins(confidence[part], outcome[part], bins=10, closed="left", ones="own") for part in parts]
    return list(zip(weights, binned, strict=True))


def calibration_error(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> CalibrationError:
    """Expected and maximum calibration error, averaged over the protocol's batches."""
    parts = calibration_bins(logits, labels, protocol=protocol)
    return CalibrationError(
        float(sum(weight * bins.expected_error for weight, bins in parts)),
        float(sum(weight * bins.maximum_error for weight, bins in parts)),
    )


def classification_report(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> ClassificationReport:
    """Score saved predictions by a protocol."""
    fixed = rules(protocol)
    log_p = predictive_log_probabilities(logits, protocol=protocol)
    labels = as_labels(labels, *log_p.shape)
    confidence = np.exp(log_p).max(axis=-1).astype(fixed.dtype)
    predictions = log_p.argmax(axis=-1)
    correct = predictions == labels
    groups = confidence[~correct], confidence[correct]
    both = 0 < correct.sum() < len(correct)
    return ClassificationReport(
        float(correct.mean()),
        metrics.negative_log_likelihood(log_p, labels),
        *calibration_error(logits, labels, protocol=protocol),
        float(brier_scores(np.exp(log_p), labels).mean()),
        metrics.matthews_correlation(predictions, labels, batch_size=fixed.mcc_batch),
        aurc(confidence, correct),
        auroc(*groups) if both else math.nan,
        fixed.fpr(*groups) if both else math.nan,
    )
