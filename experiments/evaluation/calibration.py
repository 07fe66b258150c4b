r"""Calibration error: one binning core, four protocols.

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

The papers' protocols see confidences in single precision, in which a saturated prediction is exactly 1. Small batches
inflate the error: perfectly calibrated predictions score an ECE of about 0.03 by ``cgpt`` on ten classes, 0.16 on two.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from experiments.evaluation._checks import Array, as_labels, as_mask, as_vector
from experiments.evaluation.protocols import batches, predictive_log_probabilities, rules

__all__ = [
    "CalibrationError",
    "ReliabilityBins",
    "calibration_bins",
    "calibration_error",
    "expected_calibration_error",
    "maximum_calibration_error",
    "reliability_bins",
]


class ReliabilityBins(NamedTuple):
    """Binned confidences; empty bins have count 0 and NaN means."""

    edges: Array  # (M + 1,)
    counts: Array  # (M,)
    confidence: Array  # (M,) mean confidence
    accuracy: Array  # (M,) fraction of outcomes that are true


class CalibrationError(NamedTuple):
    """Expected and maximum calibration error, both in [0, 1]."""

    ece: float
    mce: float


def reliability_bins(
    confidence: Any,  # shape: (N,)
    outcome: Any,  # shape: (N,)
    *,
    bins: int = 15,
    closed: Literal["right", "left"] = "right",
    ones: Literal["last", "own", "dropped"] = "last",
) -> ReliabilityBins:
    """Bins of equal width over [0, 1]: the core of every calibration error.

    Args:
        confidence: Probabilities (N,) in [0, 1]; compared with the edges in their own precision.
        outcome: Whether what was predicted with that probability came true (N,).
        bins: Number of bins M.
        closed: Which edge of a bin belongs to it. A confidence of 0 always falls in the first bin.
        ones: Where a confidence of exactly 1 goes: in the last bin, in a bin of its own (then there are M + 1), or
            nowhere.

    Returns:
        Edges, counts, mean confidence and accuracy of each bin.

    Raises:
        ValueError: If shapes disagree or a confidence lies outside [0, 1].

    Example:
        >>> reliability_bins([0.2, 0.5, 0.9], [0, 1, 1], bins=2).counts.tolist()
        [2, 1]
    """
    confidence = as_vector(confidence, "confidence")
    outcome = as_mask(outcome, len(confidence), "outcome")
    if confidence.min() < 0 or confidence.max() > 1:
        raise ValueError(f"confidence must lie in [0, 1], got [{confidence.min()}, {confidence.max()}]")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if ones == "dropped":
        confidence, outcome = confidence[confidence < 1], outcome[confidence < 1]
    edges = np.linspace(0, 1, bins + 1).astype(confidence.dtype)
    index = np.clip(np.searchsorted(edges, confidence, side="left" if closed == "right" else "right") - 1, 0, bins - 1)
    if ones == "own":
        index, edges = np.where(confidence == 1, bins, index), np.append(edges, edges[-1])
    return _bin_means(index, edges, confidence, outcome)


def _bin_means(index: Array, edges: Array, confidence: Array, outcome: Array) -> ReliabilityBins:
    size = len(edges) - 1
    counts = np.bincount(index, minlength=size)
    # 0 / 0 = NaN marks an empty bin: it has no mean, and a picture must not draw one.
    with np.errstate(invalid="ignore"):
        means = [np.bincount(index, weights=values, minlength=size) / counts for values in (confidence, outcome)]
    return ReliabilityBins(edges, counts, *means)


def expected_calibration_error(bins: ReliabilityBins) -> float:
    r"""Mean gap between confidence and accuracy, :math:`\sum_m \frac{n_m}{N} |c_m - a_m|`.

    Args:
        bins: Binned confidences.

    Returns:
        A number in [0, 1]; 0 if every bin is empty.

    Example:
        >>> round(expected_calibration_error(reliability_bins([0.6, 0.8], [1, 0])), 4)
        0.6
    """
    filled = bins.counts > 0
    if not filled.any():
        return 0.0
    return float(np.average(np.abs(bins.confidence - bins.accuracy)[filled], weights=bins.counts[filled]))


def maximum_calibration_error(bins: ReliabilityBins) -> float:
    r"""Largest gap between confidence and accuracy of a bin that is not empty, :math:`\max_m |c_m - a_m|`.

    Args:
        bins: Binned confidences.

    Returns:
        A number in [0, 1]; 0 if every bin is empty.
    """
    filled = bins.counts > 0
    return float(np.abs(bins.confidence - bins.accuracy)[filled].max()) if filled.any() else 0.0


def calibration_bins(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> list[tuple[float, ReliabilityBins]]:
    """Bins of each batch over which a protocol averages, with the weight of the batch.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).
        labels: Classes (N,).
        protocol: One of ``pooled``, ``cgpt``, ``kep``, ``sgpa``.

    Returns:
        Pairs of weight and bins; the weights sum to one. ``pooled``, ``kep`` and ``sgpa`` give one pair.

    Example:
        >>> [(weight, bins)] = calibration_bins([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> bins.counts.sum().item()
        2
    """
    probabilities = np.exp(predictive_log_probabilities(logits, protocol=protocol)).astype(rules(protocol).dtype)
    labels = as_labels(labels, *probabilities.shape)
    if protocol == "cgpt":
        return _cgpt_bins(probabilities, labels)
    if protocol == "sgpa":
        outcome = np.eye(probabilities.shape[-1], dtype=bool)[labels]
        return [(1.0, reliability_bins(probabilities.ravel(), outcome.ravel(), bins=10, closed="left", ones="dropped"))]
    return [(1.0, reliability_bins(probabilities.max(axis=-1), probabilities.argmax(axis=-1) == labels))]


def _cgpt_bins(
    probabilities: Array,  # shape: (N, C)
    labels: Array,  # shape: (N,)
) -> list[tuple[float, ReliabilityBins]]:
    binary = probabilities.shape[-1] == 2
    confidence = probabilities[:, 1] if binary else probabilities.max(axis=-1)
    outcome = labels == 1 if binary else probabilities.argmax(axis=-1) == labels
    parts = batches(len(labels), 32 if binary else 1000)
    # Batches of ten classes count alike in the published code, whatever their size; those of two by their size.
    weights = [(part.stop - part.start) / len(labels) if binary else 1 / len(parts) for part in parts]
    binned = [reliability_bins(confidence[part], outcome[part], bins=10, closed="left", ones="own") for part in parts]
    return list(zip(weights, binned, strict=True))


def calibration_error(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
    *,
    protocol: str = "pooled",
) -> CalibrationError:
    """Expected and maximum calibration error by a protocol.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).
        labels: Classes (N,).
        protocol: One of ``pooled``, ``cgpt``, ``kep``, ``sgpa``; see the table of this module.

    Returns:
        ECE and MCE, averaged over the protocol's batches.

    Example:
        >>> calibration_error([[1000.0, 0.0], [0.0, 1000.0]], [0, 0])
        CalibrationError(ece=0.5, mce=0.5)
    """
    parts = calibration_bins(logits, labels, protocol=protocol)
    ece = sum(weight * expected_calibration_error(bins) for weight, bins in parts)
    mce = sum(weight * maximum_calibration_error(bins) for weight, bins in parts)
    return CalibrationError(float(ece), float(mce))
