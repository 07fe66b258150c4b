r"""Predictions, uncertainties and their scores from logits of several draws.

Logits have shape (S, N, C): S draws, N samples, C classes; (N, C) counts as one draw. Everything is computed in
float64 from log-probabilities, so nothing is clipped: a probability that underflows to 0 contributes 0 to an entropy.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp, xlogy
from sklearn.metrics import (
    auc,
    average_precision_score,
    matthews_corrcoef,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from experiments.evaluation._checks import Array, as_array, as_labels, as_logits, as_mask, as_rows, as_vector

__all__ = [
    "RiskCoverage",
    "Separation",
    "Uncertainty",
    "accuracy",
    "area_under_risk_coverage",
    "brier_score",
    "excess_area_under_risk_coverage",
    "false_positive_rate",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "risk_coverage_curve",
    "separation",
    "uncertainty",
]


class Uncertainty(NamedTuple):
    """Uncertainty of each prediction in nats, total = aleatoric + epistemic."""

    total: Array  # (N,)
    aleatoric: Array  # (N,)
    epistemic: Array  # (N,)


class RiskCoverage(NamedTuple):
    """Error rate among the most confident fraction of the samples."""

    coverage: Array  # (N,) 1/N, 2/N, ..., 1
    risk: Array  # (N,)


class Separation(NamedTuple):
    """How well scores separate positive from negative samples, each in [0, 1]."""

    auroc: float
    aupr: float  # trapezoidal, as pytorch-ood and KEP-SVGP's "AUPR success"
    aupr_negative: float  # the same with the negatives as the positive class, by the negated score
    average_precision_negative: float  # step-wise area, KEP-SVGP's "AUPR error"
    fpr95: float


def mean_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    r"""Logarithm of the mean probability, :math:`\log \frac1S \sum_s p_s`, without underflow.

    Example:
        >>> mean_log_probabilities([[[2000.0, 0.0]]]).tolist()
        [[0.0, -2000.0]]
    """
    values = log_softmax(as_logits(logits), axis=-1)
    return np.asarray(logsumexp(values, axis=0)) - np.log(len(values))


def mean_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    r"""Mean probability over the draws, :math:`\bar p = \frac1S \sum_s p_s`.

    Example:
        >>> mean_probabilities([[[0.0, 0.0]], [[1000.0, 0.0]]]).tolist()
        [[0.75, 0.25]]
    """
    return np.exp(log_softmax(as_logits(logits), axis=-1)).mean(axis=0)


def mean_logits(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    """Mean logits over the draws; their softmax is another prediction than the mean probability."""
    return as_logits(logits).mean(axis=0)


def uncertainty(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Uncertainty:
    r"""Total, aleatoric and epistemic uncertainty of each prediction.

    .. math::
        H[\bar p] = \frac1S \sum_s H[p_s] + \frac1S \sum_s \mathrm{KL}[p_s \,\|\, \bar p]

    The epistemic part is the mutual information between prediction and draw, computed as the mean divergence and not as
    a difference of entropies; rounding below zero is set to zero. With one draw it is zero.

    Example:
        Two draws that are certain of different classes: all uncertainty is epistemic.

        >>> parts = uncertainty([[[1000.0, 0.0]], [[0.0, 1000.0]]])
        >>> [round(float(part[0]), 4) for part in parts]
        [0.6931, 0.0, 0.6931]
    """
    log_p, log_mean = log_softmax(as_logits(logits), axis=-1), mean_log_probabilities(logits)
    epistemic = (np.exp(log_p) * (log_p - log_mean)).sum(axis=-1).mean(axis=0)
    return Uncertainty(_entropy(log_mean), _entropy(log_p).mean(axis=0), np.maximum(epistemic, 0))


def _entropy(
    log_p: Array,  # shape: (*batch, C)
) -> Array:  # shape: (*batch,)
    # Log-probabilities of finite logits are finite: exp underflows to 0 and 0 times a finite number is 0.
    return np.maximum(-(np.exp(log_p) * log_p).sum(axis=-1), 0)


def accuracy(
    scores: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    """Fraction of samples whose largest score is that of their label; the first of equal scores counts.

    Example:
        >>> accuracy([[0.9, 0.1], [0.3, 0.7]], [0, 0])
        0.5
    """
    scores = as_rows(scores, "scores")
    return float((scores.argmax(axis=-1) == as_labels(labels, *scores.shape)).mean())


def negative_log_likelihood(
    log_probabilities: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Mean negative log-likelihood, :math:`-\frac1N \sum_i \log p_i(y_i)`, in nats.

    Takes logarithms, so that a confident error costs what it costs: scikit-learn's ``log_loss`` clips probabilities.

    Example:
        >>> round(negative_log_likelihood(np.log([[0.5, 0.5], [0.25, 0.75]]), [0, 1]), 4)
        0.4904
    """
    log_p = as_rows(log_probabilities, "log_probabilities")
    as_rows(np.exp(np.minimum(log_p, 1.0)), "exp(log_probabilities)", sum_to_one=True)
    return float(-log_p[np.arange(len(log_p)), as_labels(labels, *log_p.shape)].mean())


