"""Lower bounds of a gain that hold where errors are not normal: where a few answers are wrong with full confidence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["harm_of_temperatures", "harm_seen", "least_mean", "of_groups"]

Array = NDArray[Any]

CONFIDENT = 30.0
"""Nats that a wrong answer costs which no validation input has shown: a logit of a float32 network that is sure."""

_DRAWS, _SINGLE, _TOGETHER = 4000, 100, 150


def least_mean(values: Array, worst: float, level: float) -> float:
    r"""A lower bound of the mean of a distribution above a known value, by independent draws from it.

    .. math:: \text{the } \delta \text{-quantile of } w_0 x_0 + \textstyle\sum_i w_i x_i, \qquad
        w \sim \operatorname{Dirichlet}(1, \dots, 1)

    with :math:`x_0` the lowest value that is possible. Nothing else is assumed: a value of probability p that N draws
    have not shown has its weight, up to :math:`\log(1/\delta) / N`, at :math:`x_0`. Of zeros and ones it is Clopper
    and Pearson's bound, and where errors are normal Student's.

    Args:
        values: x, ``(N,)``.
        worst: :math:`x_0`.
        level: δ, the probability with which the mean may be below the bound.

    Returns:
        The bound, by 4,000 draws of the weights. Of many values those in the middle are taken together.

    Source:
        Gaffke (2005), Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
        variable; Learned-Miller & Thomas (2019), A new confidence interval for the mean of a bounded random variable.

    Example:
        >>> bound = least_mean(np.ones(100), 0.0, 0.05)
        >>> abs(bound - 0.05 ** (1 / 100)) < 0.005
        True
    """
    ordered = np.sort(values)
    low, high = ordered[:_SINGLE], ordered[_SINGLE:][-_SINGLE:]
    middle = ordered[len(low) : len(ordered) - len(high)]
    parts = [part for part in np.array_split(middle, _TOGETHER) if len(part)]
    places = np.array([min(worst, ordered[0]), *low, *(part.mean() for part in parts), *high])
    sizes = np.array([1, *[1] * len(low), *map(len, parts), *[1] * len(high)], dtype=np.float64)
    weights = np.random.default_rng(0).standard_gamma(sizes, size=(_DRAWS, len(sizes)))
    return float(np.quantile(weights @ places / weights.sum(1), level))


def of_groups(values: Array, groups: Array) -> tuple[Array, float]:
    """Sums of the values of each group, such as the tokens of an input, whose mean is that of all values.

    Args:
        values: ``(N,)``.
        groups: which of G groups each belongs to, from 0.

    Returns:
        The sums over N / G, ``(G,)``, and how many values the largest group has, over N / G.
    """
    sizes = np.bincount(groups)
    scale = len(sizes) / len(values)
    return np.bincount(groups, weights=values) * scale, float(sizes.max() * scale)


def harm_of_temperatures(temperatures: Iterable[float], losses: Array, classes: int) -> float:
    r"""The most that dividing logits by a temperature can add to the loss of an answer.

    .. math:: T \ge 1: \quad (1 - 1/T) \log C, \qquad T < 1: \quad (1/T - 1) \max\{30, \max_i \ell_i\}

    The first is a bound for all logits and labels. There is none for the second, where the loss of a wrong answer grows
    with its confidence: it holds where no answer costs more than 30 nats, or the largest loss among the validation
    labels.

    Args:
        temperatures: T, of several folds.
        losses: ℓ without it, in nats.
        classes: C.

    Returns:
        The most, in nats.

    Example:
        >>> harm_of_temperatures([2.0], np.zeros(3), 10) == 0.5 * math.log(10)
        True
    """
    most = max(CONFIDENT, float(losses.max()))
    return max((1 - 1 / t) * math.log(classes) if t >= 1 else (1 / t - 1) * most for t in temperatures)


def harm_seen(gains: Array) -> float:
    """The most that a method may add to a loss, where nothing bounds it: as much as it ever changes one, at least 1."""
    return max(1.0, float(np.abs(gains).max()))
