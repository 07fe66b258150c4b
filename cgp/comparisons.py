"""What every report that compares methods shares: paired differences, when one counts, and rows as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

__all__ = ["LEVEL", "Difference", "aligned", "critical_value", "gaussian_scores"]

LEVEL = 0.05
"""Probability with which a report may claim anything where there is nothing."""


class Difference(NamedTuple):
    """A paired difference.

    Attributes:
        mean: over the examples.
        error: standard error of that mean.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Difference:
        """Mean and standard error of values ``(N,)``, N at least 2."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    @classmethod
    def of_groups(cls, values: NDArray[np.floating], groups: NDArray[np.integer]) -> Difference:
        r"""Mean of values ``(N,)`` and its standard error where those of a group, such as tokens, depend on each other.

        .. math:: \frac{1}{N}\Big[\tfrac{G}{G - 1}\textstyle\sum_g \big(\sum_{i \in g} (v_i - \bar v)\big)^2\Big]^{1/2}

        Args:
            values: one of each member.
            groups: which of G groups, at least 2, each belongs to, ``(N,)`` from 0.

        Returns:
            Both; with groups of one member each, those of :meth:`of`.

        Example:
            >>> Difference.of_groups(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1])).error
            1.0
        """
        sums = np.bincount(groups, weights=values - values.mean())
        count = len(sums)
        error = np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(values)
        return cls(float(values.mean()), float(error))

    def exceeds(self, least: float, z: float) -> bool:
        """Whether the mean is above ``least`` and above ``z`` standard errors."""
        return self.mean > max(least, z * self.error)

    def __neg__(self) -> Difference:
        """The difference the other way round."""
        return Difference(-self.mean, self.error)

    def __str__(self) -> str:
        """Both numbers; none has a sign that was rounded away."""
        mean = f"{self.mean:+.4f}"
        return f"{'0.0000' if float(mean) == 0.0 else mean} ± {self.error:.4f}"


def critical_value(comparisons: int, degrees: float = math.inf) -> float:
    r"""Standard errors by which the best of several comparisons has to stand out.

    .. math:: \max\{2, t_\nu^{-1}(1 - 0.05 / m)\}

    Args:
        comparisons: m, out of which the largest difference is chosen.
        degrees: ν, of freedom of the standard errors: values less one. Of many values the quantile is the normal one.

    Returns:
        Two, or Student's one-sided quantile with Bonferroni's correction: under the null hypothesis the probability
        that any of the differences passes is at most 5 %, however they depend on each other.

    Example:
        >>> round(critical_value(1), 3), round(critical_value(8), 3), round(critical_value(8, degrees=5), 3)
        (2.0, 2.498, 3.81)
    """
    return max(2.0, float(t.isf(LEVEL / max(comparisons, 1), degrees)))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines of text, the first column to the left and the others to the right.

    Args:
        rows: of equally many cells.

    Returns:
        A line for each.

    Example:
        >>> aligned([["method", "NLL"], ["lines", "0.25"]])
        ['method   NLL', 'lines   0.25']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = ([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]


def gaussian_scores(errors: NDArray[np.floating], sd: NDArray[np.floating]) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Negative log predictive density in nats, and continuous ranked probability score, of Gaussians.

    .. math::
        \mathrm{NLL} = \tfrac12 z^2 + \log s + \tfrac12 \log 2\pi, \qquad
        \mathrm{CRPS} = s \{ z (2\Phi(z) - 1) + 2\varphi(z) - \pi^{-1/2} \}, \quad z = e/s

    Args:
        errors: e, of any shape.
        sd: predictive standard deviations s, likewise.

    Returns:
        Both, of that shape; the CRPS in units of the values.

    Source:
        Gneiting & Raftery (2007), Strictly proper scoring rules, prediction, and estimation, equation 21 for the CRPS.

    Example:
        >>> nll, crps = gaussian_scores(np.array([0.0]), np.array([1.0]))
        >>> float(nll[0]).__round__(3), float(crps[0]).__round__(3)
        (0.919, 0.234)
    """
    z = errors / sd
    crps = sd * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    return -norm.logpdf(errors, scale=sd), crps
