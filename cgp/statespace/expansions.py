r"""Variances of sums of functions of Gaussian outputs given observations, from their Hermite coefficients.

A function of one output with mean :math:`\mu_i` and deviation :math:`s_i` is a series in Hermite polynomials of its
standardised value, with coefficients :math:`c_{ki}`, and two of them are correlated by powers (Mehler's formula):

.. math:: \operatorname{Var}\Big[\sum_i g_i(z_i)\Big] = \sum_{ij}\sum_{k \ge 1} c_{ki} c_{kj} R_{ij}^k, \qquad
    R_{ij} = \frac{C_{ij}}{s_i s_j}

C is the posterior covariance. Forwards in time x is the covariance of the filtered state with each earlier term; with
g the same of the term at a row, and N the information of the rows after it, :math:`C_{ij} = (h - N g)^\top x_i`.

Source: Kendall (1941), Proof of relations connected with the tetrachoric series and its generalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.threads import one_blas_thread

from .filter import Array, Chain, Factor, solve_backward, solve_forward
from .totals import Terms

__all__ = ["Expansion", "dense_expansion_variance", "expansion_variances"]

_EPOCH, _WEAK = 64, 1e-3  # terms after which those are left out whose correlations with all of them were weaker


class Expansion(NamedTuple):
    """Functions of outputs at M places.

    Attributes:
        coefficients: of the Hermite polynomials of orders 1 … K, with unit variance, ``(K, M)``.
        deviations: in units of which the functions are given, ``(M,)``.
        noise: variances that are added to those of the outputs, ``(M,)``.
        further: what covariances have besides those of the state space, as products: ``(M, F)``.
        sign: of the products.
    """

    coefficients: Array
    deviations: Array
    noise: Array
    further: Array
    sign: float = 1.0

    @property
    def sizes(self) -> Array:
        """Standard deviations of the functions, ``(M,)``."""
        return np.asarray(np.sqrt(np.square(self.coefficients).sum(0)))

    @classmethod
    def of_tensors(cls, *fields: Tensor) -> Self:
        """The first four fields."""
        coefficients, deviations, noise, further = (field.double().numpy() for field in fields)
        return cls(coefficients, deviations, noise, further)

    def chosen(self, order: NDArray[np.int64]) -> Expansion:
        """Those at some places."""
        parts = self.coefficients[:, order], self.deviations[order], self.noise[order], self.further[order]
        return Expansion(*parts, self.sign)


@one_blas_thread
def expansion_variances(chain: Chain, factors: Sequence[Factor], terms: Terms, expansion: Expansion) -> Array:
    """Variances of sums of functions of outputs, or of readings of them.

    The linear parts are exact. Of the powers, those of terms are left out whose correlations with all of 64 later ones
    of their sum were below a thousandth.

    Args:
        chain: recursions of N rows.
        factors: results of its filter.
        terms: terms of A sums; their weights are not used.
        expansion: of the terms.

    Returns:
        ``(A,)``.
    """
    order = np.argsort(terms.rows, kind="stable")
    terms, expansion = terms.chosen(order), expansion.chosen(order)
    gains, weights = _term_weights(chain, factors, terms)
    s, products = expansion.deviations, np.vstack([weights, expansion.sign * expansion.further.T])
    columns = np.vstack([gains, expansion.further.T])
    own = (np.einsum("dm,dm->m", products, columns) + expansion.noise) / s**2
    columns, products = columns / s, products / s
    count, first = int(terms.sums.max()) + 1, int(terms.rows[0])
    variances = np.bincount(terms.sums, _powers(own, np.square(expansion.coefficients), 1), count)
    ends = np.zeros(count, dtype=np.int64)
    np.maximum.at(ends, terms.sums, np.arange(len(order)))
    places = np.searchsorted(terms.rows, np.arange(first, terms.rows[-1] + 2))
    current: dict[int, _Sum] = {}
    for row in range(first, int(terms.rows[-1]) + 1):
        if current:
            _step(chain, factors[row], row, [each.columns for each in current.values()])
        for m in range(places[row - first], places[row - first + 1]):
            number = int(terms.sums[m])
            if number not in current:
                current[number] = _Sum(columns.shape[0], len(expansion.coefficients))
            current[number].take(columns[:, m], products[:, m], expansion.coefficients[:, m])
            if ends[number] == m:
                variances[number] += current.pop(number).variance
    return variances.clip(min=0.0)


def dense_expansion_variance(covariance: Array, coefficients: Array, deviations: Array) -> float:
    """The variance of a sum of functions of m outputs.

    Args:
        covariance: of the outputs, with noise if their functions have it, ``(m, m)``.
        coefficients: ``(K, m)``.
        deviations: ``(m,)``.

    Returns:
        The variance.
    """
    R = covariance / np.outer(deviations, deviations)
    powers, variance = np.ones_like(R), 0.0
    for each in coefficients:
        powers *= R
        variance += each @ powers @ each
    return max(variance, 0.0)


class _Sum:
    """A sum that has begun: its terms so far that others may be correlated with, and its variance beside theirs."""

    def __init__(self, size: int, orders: int) -> None:
        self.columns = np.zeros((size, 1))  # the linear parts, added up, then single terms
        self.coefficients = np.zeros((orders - 1, 0))  # of orders from 2
        self.peaks, self.young = np.zeros(0), 0
        self.variance = 0.0

    def take(self, column: Array, products: Array, coefficients: Array) -> None:
        """A further term: its covariance with the state, weights that make correlations of those of others."""
        correlations, higher = products @ self.columns, coefficients[1:]
        self.variance += 2.0 * float(coefficients[0] * correlations[0])
        self.columns[:, 0] += coefficients[0] * column
        if not higher.any():
            return
        R = correlations[1:]
        self.variance += 2.0 * float(_powers(R, higher[:, None] * self.coefficients, 2).sum())
        self.peaks = np.append(np.maximum(self.peaks, np.abs(R)), 0.0)
        self.columns = np.column_stack([self.columns, column])
        self.coefficients = np.column_stack([self.coefficients, higher])
        self.young += 1
        if self.young == _EPOCH:
            kept = self.peaks >= _WEAK
            kept[-_EPOCH:] = True
            self.columns = self.columns[:, np.append(True, kept)]
            self.coefficients = self.coefficients[:, kept]
            self.peaks, self.young = np.zeros(int(kept.sum())), 0


def _powers(R: Array, coefficients: Array, first: int) -> Array:
    """The sums of powers of correlations ``(m,)``, from the first one on, with coefficients ``(K, m)``."""
    total = np.zeros_like(R)
    for each in coefficients[::-1]:
        total = each + R * total
    return total * R**first


def _step(chain: Chain, factor: Factor, row: int, columns: Sequence[Array]) -> None:
    """Covariances of the state with terms of sums, in place, after the step to a row and its observations."""
    outputs, loadings = chain.patterns[chain.pattern[row]]
    moved = chain.transition(row).forward(np.concatenate([each[: chain.size] for each in columns], axis=1))
    if len(outputs):
        solved = solve_backward(factor.root, solve_forward(factor.root, loadings @ moved[: chain.count]))
        moved = moved - factor.gain[:, outputs] @ solved
    first = 0
    for each in columns:
        each[: chain.size] = moved[:, first : first + each.shape[1]]
        first += each.shape[1]


def _term_weights(chain: Chain, factors: Sequence[Factor], terms: Terms) -> tuple[Array, Array]:
    """Covariances g of the states with ordered terms, given rows up to theirs, and h - N g, ``(D, M)`` each."""
    gains, weights = np.zeros((2, chain.size, len(terms.rows)))
    N, places = np.zeros((chain.size, chain.size)), np.searchsorted(terms.rows, np.arange(len(factors) + 1))
    for row in range(len(factors) - 1, int(terms.rows[0]) - 1, -1):
        if row < len(factors) - 1:
            N = chain.transition(row + 1).precise(N)
        here = slice(places[row], places[row + 1])
        (seen, loadings), outputs, gain = chain.patterns[chain.pattern[row]], terms.outputs[here], factors[row].gain
        if len(outputs):
            gains[:, here] = gain[:, outputs]
            if len(seen):
                white = solve_forward(factors[row].root, loadings @ gain[: chain.count, outputs])
                gains[:, here] -= gain[:, seen] @ solve_backward(factors[row].root, white)
            weights[: chain.count, here] = chain.loadings[outputs].T
            weights[:, here] -= N @ gains[:, here]
        if len(seen):
            N = chain.observe(N, factors[row], row)[0]
    return gains, weights
