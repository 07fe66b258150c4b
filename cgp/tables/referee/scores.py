"""Scores of hidden blocks, with the block as unit, their paired differences, and the spread of errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp.comparisons import Difference
from cgp.tables.frames.gaps import length_bin
from cgp.tables.transforms.columns import ValueScores

__all__ = ["SCORES", "BlockScores", "Residuals", "Spread", "Strata", "mean_over_blocks"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_FEW = 5  # blocks whose own variance is not trusted if it is the smaller one
_WEIGHT = 3.0  # blocks that the variance of all columns counts for in that of each
_LEAST = 1e-4  # of the column's standard deviation

SCORES = ("nll", "crps", "squared_error", "coverage")


class BlockScores(NamedTuple):
    """Means over the values of each block, in units of the columns' standard deviations.

    Attributes:
        nll: negative log predictive density in nats, ``(B,)``.
        crps: continuous ranked probability score, ``(B,)``.
        squared_error: ``(B,)``.
        coverage: share of the values in their 95 % interval, ``(B,)``.
    """

    nll: Array
    crps: Array
    squared_error: Array
    coverage: Array

    @classmethod
    def of(cls, errors: Array, values: ValueScores, blocks: Integers, count: int) -> BlockScores:
        """Scores of values by block.

        Args:
            errors: ``(m,)``, in units of the columns' standard deviations.
            values: scores of the values, ``(m,)`` each.
            blocks: the number of the block of each, ``(m,)``.
            count: B.

        Returns:
            The scores of every block.

        Example:
            >>> error = np.array([0.0])
            >>> scores = BlockScores.of(error, ValueScores.of(error, np.array([1.0])), np.array([0]), 1)
            >>> float(scores.nll[0]).__round__(3), float(scores.crps[0]).__round__(3)
            (0.919, 0.234)
        """
        scores = (values.nll, values.crps, errors**2, np.abs(values.errors) <= norm.isf(0.025))
        sizes = np.bincount(blocks, minlength=count)
        return cls(*(np.bincount(blocks, score, count) / sizes for score in scores))


class Strata(NamedTuple):
    """Blocks by class of gap, with the weight of each class.

    Attributes:
        labels: the class of every block, ``(B,)``.
        weights: of the classes, by name, in their order; they sum to one.
    """

    labels: NDArray[np.str_]
    weights: Mapping[str, float]

    @classmethod
    def of(cls, labels: Sequence[str], order: Sequence[str], sizes: Mapping[str, float]) -> Strata:
        """Classes with blocks, weighed by the missing values in each and in those after it that have none."""
        weights = {label: 0.0 for label in order if label in labels}
        names = list(weights)
        for position, label in enumerate(order):
            before = [name for name in order[: position + 1] if name in weights]
            weights[before[-1] if before else names[0]] += sizes.get(label, 0.0)
        total = sum(weights.values())
        return cls(np.array(labels), {name: w / total if total else 1 / len(weights) for name, w in weights.items()})

    @property
    def num_blocks(self) -> int:
        """Blocks of these classes."""
        return int(np.isin(self.labels, list(self.weights)).sum())

    def only(self, label: str) -> Strata:
        """One class by itself."""
        return Strata(self.labels, {label: 1.0})

    def mean(self, values: Array) -> float:
        """The mean ``Σ w_k mean_k`` of values of the blocks ``(B,)``."""
        return sum(weight * float(values[self.labels == name].mean()) for name, weight in self.weights.items())

    def difference(self, values: Array) -> tuple[Difference, float]:
        r"""The mean of paired differences of the blocks, its standard error, and the error's degrees of freedom.

        .. math:: \sum_k w_k \bar d_k \pm \Big(\sum_k w_k^2 s_k^2 / n_k\Big)^{1/2}

        A class with one block has the variance of all classes about their means, one with few at least that.

        Args:
            values: ``(B,)``.

        Returns:
            The difference, and Satterthwaite's degrees of freedom; the error is infinite where no class has two blocks.
        """
        parts = [values[self.labels == name] for name in self.weights]
        spare = sum(len(part) - 1 for part in parts)
        if spare == 0:
            return Difference(self.mean(values), math.inf), 1.0
        pooled = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts) / spare
        pairs = [_variance(part, pooled, spare) for part in parts]
        terms = [
            (weight**2 * variance / len(part), degrees)
            for weight, part, (variance, degrees) in zip(self.weights.values(), parts, pairs, strict=True)
        ]
        total = sum(term for term, _ in terms)
        below = sum(term**2 / degrees for term, degrees in terms)
        degrees = min(total**2 / below, float(spare)) if below > 0 else float(spare)
        return Difference(self.mean(values), math.sqrt(total)), degrees


def _variance(values: Array, pooled: float, spare: int) -> tuple[float, int]:
    """The variance of a class of blocks, and its degrees of freedom: that of few may be next to nothing by chance."""
    if len(values) == 1:
        return pooled, spare
    own = float(values.var(ddof=1))
    return (own if len(values) >= _FEW else max(own, pooled)), len(values) - 1


class Residuals(NamedTuple):
    """Errors of hidden values.

    Attributes:
        errors: in units of the column's standard deviation, ``(m,)``.
        columns: of each, ``(m,)``.
        distances: rows to the nearest value that was not hidden, ``(m,)``.
        blocks: the number of the block of each, ``(m,)``.
    """

    errors: Array
    columns: Integers
    distances: Integers
    blocks: Integers

    def of_blocks(self, chosen: NDArray[np.bool_]) -> Residuals:
        """The residuals of some blocks, ``(B,)``."""
        values = chosen[self.blocks]
        return Residuals(self.errors[values], self.columns[values], self.distances[values], self.blocks[values])


class Spread(NamedTuple):
    r"""Standard deviations of errors by class of distance and by column.

    .. math:: s_{kp}^2 = \frac{b_{kp} \hat s_{kp}^2 + 3 \hat s_k^2}{b_{kp} + 3}

    with the mean squares of class k in column p, over its b blocks, and in all columns.

    Attributes:
        sd: in units of the column's standard deviation, ``(classes, P)``.
    """

    sd: Array

    @classmethod
    def of(cls, residuals: Residuals, num_columns: int) -> Self:
        """The spread of residuals in P columns; a class without any has that of the next class below, or above."""
        bins = length_bin(residuals.distances)
        squares = residuals.errors**2
        variance = np.full((bins.max() + 1, num_columns), np.nan)
        for number in np.unique(bins):
            chosen = bins == number
            common = _mean_of_blocks(squares[chosen], residuals.blocks[chosen])[0]
            for column in range(num_columns):
                inside = chosen & (residuals.columns == column)
                mean, count = _mean_of_blocks(squares[inside], residuals.blocks[inside])
                variance[number, column] = (count * mean + _WEIGHT * common) / (count + _WEIGHT)
        known = np.flatnonzero(~np.isnan(variance[:, 0]))
        below = np.maximum(np.searchsorted(known, np.arange(len(variance)), side="right") - 1, 0)
        return cls(np.maximum(np.sqrt(variance[known[below]]), _LEAST))

    def at(self, distances: Integers, columns: Integers) -> Array:
        """Standard deviations ``(m,)`` of values at distances ``(m,)`` in columns ``(m,)``."""
        return self.sd[np.minimum(length_bin(distances), len(self.sd) - 1), columns]


def mean_over_blocks(values: Array, blocks: Integers) -> tuple[float, float]:
    r"""The mean of values, and its standard error where those of a block vary together.

    .. math:: \frac1m \Big(\frac{B}{B - 1} \sum_b \Big(\sum_{i \in b} (v_i - \bar v)\Big)^2\Big)^{1/2}

    Args:
        values: ``(m,)``.
        blocks: the block of each, ``(m,)``, B of them.

    Returns:
        Both; the error of one block is infinite.

    Example:
        >>> mean_over_blocks(np.array([1.0, 3.0, 2.0, 6.0]), np.array([0, 0, 1, 2]))
        (3.0, 1.1456...)
    """
    mean = float(np.mean(values))
    sums = np.bincount(np.unique(blocks, return_inverse=True)[1], values - mean)
    count = len(sums)
    return mean, math.sqrt(count / (count - 1) * float(sums @ sums)) / len(values) if count > 1 else math.inf


def _mean_of_blocks(values: Array, blocks: Integers) -> tuple[float, int]:
    """The mean over blocks of their means, and how many there are."""
    if len(values) == 0:
        return 0.0, 0
    _, number, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    return float(np.mean(np.bincount(number, values) / counts)), len(counts)
