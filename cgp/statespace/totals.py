r"""Variances of weighted sums of the outputs of a state space given observations, in time linear in the rows.

A sum :math:`T = \sum_i w_i^\top y_i` is one more state that grows row by row: with x the covariance of the filtered
state and the sum so far, c the sum's variance, and P the filtered covariance of the state,

.. math:: x \leftarrow x + P H^\top w_i, \quad c \leftarrow c + 2 w_i^\top H x + w_i^\top H P H^\top w_i,
    \qquad \operatorname{Var}[T \mid y] = c - x^\top N x

where observations reduce x and c by the explained part, and N is the information of all rows after the sum's last one,
of the adjoint recursion (:mod:`cgp.statespace.filter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.functional.threads import one_blas_thread

from .filter import Array, Chain, Factor, solve_forward

__all__ = ["Terms", "total_variances"]


class Terms(NamedTuple):
    """The terms of weighted sums, in any order.

    Attributes:
        rows: ``(M,)``.
        outputs: ``(M,)``.
        weights: ``(M,)``.
        sums: index of the sum that each belongs to, ``(M,)``; each of 0 … A-1 has a term.
    """

    rows: NDArray[np.int64]
    outputs: NDArray[np.int64]
    weights: Array
    sums: NDArray[np.int64]

    def chosen(self, order: NDArray[np.int64]) -> Terms:
        """Those at some places."""
        return Terms(self.rows[order], self.outputs[order], self.weights[order], self.sums[order])


class _Open(NamedTuple):
    """Sums that have begun: their numbers, x ``(D, a)`` and c ``(a,)``."""

    numbers: NDArray[np.int64]
    x: Array
    c: Array

    def joined(self, numbers: NDArray[np.int64]) -> _Open:
        count = len(numbers)
        if not count:
            return self
        x = np.hstack([self.x, np.zeros((len(self.x), count))])
        return _Open(np.concatenate([self.numbers, numbers]), x, np.concatenate([self.c, np.zeros(count)]))

    def chosen(self, which: NDArray[np.bool_]) -> _Open:
        return _Open(self.numbers[which], self.x[:, which], self.c[which])


@one_blas_thread
def total_variances(chain: Chain, factors: Sequence[Factor], terms: Terms) -> Array:
    """Variances of sums of outputs without noise.

    Args:
        chain: recursions of N rows.
        factors: results of its filter.
        terms: terms of A sums. The time of a row is proportional to the number of sums that are open there.

    Returns:
        ``(A,)``.
    """
    terms = terms.chosen(np.argsort(terms.rows, kind="stable"))
    count = int(terms.sums.max()) + 1
    first, last = np.full(count, len(factors)), np.zeros(count, dtype=np.int64)
    np.minimum.at(first, terms.sums, terms.rows)
    np.maximum.at(last, terms.sums, terms.rows)
    closed = _forward(chain, factors, terms, (first, last))
    variances, N = np.empty(count), np.zeros((chain.size, chain.size))
    for row in range(len(factors) - 1, int(last.min()) - 1, -1):
        if row < len(factors) - 1:
            N = chain.transition(row + 1).precise(N)
        if row in closed:
            ended = closed[row]
            variances[ended.numbers] = ended.c - np.einsum("da,da->a", ended.x, N @ ended.x)
        if len(chain.patterns[chain.pattern[row]].outputs):
            N = chain.observe(N, factors[row], row)[0]
    return variances.clip(min=0.0)


def _forward(
    chain: Chain, factors: Sequence[Factor], terms: Terms, ends: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> dict[int, _Open]:
    """The sums that end at each row, with their values there."""
    first, last = ends
    beginning = np.argsort(first, kind="stable")
    starts = np.searchsorted(first[beginning], np.arange(len(factors) + 1))
    places = np.searchsorted(terms.rows, np.arange(len(factors) + 1))
    nothing = _Open(np.empty(0, dtype=np.int64), np.zeros((chain.size, 0)), np.empty(0))
    current, closed = nothing, {}
    for row in range(int(first.min()), int(last.max()) + 1):
        if len(current.numbers):
            current = current._replace(x=chain.transition(row).forward(current.x))
        current = current.joined(beginning[starts[row] : starts[row + 1]])
        if not len(current.numbers):
            continue
        current = _stepped(chain, factors[row], row, current, terms, slice(places[row], places[row + 1]))
        ends_here = last[current.numbers] == row
        if ends_here.any():
            closed[row], current = current.chosen(ends_here), current.chosen(~ends_here)
    return closed


def _stepped(chain: Chain, factor: Factor, row: int, current: _Open, terms: Terms, part: slice) -> _Open:
    """Open sums after a row's observations and with its terms."""
    outputs, loadings = chain.patterns[chain.pattern[row]]
    K, (x, c), gain = chain.count, current[1:], factor.gain
    if len(outputs):
        V = solve_forward(factor.root, gain[:, outputs].T)
        explained = solve_forward(factor.root, loadings @ x[:K])
        x, c = x - V.T @ explained, c - np.einsum("ma,ma->a", explained, explained)
        gain = gain - V.T @ solve_forward(factor.root, loadings @ gain[:K])
    weights = np.zeros((len(chain.loadings), len(c)))
    columns = np.searchsorted(current.numbers, terms.sums[part], sorter=np.argsort(current.numbers))
    columns = np.argsort(current.numbers)[columns]
    np.add.at(weights, (terms.outputs[part], columns), terms.weights[part])
    added = gain @ weights
    c = c + np.einsum("pa,pa->a", weights, chain.loadings @ (2.0 * x + added)[:K])
    return _Open(current.numbers, x + added, c)