def brier_score(
    probabilities: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Brier score summed over classes, :math:`\frac1N \sum_i \sum_c (p_{ic} - [y_i = c])^2`, in [0, 2].

    Example:
        >>> round(brier_score([[0.8, 0.2]], [0]), 4)
        0.08
    """
    probabilities = as_rows(probabilities, "probabilities", sum_to_one=True)
    target = np.eye(probabilities.shape[-1])[as_labels(labels, *probabilities.shape)]
    return float(((probabilities - target) ** 2).sum(axis=-1).mean())


def matthews_correlation(
    predictions: Any,  # shape: (N,)
    labels: Any,  # shape: (N,)
    *,
    batch_size: int | None = None,
) -> float:
    """Matthews correlation of predicted and true classes; 0 where either is constant.

    Args:
        predictions: Predicted classes (N,).
        labels: Classes (N,).
        batch_size: Average over consecutive batches of this size, as KEP-SVGP's tables do.

    Example:
        >>> matthews_correlation([1, 1, 1, 1], [1, 1, 0, 1])
        0.0
    """
    array = as_array(labels)
    classes = int(max(array.max(initial=0), as_array(predictions).max(initial=0))) + 1
    labels = as_labels(labels, array.size, classes)
    predictions = as_labels(predictions, array.size, classes, "predictions")
    starts = range(0, len(labels), batch_size or len(labels))
    parts = [slice(start, start + (batch_size or len(labels))) for start in starts]
    return float(np.mean([matthews_corrcoef(labels[part], predictions[part]) for part in parts]))


def risk_coverage_curve(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
) -> RiskCoverage:
    r"""Selective risk at every coverage, :math:`r_k = \frac1k \sum_{i \le k} [\hat y_{(i)} \ne y_{(i)}]`.

    Samples are taken most confident first; samples of equal confidence keep their order (stable sort).

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
    r"""AURC: the mean selective risk over all coverages, :math:`\frac1N \sum_k r_k` (Geifman et al. 2019, eq. 3).

    torch-uncertainty's is the trapezoidal area over [1/N, 1], rescaled: half weights at both ends.

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

    The subtracted area is the limit of many samples: on few samples a perfect ranking does not give exactly 0
    (Geifman et al. 2019, section 3).
    """
    risk = risk_coverage_curve(confidence, correct).risk
    error = risk[-1]
    return float(risk.mean() - (error + xlogy(1 - error, 1 - error)))


def separation(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
    *,
    rule: Literal["first", "nearest"] = "first",
) -> Separation:
    """Areas under the curves of scores as a detector of positive samples, and FPR95.

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).
        rule: Threshold of FPR95, see `false_positive_rate`.

    Raises:
        ValueError: If one group is empty.

    Example:
        >>> separation([0.1, 0.4, 0.35, 0.8], [False, False, True, True]).auroc
        0.75
    """
    scores, positive = _groups(scores, positive)
    return Separation(
        float(roc_auc_score(positive, scores)),
        _trapezoid(scores, positive),
        _trapezoid(-scores, ~positive),
        float(average_precision_score(~positive, -scores)),
        false_positive_rate(scores, positive, rule=rule),
    )


def false_positive_rate(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
    *,
    level: float = 0.95,
    rule: Literal["first", "nearest"] = "first",
) -> float:
    """False positive rate where the true positive rate reaches a level (FPR95).

    Args:
        scores: Larger means more likely positive (N,).
        positive: Which samples are positive (N,).
        level: True positive rate in (0, 1].
        rule: ``"first"``: the first threshold that reaches the level. ``"nearest"``: the corner of the ROC curve
            nearest to it, above or below, as KEP-SVGP's tables do.

    Raises:
        ValueError: If the level or the rule is not one of these, or one group is empty.

    Example:
        >>> false_positive_rate([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
        0.5
    """
    scores, positive = _groups(scores, positive)
    if rule not in ("first", "nearest"):
        raise ValueError(f"rule must be 'first' or 'nearest', got {rule!r}")
    if not 0 < level <= 1:
        raise ValueError(f"level must lie in (0, 1], got {level}")
    # The published rule looks among the corners of the curve only; the standard one at every threshold.
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=rule == "nearest")
    index = np.abs(tpr - level).argmin() if rule == "nearest" else np.flatnonzero(tpr >= level)[0]
    return float(fpr[index])


def _trapezoid(scores: Array, positive: NDArray[np.bool_]) -> float:
    precision, recall, _ = precision_recall_curve(positive, scores)
    return float(auc(recall, precision))


def _groups(scores: Any, positive: Any) -> tuple[Array, NDArray[np.bool_]]:
    scores = as_vector(scores, "scores")
    positive = as_mask(positive, len(scores), "positive")
    if positive.all() or not positive.any():
        raise ValueError(f"positive must name samples of both groups, got {int(positive.sum())} of {len(positive)}")
    return scores, positive
