r"""The covariance of some cells of a state space given observations, in time linear in the rows.

With X the covariance of the predicted state of a row and earlier cells, and N the information of this and all later
rows (:mod:`cgp.statespace.filter`), that of the row's outputs and those cells given all observations is

.. math:: H(I - \hat P N)X, \qquad X \leftarrow A(I - V^\top L^{-1}H)X

where the steps between two rows with cells are multiplied before they meet X.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cgp.functional.threads import one_blas_thread

from .filter import Array, Chain, Factor, solve_forward

__all__ = ["joint_covariance"]


@one_blas_thread
def joint_covariance(chain: Chain, factors: Sequence[Factor], cells: NDArray[np.int64]) -> Array:
    """Covariance of outputs at rows, without noise.

    Args:
        chain: recursions of N rows and P outputs.
        factors: results of its filter.
        cells: places in the table ``(N, P)``, flattened, in increasing order, ``(m,)``.

    Returns:
        ``(m, m)``, in time O(N + m²).
    """
    places, outputs = np.divmod(cells, len(chain.loadings))
    rows, starts = np.unique(places, return_index=True)
    parts = dict(zip(rows.tolist(), np.split(outputs, starts[1:]), strict=True))
    known = _information(chain, factors, parts)
    K, covariance = chain.count, np.zeros((len(cells), len(cells)))
    X, move, first = np.empty((chain.size, len(cells))), np.eye(chain.size), 0
    for row in range(int(rows[0]), int(rows[-1]) + 1):
        if row > rows[0]:
            move = chain.transition(row).forward(move)
        if row in parts:
            gain = factors[row].gain[:, parts[row]]
            X[:, :first] = move @ X[:, :first]
            move, last = np.eye(chain.size), first + gain.shape[1]
            X[:, first:last] = gain
            block = chain.loadings[parts[row]] @ X[:K, :last] - (gain.T @ known[row]) @ X[:, :last]
            covariance[first:last, :last] = block
            covariance[:last, first:last] = block.T
            first = last
        seen, loadings = chain.patterns[chain.pattern[row]]
        if len(seen):
            V = solve_forward(factors[row].root, factors[row].gain[:, seen].T)
            move = move - V.T @ solve_forward(factors[row].root, loadings @ move[:K])
    return covariance


def _information(chain: Chain, factors: Sequence[Factor], parts: dict[int, NDArray[np.int64]]) -> dict[int, Array]:
    """N of the rows that have cells, with their own observations, backwards."""
    N, known = np.zeros((chain.size, chain.size)), {}
    for row in range(len(factors) - 1, min(parts) - 1, -1):
        if row < len(factors) - 1:
            N = chain.transition(row + 1).precise(N)
        if len(chain.patterns[chain.pattern[row]].outputs):
            N = chain.observe(N, factors[row], row)[0]
        if row in parts:
            known[row] = N
    return known
