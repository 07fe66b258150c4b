"""Detection of out-of-distribution (OOD) inputs: detectors give scores, larger = more likely OOD.

Detectors based on probabilities use the mean over the draws; the energy uses mean logits, since it is constant for
normalised log-probabilities. The two KLMatchings are the published definitions: ``nearest`` is the paper's, and
pytorch-ood's since 0.4.0; ``predicted`` is pytorch-ood's before.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.metrics import auc, precision_recall_curve

from cgp.networks.tasks.metrics import auroc, fpr95
from experiments.evaluation.metrics import (
    Array,
    as_array,
    as_labels,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    uncertainty,
)
from experiments.evaluation.protocols import rules

__all__ = ["DETECTORS", "DetectionReport", "detect", "detection_report", "detector_scores", "separations"]


class DetectionReport(NamedTuple):
    """Separation of OOD (positive) from in-distribution inputs."""

    auroc: float
    aupr_in: float  # positive: in distribution, by the negated score
    aupr_out: float  # positive: OOD
    fpr95: float  # at the first threshold that finds 95 % of the OOD inputs


def detection_report(
    test: Any,  # shape: (N,)
    ood: Any,  # shape: (M,)
) -> DetectionReport:
    """AUROC, AUPR-IN, AUPR-OUT (trapezoidal, as in pytorch-ood) and FPR95 of scores."""
    groups = [as_array(scores, single=True) for scores in (test, ood)]
    scores, outside = np.concatenate(groups), np.repeat([False, True], [len(group) for group in groups])
    return DetectionReport(auroc(*groups), _aupr(-scores, ~outside), _aupr(scores, outside), fpr95(*groups))


def _aupr(scores: Array, positive: Array) -> float:
    precision, recall, _ = precision_recall_curve(positive, scores)
    return float(auc(recall, precision))


def _nearest(logits: Any, validation: tuple[Any, Any]) -> Array:
    r""":math:`\min_k \mathrm{KL}[\bar p \,\|\, d_k]`, d_k the mean of the validation predictions that predict k."""
    log_p, log_v = _same_classes(logits, validation[0])
    return _divergences(log_p, _templates(log_v, log_v.argmax(axis=-1))[1]).min(axis=-1)


def _predicted(logits: Any, validation: tuple[Any, Any]) -> Array:
    r""":math:`\mathrm{KL}[\bar p \,\|\, d_{\hat y}]`, d_k the mean of the validation predictions labelled k.

    NaN if no validation sample has the predicted class as its label.
    """
    log_p, log_v = _same_classes(logits, validation[0])
    known, templates = _templates(log_v, as_labels(validation[1], *log_v.shape))
    predicted = log_p.argmax(axis=-1)
    place = np.searchsorted(known, predicted).clip(max=len(known) - 1)
    scores = _divergences(log_p, templates)[np.arange(len(log_p)), place]
    return np.where(known[place] == predicted, scores, np.nan)


def _same_classes(logits: Any, validation: Any) -> tuple[Array, Array]:
    log_p, log_v = mean_log_probabilities(logits), mean_log_probabilities(validation)
    if log_p.shape[-1] != log_v.shape[-1]:
        raise ValueError(f"validation: expected {log_p.shape[-1]} classes like logits, got {log_v.shape[-1]}")
    return log_p, log_v


def _templates(
    log_p: Array,  # shape: (M, C)
    groups: Array,  # shape: (M,)
) -> tuple[Array, Array]:  # shapes: (K,), (K, C)
    """Groups that occur, ascending, and the logarithm of their mean prediction, which stays finite."""
    classes = np.unique(groups)
    means = [logsumexp(log_p[groups == k], axis=0) - np.log((groups == k).sum()) for k in classes]
    return classes, np.stack(means)


def _divergences(
    log_p: Array,  # shape: (N, C)
    log_d: Array,  # shape: (K, C)
) -> Array:  # shape: (N, K)
    p = np.exp(log_p)
    return (p * log_p).sum(axis=-1, keepdims=True) - p @ log_d.T


DETECTORS: Mapping[str, Callable[[Any, tuple[Any, Any]], Array]] = MappingProxyType(
    {
        "MaxSoftmax": lambda logits, _: -mean_probabilities(logits).max(axis=-1),
        "Entropy": lambda logits, _: uncertainty(logits).total,
        "Energy": lambda logits, _: -np.asarray(logsumexp(mean_logits(logits), axis=-1)),
        "Epistemic": lambda logits, _: uncertainty(logits).epistemic,
        "KLMatching-nearest": _nearest,
        "KLMatching-predicted": _predicted,
    }
)
"""Scores (N,) of logits (S, N, C), by the names of the tables; the KLMatchings need validation logits and labels."""


def detector_scores(
    detector: str,
    logits: Any,  # shape: (S, N, C) or (N, C)
    *,
    validation: tuple[Any, Any] | None = None,  # shapes: (S', M, C), (M,)
    protocol: str = "pooled",
) -> Array:  # shape: (N,)
    """Scores of a detector; NaN where it is undefined, for a class without validation samples.

    Both KLMatchings need validation logits and labels. The protocol ``kep`` averages logits over the draws first.
    """
    if detector not in DETECTORS:
        raise ValueError(f"detector: expected one of {', '.join(DETECTORS)}, got {detector!r}")
    if validation is None and detector.startswith("KLMatching"):
        raise ValueError(f"validation: expected logits and labels for {detector}, got None")
    # A protocol of mean logits leaves one draw.
    reduce = mean_logits if rules(protocol).average == "logits" else lambda values: values
    seen = (None, None) if validation is None else (reduce(validation[0]), validation[1])
    return DETECTORS[detector](reduce(logits), seen)


def detect(
    detector: str,
    test: Any,  # shape: (S, N, C) or (N, C)
    ood: Sequence[Any],  # shapes: (S, M, C) or (M, C)
    *,
    validation: tuple[Any, Any] | None = None,  # shapes: (S', K, C), (K,)
    protocol: str = "pooled",
) -> list[DetectionReport]:
    """Separation of each set of OOD inputs from the test inputs by a detector; NaN if an input has no score.

    Scores are compared in the precision of the protocol.
    """
    scores = [detector_scores(detector, part, validation=validation, protocol=protocol) for part in (test, *ood)]
    return separations(scores, protocol)


def separations(
    scores: Sequence[Array],  # shapes: (N,), (M,) of each set
    protocol: str = "pooled",
) -> list[DetectionReport]:
    """Separation of each set of OOD inputs from the test inputs, whose scores come first, as :func:`detect` has it."""
    known, *others = (values.astype(rules(protocol).dtype) for values in scores)
    undefined = DetectionReport(*[np.nan] * len(DetectionReport._fields))
    return [
        undefined if np.isnan(known).any() or np.isnan(other).any() else detection_report(known, other)
        for other in others
    ]
