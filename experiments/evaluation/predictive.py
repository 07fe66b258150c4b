r"""From logits of several draws to one prediction and its uncertainty.

Logits have shape (S, N, C): S draws, N samples, C classes; (N, C) counts as one draw. Everything is computed in
float64 from log-probabilities, so nothing is clipped: a probability that underflows to 0 contributes 0 to an entropy.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp

from experiments.evaluation._checks import Array, as_logits

__all__ = [
    "Uncertainty",
    "log_probabilities",
    "mean_log_probabilities",
    "mean_logits",
    "mean_probabilities",
    "uncertainty",
]


class Uncertainty(NamedTuple):
    """Uncertainty of each prediction in nats, total = aleatoric + epistemic."""

    total: Array  # (N,)
    aleatoric: Array  # (N,)
    epistemic: Array  # (N,)


def log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (S, N, C)
    r"""Log-probabilities of each draw, :math:`l - \log \sum_c e^{l_c}`.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Log-probabilities (S, N, C), finite wherever the logits are.
    """
    return np.asarray(log_softmax(as_logits(logits), axis=-1))


def mean_log_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    r"""Logarithm of the mean probability, :math:`\log \frac1S \sum_s p_s`, without underflow.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Log-probabilities (N, C) of the prediction that averages probabilities.

    Example:
        >>> mean_log_probabilities([[[2000.0, 0.0]]]).tolist()
        [[0.0, -2000.0]]
    """
    values = log_probabilities(logits)
    return np.asarray(logsumexp(values, axis=0)) - np.log(len(values))


def mean_probabilities(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    r"""Mean probability over the draws, :math:`\bar p = \frac1S \sum_s p_s`.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Probabilities (N, C).

    Example:
        >>> mean_probabilities([[[0.0, 0.0]], [[1000.0, 0.0]]]).tolist()
        [[0.75, 0.25]]
    """
    return np.exp(log_probabilities(logits)).mean(axis=0)


def mean_logits(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Array:  # shape: (N, C)
    """Mean logits over the draws; their softmax is another prediction than the mean probability.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Logits (N, C).
    """
    return as_logits(logits).mean(axis=0)


def uncertainty(
    logits: Any,  # shape: (S, N, C) or (N, C)
) -> Uncertainty:
    r"""Total, aleatoric and epistemic uncertainty of each prediction.

    .. math::
        H[\bar p] = \frac1S \sum_s H[p_s] + \frac1S \sum_s \mathrm{KL}[p_s \,\|\, \bar p]

    The epistemic part is the mutual information between prediction and draw, computed as the mean divergence and not as
    a difference of entropies; rounding below zero is set to zero. With one draw it is zero.

    Args:
        logits: Logits per draw, (S, N, C) or (N, C).

    Returns:
        Three arrays (N,), in nats.

    Example:
        Two draws that are certain of different classes: all uncertainty is epistemic.

        >>> parts = uncertainty([[[1000.0, 0.0]], [[0.0, 1000.0]]])
        >>> [round(float(part[0]), 4) for part in parts]
        [0.6931, 0.0, 0.6931]
    """
    log_p = log_probabilities(logits)
    log_mean = mean_log_probabilities(logits)
    p = np.exp(log_p)
    aleatoric = _entropy(log_p).mean(axis=0)
    epistemic = (p * (log_p - log_mean)).sum(axis=-1).mean(axis=0)
    return Uncertainty(_entropy(log_mean), aleatoric, np.maximum(epistemic, 0))


def _entropy(
    log_p: Array,  # shape: (*batch, C)
) -> Array:  # shape: (*batch,)
    # Log-probabilities of finite logits are finite: exp underflows to 0 and 0 times a finite number is 0.
    return np.maximum(-(np.exp(log_p) * log_p).sum(axis=-1), 0)
