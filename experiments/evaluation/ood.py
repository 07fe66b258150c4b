"""Detection of OOD inputs: detectors give scores (larger = more likely OOD), `detection_report` grades them.

Detectors that look at a probability take the mean over the draws; the energy takes mean logits, since of normalised
log-probabilities it is constant.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from experiments.evaluation._checks import Array, as_labels, as_vector
from experiments.evaluation.predictive import mean_log_probabilities, mean_logits, mean_probabilities, uncertainty
from experiments.evaluation.separation import aupr, auroc, false_positive_rate

__all__ = [
    "DETECTORS",
    "DetectionReport",
    "detection_auroc",
    "detection_report",
    "energy",
    "epistemic_uncertainty",
    "kl_matching_nearest",
    "kl_matching_predicted",
    "max_softmax",
    "total_uncertainty",
]


class DetectionReport(NamedTuple):
    """Separation of ood (positive) from familiar inputs."""

    auroc: float
    aupr_in: float  # positive: familiar, by the negated score
    aupr_out: float  # positive: ood
    fpr95: float  # at the first threshold that finds 95 % of the ood


def detection_auroc(
    familiar: Any,  # shape: (N,)
    ood: Any,  # shape: (M,)
) -> float:
    """AUROC of scores; the positive class is ood.

    Args:
        familiar: Scores of inputs like the training data (N,).
        ood: Scores of other inputs (M,), larger if the detector works.

    Returns:
        A number in [0, 1].

    Example:
        >>> detection_auroc([0.1, 0.2], [0.8, 0.15])
        0.75
    """
    return auroc(*_labelled(familiar, ood))


def _labelled(familiar: Any, ood: Any) -> tuple[Array, NDArray[np.bool_]]:
    """All scores, and which of them are those of OOD inputs."""
    familiar, ood = as_vector(familiar, "familiar"), as_vector(ood, "ood")
    scores = np.concatenate([familiar, ood])
    return scores, np.arange(len(scores)) >= len(familiar)


def detection_report(
    familiar: Any,  # shape: (N,)
    ood: Any,  # shape: (M,)
) -> DetectionReport:
    """AUROC, AUPR-IN, AUPR-OUT and FPR95 of scores; the positive class is ood.

    Areas under precision-recall curves are trapezoidal, as in pytorch-ood.

    Args:
        familiar: Scores of inputs like the training data (N,).
        ood: Scores of other inputs (M,), larger if the detector works.

    Returns:
        Four numbers in [0, 1].

    Example:
        >>> detection_report([0.1, 0.2], [0.8, 0.9])
        DetectionReport(auroc=1.0, aupr_in=1.0, aupr_out=1.0, fpr95=0.0)
    """
    scores, positive = _labelled(familiar, ood)
    return DetectionReport(
        auroc=auroc(scores, positive),
        aupr_in=aupr(-scores, ~positive),
        aupr_out=aupr(scores, positive),
        fpr95=false_positive_rate(scores, positive),
    )


def max_softmax(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N,)
    r"""Negative largest mean probability, :math:`-\max_c \bar p_c` (Hendrycks and Gimpel 2017).

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Scores (N,).

    Example:
        >>> max_softmax([[0.0, 0.0]]).tolist()
        [-0.5]
    """
    return -mean_probabilities(logits).max(axis=-1)


def energy(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N,)
    r"""Energy of the mean logits, :math:`-\log \sum_c e^{\bar l_c}` (Liu et al. 2020, eq. 4 at temperature 1).

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Scores (N,).

    Example:
        >>> energy([[0.0, 0.0]]).round(4).tolist()
        [-0.6931]
    """
    return -np.asarray(logsumexp(mean_logits(logits), axis=-1))


def total_uncertainty(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N,)
    r"""Entropy of the mean probability, :math:`H[\bar p]`: the detector called Entropy.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Scores (N,), in nats.
    """
    return uncertainty(logits).total


def epistemic_uncertainty(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N,)
    """Mutual information between prediction and draw; constant, hence blind, with one draw.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Scores (N,), in nats.
    """
    return uncertainty(logits).epistemic


def kl_matching_nearest(
    logits: Any,  # shape: (S, N, C) or (N, C)
    validation_logits: Any,  # shape: (S', M, C) or (M, C)
) -> Array:  # shape: (N,)
    r"""Divergence from the nearest typical prediction, :math:`\min_k \mathrm{KL}[\bar p \,\|\, d_k]`.

    :math:`d_k` is the mean prediction of the validation samples that are *predicted* as k; no labels are used. This is
    the paper's definition, and pytorch-ood's since 0.4.0.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).
        validation_logits: The same for validation samples, (S', M, C) or (M, C).

    Returns:
        Scores (N,).

    Source:
        Hendrycks et al. (2022), Scaling Out-of-Distribution Detection for Real-World Settings, section 4.
    """
    log_p, log_v = _same_classes(logits, validation_logits)
    _, templates = _templates(log_v, log_v.argmax(axis=-1))
    return _divergences(log_p, templates).min(axis=-1)


def kl_matching_predicted(
    logits: Any,  # shape: (S, N, C) or (N, C)
    validation_logits: Any,  # shape: (S', M, C) or (M, C)
    validation_labels: Any,  # shape: (M,)
) -> Array:  # shape: (N,)
    r"""Divergence from the typical prediction of the predicted class, :math:`\mathrm{KL}[\bar p \,\|\, d_{\hat y}]`.

    :math:`\hat y = \arg\max_c \bar p_c`, and :math:`d_k` is the mean prediction of the validation samples *labelled* k.
    This is pytorch-ood's definition before 0.4.0.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).
        validation_logits: The same for validation samples, (S', M, C) or (M, C).
        validation_labels: Their classes (M,).

    Returns:
        Scores (N,).

    Raises:
        ValueError: If a class is predicted that no validation sample is labelled with.
    """
    log_p, log_v = _same_classes(logits, validation_logits)
    samples, num_classes = log_v.shape
    classes, templates = _templates(log_v, as_labels(validation_labels, samples, num_classes, "validation_labels"))
    predicted = log_p.argmax(axis=-1)
    missing = sorted({int(label) for label in predicted} - {int(label) for label in classes})
    if missing:
        raise ValueError(f"validation_labels must hold every predicted class, missing {missing}")
    columns = np.searchsorted(classes, predicted)
    return _divergences(log_p, templates)[np.arange(len(log_p)), columns]


def _same_classes(logits: Any, validation_logits: Any) -> tuple[Array, Array]:
    log_p, log_v = mean_log_probabilities(logits), mean_log_probabilities(validation_logits)
    if log_p.shape[-1] != log_v.shape[-1]:
        raise ValueError(f"validation_logits must have {log_p.shape[-1]} classes like logits, got {log_v.shape[-1]}")
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


DETECTORS: Mapping[str, Callable[[Any], Array]] = MappingProxyType(
    {
        "MaxSoftmax": max_softmax,
        "Entropy": total_uncertainty,
        "Energy": energy,
        "Epistemic": epistemic_uncertainty,
    }
)
"""Detectors that need nothing but logits, by the names of the tables."""
