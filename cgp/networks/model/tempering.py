"""Probabilities of logits with a temperature, and the most that it can cost."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["KEPT", "harm_of_temperatures", "log_probabilities", "probabilities"]

KEPT = 0.01
"""Share of the probabilities without a temperature that one below 1 keeps."""


def probabilities(logits: Tensor, temperature: float = 1.0, *, binary: bool = False) -> Tensor:
    r"""The probabilities of logits with a temperature, which bounds what it may add to the loss of any label.

    .. math:: p = \operatorname{softmax}(f / T), \quad T \ge 1; \qquad
        p = (1 - \varepsilon) \operatorname{softmax}(f / T) + \varepsilon \operatorname{softmax}(f), \quad T < 1

    with ε = .01. A temperature below 1 by itself adds (1/T − 1) times the logits' difference to the loss of a label
    that is sure and wrong, without a bound; this adds at most :math:`\log 1/\varepsilon`, 4.6 nats.

    Args:
        logits: f, ``(..., C)``.
        temperature: T.
        binary: whether each logit is one of a label that is there or not, with a sigmoid for the softmax.

    Returns:
        ``(..., C)``.

    Example:
        >>> sure = probabilities(torch.tensor([8.0, 0.0]), 0.5)
        >>> round(float(sure[1] / torch.tensor([8.0, 0.0]).softmax(-1)[1]), 3)
        0.01
    """
    sharp = logits if temperature == 1.0 else logits / temperature
    p = sharp.sigmoid() if binary else sharp.softmax(-1)
    if temperature >= 1.0:
        return p
    return p.lerp(probabilities(logits, binary=binary), KEPT)


def log_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Logarithms of :func:`probabilities` of classes, ``(..., C)``, without underflow."""
    sharp = (logits / temperature).log_softmax(-1)
    if temperature >= 1.0:
        return sharp
    return torch.logaddexp(sharp + math.log1p(-KEPT), logits.log_softmax(-1) + math.log(KEPT))


def harm_of_temperatures(temperatures: Iterable[float], classes: int) -> float:
    r"""The most that a temperature can add to the loss of an answer, whatever the logits and the label.

    .. math:: T \ge 1: \quad (1 - 1/T) \log C, \qquad T < 1: \quad \log 1/\varepsilon

    Args:
        temperatures: T, of several folds.
        classes: C.

    Returns:
        The most of any, in nats.

    Example:
        >>> harm_of_temperatures([2.0], 10) == 0.5 * math.log(10)
        True
    """
    return max((1 - 1 / t) * math.log(classes) if t >= 1 else -math.log(KEPT) for t in temperatures)
