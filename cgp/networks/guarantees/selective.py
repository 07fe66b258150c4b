"""Abstaining with a guarantee: the share of wrong answers among those that are given, tested on held-out labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

__all__ = ["LEVELS", "labels_needed", "risk_threshold"]

Array = NDArray[Any]

LEVELS = 20
"""Shares of the answers that are tested: 1/20, 2/20, ... and all."""


def risk_threshold(confidence: Array, correct: Array, risk: float, level: float) -> float | None:
    r"""The lowest confidence above which at most a share r of the answers is wrong, with probability at least 1 − δ.

    For each of 20 shares of the n held-out answers, :math:`\lambda` is the order statistic of the confidence that the
    share lies above. Given it, the a answers above are independent draws of those whose confidence exceeds it, and k of
    them are wrong with a binomial distribution. That more than r of them would be is rejected where

    .. math:: P(\mathrm{Bin}(a, r) \le k) \le \delta / 20

    which by Bonferroni's inequality is wrong anywhere with probability at most :math:`\delta` (Learn then Test, with
    Clopper and Pearson's bound). Nothing is assumed of the confidence, nor that errors get fewer as it grows.

    Args:
        confidence: of held-out answers, ``(n,)``, independent draws of what is to come.
        correct: whether they are right, ``(n,)``.
        risk: r, in (0, 1).
        level: 1 − δ, in (0, 1).

    Returns:
        The threshold of the largest share that passes; answers above it are kept. −∞ keeps all, None is none.

    Note:
        Angelopoulos et al., Learn then Test (2021); Geifman & El-Yaniv, Selective Classification for Deep Neural
        Networks (NeurIPS 2017).

    Example:
        >>> risk_threshold(np.linspace(0.5, 1.0, 500), np.ones(500, bool), 0.02, 0.95)
        -inf
    """
    ordered = np.sort(confidence)[::-1]
    for share in range(LEVELS, 0, -1):
        place = len(ordered) * share // LEVELS
        threshold = -math.inf if share == LEVELS else float(ordered[place - 1]) if place else math.inf
        above = confidence > threshold
        if binom.cdf((above & ~correct).sum(), above.sum(), risk) <= (1.0 - level) / LEVELS:
            return threshold
    return None


def labels_needed(risk: float, level: float) -> int:
    r"""Held-out labels below which no answer can be given, were all right: :math:`\log(\delta/20) / \log(1 - r)`.

    Args:
        risk: r.
        level: 1 − δ.

    Returns:
        Their number.

    Example:
        >>> labels_needed(0.02, 0.95)
        297
    """
    return math.ceil(math.log((1.0 - level) / LEVELS) / math.log1p(-risk))
