r"""Predictions, uncertainties and their scores from logits of several draws.

Logits have shape (S, N, C): S draws, N samples, C classes; (N, C) counts as one draw. Everything is computed in
float64 from log-probabilities, so nothing is clipped: a probability that underflows to 0 contributes 0 to an entropy.
Scores that need only probabilities are those of `cgp.networks.tasks.metrics`.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from cgp.networks.tasks.metrics import uncertainties

__all__ = [
    "Array",
    "Uncertainty",
    "as_array",
    "as_labels",
    "as_logits",
    "label_log_probabilities",
    "matthews_correlation",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "negative_log_likelihood",
    "uncertainty",
]

Array = NDArray[Any]


class Uncertainty(NamedTuple):
    """Uncertainty of each prediction in nats, total = aleatoric + epistemic."""

    total: Array  # (N,)
    aleatoric: Array  # (N,)
    epistemic: Array  # (N,)


def as_array(values: Any, *, single: bool = False) -> Array:
    """Convert tensors, arrays or lists to float64 arrays; with `single`, float32 is kept."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values if values.dtype == torch.float32 else values.double()).numpy()
    array = np.asarray(values)
    return array if single and array.dtype == np.float32 else array.astype(np.float64)


def as_logits(logits: Any) -> Array:  # shape: (S, N, C)
    """Logits of S draws; two axes mean one draw."""
    array = as_array(logits)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape or array.shape[-1] < 2:
        raise ValueError(
            "logits: expected shape (draws, samples, classes) or (samples, classes) with at least one draw, one sample "
            f"and two classes, got {tuple(np.shape(logits))}"
        )
    bad = array.size - int(np.isfinite(array).sum())
    if bad:
        raise ValueError(f"logits: expected finite values, got {bad} of {array.size} that are NaN or infinite")
    return array


def as_labels(labels: Any, samples: int, classes: int) -> NDArray[np.int64]:  # shape: (N,)
    """Integer classes in [0, classes)."""
    array = as_array(labels)
    if array.shape != (samples,):
        raise ValueError(f"labels: expected shape ({samples},), got {array.shape}")
    if not np.isin(array, np.arange(classes)).all():
        raise ValueError(f"labels: expected integers in [0, {classes}), got values in [{array.min()}, {array.max()}]")
    return array.astype(np.int64)


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
    """Mean logits over the draws; their softmax differs from the mean probability."""
    return as_logits(logits).mean(axis=0)


def uncertainty(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Uncertainty:
    r"""Total, aleatoric and epistemic uncertainty of each prediction.

    .. math::
        H[\bar p] = \frac1S \sum_s H[p_s] + \frac1S \sum_s \mathrm{KL}[p_s \,\|\, \bar p]

    The epistemic part is the mutual information between prediction and draw; rounding below zero is set to zero. With
    one draw it is zero. The formula is that of `cgp.predict`.
    """
    p = torch.from_numpy(np.exp(log_softmax(as_logits(logits), axis=-1)))
    return Uncertainty(*(part.numpy() for part in uncertainties(p)))


def label_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
    labels: Any,  # shape: (N,)
) -> Array:  # shape: (N,)
    """Logarithm of the mean probability of each label; log-probabilities are logits, too.

    Computed from log-probabilities, so that confident errors are not clipped: scikit-learn's ``log_loss`` and
    `cgp.networks.tasks.metrics.log_losses` clip probabilities.
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
    """Matthews correlation of classes, 0 if either is constant; with batches their mean, as in KEP-SVGP's tables."""
    predictions, labels = as_array(predictions).astype(int), as_array(labels).astype(int)
    size = batch_size or len(labels)
    parts = [slice(start, start + size) for start in range(0, len(labels), size)]
    return float(np.mean([_correlation(predictions[part], labels[part]) for part in parts]))


def _correlation(predictions: Array, labels: Array) -> float:
    """Gorodkin's correlation from counts; scikit-learn's takes milliseconds for each of the papers' small batches."""
    count, classes = len(labels), max(predictions.max(), labels.max()) + 1
    predicted, true = (np.bincount(values, minlength=classes) for values in (predictions, labels))
    scale = np.sqrt(float(count**2 - predicted @ predicted) * float(count**2 - true @ true))
    return float(count * (predictions == labels).sum() - predicted @ true) / scale if scale else 0.0
