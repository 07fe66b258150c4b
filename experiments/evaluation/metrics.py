r"""Predictions, uncertainties and their scores from logits of several draws.

Logits have shape (S, N, C): S draws, N samples, C classes; (N, C) counts as one draw. Everything is computed in
float64 from log-probabilities, so nothing is clipped: a probability that underflows to 0 contributes 0 to an entropy.
Scores that need only probabilities are those of `cgp.model.metrics`.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp, xlogy
from sklearn.metrics import auc, average_precision_score, matthews_corrcoef, precision_recall_curve, roc_curve

from cgp.model.metrics import aurc, auroc, fpr95
from experiments.evaluation._checks import Array, as_array, as_labels, as_logits

__all__ = [
    "Separation",
    "Uncertainty",
    "excess_aurc",
    "label_log_probabilities",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "separation",
    "uncertainty",
]


class Uncertainty(NamedTuple):
    """Uncertainty of each prediction in nats, total = aleatoric + epistemic."""

    total: Array  # (N,)
    aleatoric: Array  # (N,)
    epistemic: Array  # (N,)


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
    r"""Logarithm of the mean probability, :math:`\log \frac1S \sum_s p_s`, without underflow."""
    values = log_softmax(as_logits(logits), axis=-1)
    return np.asarray(logsumexp(values, axis=0)) - np.log(len(values))


def mean_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    r"""Mean probability over the draws, :math:`\bar p = \frac1S \sum_s p_s`."""
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
    """
    log_p, log_mean = log_softmax(as_logits(logits), axis=-1), mean_log_probabilities(logits)
    epistemic = (np.exp(log_p) * (log_p - log_mean)).sum(axis=-1).mean(axis=0)
    return Uncertainty(_entropy(log_mean), _entropy(log_p).mean(axis=0), np.maximum(epistemic, 0))


def _entropy(
    log_p: Array,  # shape: (*batch, C)
) -> Array:  # shape: (*batch,)
    # Log-probabilities of finite logits are finite: exp underflows to 0 and 0 times a finite number is 0.
    return np.maximum(-(np.exp(log_p) * log_p).sum(axis=-1), 0)


def label_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
) -> Array:  # shape: (N,)
    """Logarithm of the mean probability of each label; log-probabilities are logits, too.

    Taken from log-probabilities, so that a confident error costs what it costs: scikit-learn's ``log_loss`` and
    `cgp.model.metrics.log_losses` clip probabilities.
    """
    log_p = mean_log_probabilities(logits)
    return log_p[np.arange(len(log_p)), as_labels(labels, *log_p.shape)]


def negative_log_likelihood(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Mean negative log-likelihood, :math:`-\frac1N \sum_i \log \bar p_i(y_i)`, in nats."""
    return float(-label_log_probabilities(logits, labels).mean())


def matthews_correlation(
    predictions: Any,  # shape: (N,)
    labels: Any,  # shape: (N,)
    *,
    batch_size: int | None = None,
) -> float:
    """Matthews correlation of predicted and true classes; 0 where either is constant.

    Args:
        predictions: predicted classes (N,).
        labels: classes (N,).
        batch_size: average over consecutive batches of this size, as KEP-SVGP's tables do.
    """
    predictions, labels = as_array(predictions), as_array(labels)
    size = batch_size or len(labels)
    parts = [slice(start, start + size) for start in range(0, len(labels), size)]
    return float(np.mean([matthews_corrcoef(labels[part], predictions[part]) for part in parts]))


def excess_aurc(
    confidence: Any,  # shape: (N,)
    correct: Any,  # shape: (N,)
) -> float:
    r"""E-AURC: AURC minus that of a perfect ranking of equal error rate r, :math:`r + (1 - r) \ln(1 - r)`.

    The subtracted area is the limit of many samples: on few samples a perfect ranking does not give exactly 0
    (Geifman et al. 2019, section 3).
    """
    error = 1 - np.mean(as_array(correct))
    return float(aurc(confidence, correct) - (error + xlogy(1 - error, 1 - error)))


def separation(
    scores: Any,  # shape: (N,)
    positive: Any,  # shape: (N,)
    *,
    rule: Literal["first", "nearest"] = "first",
) -> Separation:
    """Areas under the curves of scores as a detector of positive samples, and FPR95.

    Args:
        scores: larger means more likely positive (N,).
        positive: which samples are positive (N,).
        rule: FPR95 is the false positive rate at the first threshold that finds 95 % of the positives, or ("nearest")
            at the corner of the ROC curve nearest to that, above or below, as KEP-SVGP's tables do.
    """
    scores, positive = as_array(scores, single=True), as_array(positive).astype(bool)
    if positive.all() or not positive.any():
        raise ValueError(f"positive: expected samples of both groups, got {int(positive.sum())} of {len(positive)}")
    groups = scores[~positive], scores[positive]
    return Separation(
        auroc(*groups),
        _trapezoid(scores, positive),
        _trapezoid(-scores, ~positive),
        float(average_precision_score(~positive, -scores)),
        fpr95(*groups) if rule == "first" else _nearest_fpr95(scores, positive),
    )


def _trapezoid(scores: Array, positive: Array) -> float:
    precision, recall, _ = precision_recall_curve(positive, scores)
    return float(auc(recall, precision))


def _nearest_fpr95(scores: Array, positive: Array) -> float:
    # The published rule looks among the corners of the curve only; the standard one at every threshold.
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=True)
    return float(fpr[np.abs(tpr - 0.95).argmin()])
