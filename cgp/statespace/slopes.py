r"""Gradients by a state space, row by row.

Source: Koopman & Shephard (1992), Exact score for time series models in state space form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.threads import one_blas_thread

from .filter import Array, Chain, Factor, Product, inverse_diagonal, process_blocks, solve_backward, solve_forward

__all__ = ["Slopes", "bilinear_slopes", "evidence_slopes", "summed_by_lag"]


class Slopes(NamedTuple):
    """Gradients by a state space whose processes are taken one by one, and by its readings.

    Attributes:
        transition: ``(U, d, d, K)``.
        noise: ``(U, d, d, K)``.
        stationary: ``(d, d, K)``.
        loadings: ``(P, K)``.
        residual: ``(N, P)``.
        variances: ``(N, P)``.
    """

    transition: Array
    noise: Array
    stationary: Array
    loadings: Array
    residual: Array
    variances: Array

    @classmethod
    def zeros(cls, chain: Chain) -> Slopes:
        """Nothing yet, for a chain."""
        shapes = (*chain.tables, chain.stationary, chain.loadings, chain.variances, chain.variances)
        return cls(*(np.zeros(values.shape) for values in shapes))

    def by_kind(self, kinds: NDArray[np.int64], count: int) -> tuple[Array, ...]:
        """The gradients summed over the processes of each kind."""
        member = np.eye(count)[kinds]
        return *(values @ member for values in self[:3]), *self[3:]

    def gradients(self, kinds: NDArray[np.int64], like: Sequence[Tensor]) -> list[Tensor]:
        """Those of the first arguments of a function, a state space's stacked processes first, in their precision."""
        by_kind = self.by_kind(kinds, like[0].shape[-1])
        return [torch.as_tensor(slope).to(each) for slope, each in zip(by_kind[: len(like)], like, strict=True)]


@one_blas_thread
def evidence_slopes(
    chain: Chain, factors: Sequence[Factor], white: Sequence[Array], quadratic: float, determinant: float
) -> Slopes:
    r"""Gradients of :math:`a\,y^\top\Sigma^{-1}y + b\log|\Sigma|`, the adjoint recursion by Fisher's identity.

    Args:
        chain: recursions of N rows.
        factors: results of its filter, with the covariances of all states.
        white: whitened innovations of y, ``(m, 1)`` for every row.
        quadratic: a.
        determinant: b.

    Returns:
        Of all arguments.
    """
    K, size, (a, b) = chain.count, chain.size // chain.count, (-2.0 * quadratic, -2.0 * determinant)
    slopes = Slopes.zeros(chain)
    known = _filtered_means(chain, factors, white)
    r, N = np.zeros(chain.size), np.zeros((chain.size, chain.size))
    for row in range(len(factors) - 1, -1, -1):
        factor, (outputs, loadings) = factors[row], chain.patterns[chain.pattern[row]]
        if row < len(factors) - 1:
            step, lag = chain.transition(row + 1), chain.steps[row + 1]
            moved = step.forward(factor.filtered)  # A times the filtered covariance
            mean = known[row] + moved.T @ r
            slopes.noise[lag] += 0.5 * (a * _paired(r, r, size) - b * process_blocks(N, size))
            slopes.transition[lag] += a * _paired(r, mean, size) - b * _paired_rows(N, moved.T, size)
            r, N = step.adjoint(r[:, None])[:, 0], step.precise(N)
        if not len(outputs):
            continue
        V = solve_forward(factor.root, factor.gain[:, outputs].T)
        u = solve_backward(factor.root, white[row][:, 0] - V @ r)
        gain = solve_backward(factor.root, V)
        slopes.loadings[outputs] += a * np.outer(u, (known[row] + factor.filtered @ r)[:K])
        slopes.loadings[outputs] -= b * (gain[:, :K] - (gain @ N) @ factor.filtered[:, :K])
        N, inner = chain.observe(N, factor, row)
        slopes.residual[row, outputs] = -a * u
        slopes.variances[row, outputs] = 0.5 * (a * u * u - b * inverse_diagonal(factor.root, inner))
        r[:K] += loadings.T @ u
    slopes.stationary[:] = 0.5 * (a * _paired(r, r, size) - b * process_blocks(N, size))
    return slopes


def bilinear_slopes(chain: Chain, left: Product, right: Product) -> Slopes:
    r"""Gradients of :math:`\operatorname{tr} b^\top (K + \Sigma) c` for columns b and c of all cells."""
    slopes, size = Slopes.zeros(chain), chain.size // chain.count
    moved = _outer(left.adjoint[1:], right.states[:-1], size) + _outer(right.adjoint[1:], left.states[:-1], size)
    noisy = _outer(left.adjoint, right.adjoint, size)
    noisy = 0.5 * (noisy + noisy.swapaxes(1, 2))
    steps, lags = chain.steps[1:], len(slopes.noise)
    loadings = np.einsum("nps,nks->pk", left.columns, right.states[:, : chain.count])
    loadings += np.einsum("nps,nks->pk", right.columns, left.states[:, : chain.count])
    return slopes._replace(
        transition=summed_by_lag(moved, steps, lags),
        noise=summed_by_lag(noisy[1:], steps, lags),
        stationary=noisy[0],
        loadings=loadings,
        variances=np.einsum("nps,nps->np", left.columns, right.columns),
    )


def summed_by_lag(values: Array, steps: NDArray[np.int64], count: int) -> Array:
    """Sums ``(U, ...)`` over the rows ``(n, ...)`` of each lag; rows whose step is U have none."""
    flat = values.reshape(len(values), -1)
    sums = [np.bincount(steps, column, count + 1)[:count] for column in flat.T]
    return np.asarray(np.stack(sums, axis=-1), dtype=np.float64).reshape(count, *values.shape[1:])


def _filtered_means(chain: Chain, factors: Sequence[Factor], white: Sequence[Array]) -> list[Array]:
    """The mean of the state after each row, ``(D,)`` each."""
    means, known = [], np.zeros(chain.size)
    for row, factor in enumerate(factors):
        if row:
            known = chain.transition(row).forward(known[:, None])[:, 0]
        outputs, _ = chain.patterns[chain.pattern[row]]
        if len(outputs):
            known = known + factor.gain[:, outputs] @ solve_backward(factor.root, white[row][:, 0])
        means.append(known)
    return means


def _paired(left: Array, right: Array, size: int) -> Array:
    """The blocks of single processes in an outer product, ``(d, d, K)``."""
    return left.reshape(size, 1, -1) * right.reshape(1, size, -1)


def _paired_rows(left: Array, right: Array, size: int) -> Array:
    """The blocks of single processes in the product of a matrix and the transpose of another, ``(d, d, K)``."""
    shape = size, -1, left.shape[-1]
    return np.einsum("jkx,mkx->jmk", left.reshape(shape), right.reshape(shape))


def _outer(left: Array, right: Array, size: int) -> Array:
    """The blocks of single processes in products of columns of every row, ``(N, d, d, K)``."""
    parts = (each.reshape(len(each), size, -1, each.shape[-1]) for each in (left, right))
    return np.einsum("naks,ncks->nack", *parts)
