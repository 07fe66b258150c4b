"""Scores of one prediction a sample: accuracy, log-likelihood, Brier score, Matthews correlation."""

from typing import Any

import numpy as np
from sklearn.metrics import matthews_corrcoef

from experiments.evaluation._checks import as_array, as_labels, as_probabilities, as_scores
from experiments.evaluation.protocols import batches

__all__ = ["accuracy", "brier_score", "matthews_correlation", "negative_log_likelihood"]


def accuracy(
    scores: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    """Fraction of samples whose largest score is that of their label; the first of equal scores counts.

    Args:
        scores: Probabilities, log-probabilities or logits (N, C).
        labels: Classes (N,).

    Returns:
        A number in [0, 1].

    Example:
        >>> accuracy([[0.9, 0.1], [0.3, 0.7]], [0, 0])
        0.5
    """
    scores = as_scores(scores, "scores")
    return float((scores.argmax(axis=-1) == as_labels(labels, *scores.shape)).mean())


def negative_log_likelihood(
    log_probabilities: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Mean negative log-likelihood, :math:`-\frac1N \sum_i \log p_i(y_i)`, in nats.

    Args:
        log_probabilities: Normalised log-probabilities (N, C). Logarithms, so that a confident error costs what it
            costs and not infinity.
        labels: Classes (N,).

    Returns:
        A number >= 0.

    Example:
        >>> round(negative_log_likelihood(np.log([[0.5, 0.5], [0.25, 0.75]]), [0, 1]), 4)
        0.4904
    """
    log_p = as_scores(log_probabilities, "log_probabilities")
    as_probabilities(np.exp(np.minimum(log_p, 1.0)), "exp(log_probabilities)")
    return float(-log_p[np.arange(len(log_p)), as_labels(labels, *log_p.shape)].mean())


def brier_score(
    probabilities: Any,  # shape: (N, C)
    labels: Any,  # shape: (N,)
) -> float:
    r"""Brier score summed over classes, :math:`\frac1N \sum_i \sum_c (p_{ic} - [y_i = c])^2`.

    Args:
        probabilities: Probabilities (N, C).
        labels: Classes (N,).

    Returns:
        A number in [0, 2]; for two classes twice the binary Brier score.

    Example:
        >>> round(brier_score([[0.8, 0.2]], [0]), 4)
        0.08
    """
    probabilities = as_probabilities(probabilities)
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
        batch_size: Average over consecutive batches of this size, as KEP-SVGP's tables do. ``None`` takes
            the whole set.

    Returns:
        A number in [-1, 1].

    Example:
        >>> matthews_correlation([1, 1, 1, 1], [1, 1, 0, 1])
        0.0
    """
    array = as_array(labels)
    classes = int(max(array.max(initial=0), as_array(predictions).max(initial=0))) + 1
    labels = as_labels(labels, array.size, classes)
    predictions = as_labels(predictions, array.size, classes, "predictions")
    parts = batches(len(labels), batch_size or len(labels))
    return float(np.mean([matthews_corrcoef(labels[part], predictions[part]) for part in parts]))
