"""What every report that compares methods shares: paired differences, when one counts, and rows as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from scipy.stats import norm, t

__all__ = [
    "LEVEL",
    "Difference",
    "aligned",
    "critical_value",
    "gaussian_scores",
    "normal_errors",
    "student_reach",
    "student_scores",
]

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
        """Both numbers, without a sign that was rounded away; "none" where no pair differs."""
        if self.mean == self.error == 0.0:
            return "none"
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


def student_scores(
    errors: NDArray[np.floating], scale: NDArray[np.floating], freedom: NDArray[np.floating]
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""The scores of :func:`gaussian_scores` under Student's t with ν > 1 degrees of freedom.

    .. math::
        \mathrm{CRPS} = s \Big\{ z (2F(z) - 1) + 2f(z)\frac{\nu + z^2}{\nu - 1}
        - \frac{2\sqrt\nu}{\nu - 1}\frac{B(\frac12, \nu - \frac12)}{B(\frac12, \frac\nu2)^2} \Big\}, \quad z = e/s

    Args:
        errors: e, of any shape.
        scale: s, likewise.
        freedom: ν, likewise; infinite for Gaussians.

    Returns:
        Both, of that shape; the CRPS in units of the values.

    Source:
        Jordan, Krüger & Lerch (2019), Evaluating probabilistic forecasts with scoringRules, appendix A.

    Example:
        >>> nll, crps = student_scores(np.zeros(2), np.ones(2), np.array([3.0, np.inf]))
        >>> nll.round(3).tolist(), crps.round(3).tolist()
        ([1.001, 0.919], [0.276, 0.234])
    """
    nll, crps = gaussian_scores(errors, scale)
    heavy = np.isfinite(freedom)
    z, s, v = errors[heavy] / scale[heavy], scale[heavy], freedom[heavy]
    beta = np.exp(betaln(0.5, v - 0.5) - 2.0 * betaln(0.5, 0.5 * v))
    spread = 2.0 * t.pdf(z, v) * (v + z**2) - 2.0 * np.sqrt(v) * beta
    nll[heavy], crps[heavy] = np.log(s) - t.logpdf(z, v), s * (z * (2.0 * t.cdf(z, v) - 1.0) + spread / (v - 1.0))
    return nll, crps


def student_reach(quantile: Any, freedom: Any) -> NDArray[Any]:
    """The quantile of Student's t, in its standard deviations, at the level of one of the normal distribution.

    Args:
        quantile: of the normal distribution, of any shape.
        freedom: degrees of freedom above 2, of a shape that fits; infinite for Gaussians.

    Returns:
        Of their common shape.

    Example:
        >>> student_reach(1.96, np.array([3.0, np.inf])).round(2).tolist()
        [1.84, 1.96]
    """
    quantile, freedom = np.broadcast_arrays(np.asarray(quantile, dtype=np.float64), freedom)
    result, heavy = quantile.copy(), np.isfinite(freedom)
    v = freedom[heavy]
    result[heavy] = t.isf(norm.sf(quantile[heavy]), v) * np.sqrt(1.0 - 2.0 / v)
    return result


def normal_errors(errors: NDArray[np.floating], freedom: NDArray[np.floating]) -> NDArray[Any]:
    """Values of Student's t, of scale 1, as values of the normal distribution at the same level.

    Args:
        errors: of any shape.
        freedom: degrees of freedom, likewise; infinite for Gaussians.

    Returns:
        Likewise.
    """
    result, heavy = np.array(errors, dtype=np.float64), np.isfinite(freedom)
    z = result[heavy]
    result[heavy] = np.sign(z) * norm.isf(t.sf(np.abs(z), freedom[heavy]))
    return result
