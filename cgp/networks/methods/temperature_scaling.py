"""Temperature scaling by maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cgp.networks.model.labels import NO_LABEL, check_finite, class_indices

__all__ = [
    "ASKED",
    "LARGEST_TEMPERATURE",
    "SMALLEST_TEMPERATURE",
    "USELESS",
    "fit_temperature",
    "is_useless",
    "minimise_over_temperature",
    "precision_slopes",
    "with_labels",
]

SMALLEST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-4, 1e4
"""Bounds of the temperature, reached if every prediction is right, and if confidence is useless."""

USELESS = (
    "no temperature makes their probabilities better than equal ones: these logits say nothing of the labels that a "
    "temperature could use"
)
ASKED = " (are the labels in the order of the inputs?)"
"""What is said of logits whose likeliest temperature is at its upper bound."""

_FLAT = 1e-10  # nats per label and log T: a slope at which there is nothing to gain


def fit_temperature(logits: Any, labels: Any, *, least: float = SMALLEST_TEMPERATURE) -> float:
    r"""The temperature that minimises the negative log-likelihood of labels; divide logits by it.

    .. math::
        \min_T -\frac1N \sum_i \log \frac1S \sum_s \mathrm{softmax}(l_{si} / T)_{y_i}

    For a single draw the negative log-likelihood is convex in 1 / T, and this is its only minimum. That of averaged
    draws may have several: this is the one downhill from T = 1. One at a smaller T would turn the draws into votes.

    Args:
        logits: ``(S, N, C)`` of S draws, or ``(N, C)``; tensor or array.
        labels: class indices ``(N,)``; −100 is left out.
        least: the smallest temperature allowed.

    Returns:
        T in [``least``, 1e4]; if the likelihood has no optimum, a point where its slope vanishes if all predictions are
        right, or 1e4 if confidence is useless.

    Raises:
        ValueError: if shapes do not fit, labels are no class indices, or logits are not finite.

    Source:
        Guo et al. (2017), On Calibration of Modern Neural Networks, section 4.2.

    Example:
        >>> round(fit_temperature([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [0, 0, 0, 1]), 6)
        0.910239
    """
    values = torch.as_tensor(logits).double()
    values = values[None] if values.dim() == 2 else values
    if values.dim() != 3 or 0 in values.shape:
        raise ValueError(f"logits: expected shape (S, N, C) or (N, C), got {tuple(values.shape)}")
    indices = class_indices(torch.as_tensor(labels, device=values.device), tuple(values.shape[1:]))
    for draw in values:
        check_finite(draw, indices, name="logits")
    values, indices = with_labels(values, indices)
    if not len(indices):
        raise ValueError("labels: expected labels, got none")
    possible = (
        _at(values, indices).amax(0) > -torch.inf
    )  # a label masked in every draw is impossible at any temperature
    values, indices = values[:, possible], indices[possible]

    def slopes(precision: float) -> Tensor:
        return precision_slopes(values, indices, precision) / max(len(indices), 1)

    return minimise_over_temperature(slopes, max(1.0, least), least, LARGEST_TEMPERATURE)


def is_useless(temperature: float) -> bool:
    """Whether the likeliest temperature leaves nothing of the logits: it is at its upper bound."""
    return temperature > 0.99 * LARGEST_TEMPERATURE


def minimise_over_temperature(
    slopes: Callable[[float], Tensor], start: float, least: float, most: float, *, tolerance: float = 1e-10
) -> float:
    """Newton's method for 1 / T, bracketed by the signs of the previous slopes, the first two derivatives of a loss."""
    at, low, high = 1.0 / start, 1.0 / most, 1.0 / least
    for _ in range(200):
        first, second = slopes(at).tolist()
        low, high = (low, at) if first > 0 else (at, high)
        newton = at - first / second if second > 0 else -math.copysign(math.inf, first)
        proposed = min(max(newton, at / 2.0), at * 2.0)  # not beyond the nearest minimum
        proposed = proposed if low < proposed < high else math.sqrt(low * high)
        if abs(first) * at < _FLAT or abs(proposed / at - 1.0) < tolerance:
            break
        at = proposed
    return 1.0 / at


def precision_slopes(logits: Tensor, labels: Tensor, precision: float) -> Tensor:
    r"""The first two derivatives of the negative log-likelihood by :math:`\beta = 1 / T`, summed over labels.

    .. math:: \partial_\beta \log p_{sy} = l_y - E_p[l], \qquad \partial_\beta^2 \log p_{sy} = -\operatorname{Var}_p[l]

    for one draw. Those of the logarithm of the average are theirs with weights :math:`w_s \propto p_{sy}`, and the
    second one has the variance of the first over the draws besides.

    Args:
        logits: l, ``(S, N, C)``; −∞ is a class that is masked. A label that every draw masks has no slope.
        labels: ``(N,)``, each a class.
        precision: β.

    Returns:
        Both, ``(2,)``.
    """
    log_p = (logits * precision).log_softmax(-1)
    p, finite = log_p.exp(), logits.masked_fill(logits.isneginf(), 0.0)
    mean = (p * finite).sum(-1, keepdim=True)
    variance = (p * (finite - mean).square()).sum(-1)
    first = _at(finite, labels) - mean[..., 0]
    weights = _at(log_p, labels).softmax(0).nan_to_num()
    average = (weights * first).sum(0)
    second = (weights * ((first - average).square() - variance)).sum(0)
    return -torch.stack([average.sum(), second.sum()])


def with_labels(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``(S, N, C)`` and labels ``(N,)`` of labelled examples, from ``(S, ..., C)`` and ``(...)``."""
    real = labels.flatten() != NO_LABEL
    return logits.flatten(1, -2)[:, real], labels.flatten()[real]


def _at(values: Tensor, labels: Tensor) -> Tensor:
    """Values ``(S, N, C)`` of the labels' classes, ``(S, N)``."""
    return values.gather(-1, labels.expand(values.shape[:-1])[..., None])[..., 0]
