r"""The recursions of a Kalman filter and of an adjoint smoother, in numpy and float64.

The filter goes through the rows with the predicted state and its covariance :math:`\hat P`,

.. math:: G = \hat P H^\top,\quad LL^\top = H_O G_O + \Sigma_O,\quad V = L^{-1}G_O^\top,\quad
    \hat P \leftarrow A(\hat P - V^\top V)A^\top + Q

and the adjoint recursion back with r and N, such that :math:`\hat s + \hat P r` and :math:`\hat P - \hat P N \hat P`
are mean and covariance of a state given all rows. No state covariance is inverted: rows may repeat, and processes be
without noise. The matrices of a row are small: more than one thread of BLAS makes them many times slower.

Source: Durbin & Koopman (2012), Time series analysis by state space methods, sections 4.3-4.4 and 4.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs
from torch import Tensor

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.functional.threads import one_blas_thread

from .space import StateSpace

__all__ = [
    "Array",
    "Chain",
    "Factor",
    "Product",
    "diagonal_blocks",
    "inverse_diagonal",
    "process_blocks",
    "solve_backward",
    "solve_forward",
    "symmetric_roots",
]

Array = NDArray[np.float64]
_DENSE = 64  # states up to which a transition is one matrix product; beyond, products of its blocks are faster
_NOTHING: Array = np.zeros((0, 0))


class Factor(NamedTuple):
    """The quantities that the filter stores for a row.

    Attributes:
        gain: G, covariances of the predicted state and all outputs, ``(D, P)``.
        root: L, of the observations, ``(m, m)``.
        filtered: the state's covariance after the row; of the last row only, unless all are requested.
    """

    gain: Array
    root: Array
    filtered: Array


class Product(NamedTuple):
    r"""Columns b of all cells, what they sum up to back in time, and the states whose readings are :math:`Kb`.

    .. math:: r_i = A_{i+1}^\top r_{i+1} + H^\top b_i, \qquad s_i = A_i s_{i-1} + Q_i r_i

    Attributes:
        columns: b, ``(N, P, S)``.
        adjoint: r, ``(N, D, S)``.
        states: s, ``(N, D, S)``.
    """

    columns: Array
    adjoint: Array
    states: Array


class _Pattern(NamedTuple):
    """Which outputs a row has: their numbers and their rows of the loadings."""

    outputs: NDArray[np.intp]
    loadings: Array


class Chain:
    """The recursions of a state space in numpy. States are ordered by derivative, then by process: ``(d, K)``.

    Args:
        space: state space of N rows and P outputs.
        variances: of the noise, ``(N, P)``; None is none.
        observed: whether observed, ``(N, P)`` booleans; None is everything.
    """

    def __init__(self, space: StateSpace, variances: Tensor | None = None, observed: Tensor | None = None) -> None:
        self.kinds = space.kinds.numpy()
        self.tables = [space[field].detach().double().numpy()[..., self.kinds] for field in range(2)]
        self.stationary = space.stationary.detach().double().numpy()[..., self.kinds]
        self.loadings = space.loadings.detach().double().numpy()
        self.steps, shape = space.steps.numpy(), (len(space.steps), len(space.loadings))
        self.variances = np.zeros(shape) if variances is None else variances.detach().double().numpy()
        self.observed = np.ones(shape, dtype=bool) if observed is None else observed.numpy()
        self.count = self.loadings.shape[1]
        self.size = self.count * space.stationary.shape[0]
        self._transition: Any = None
        self._lag = -1

    def known(self, columns: Tensor) -> Array:
        """Columns of cells, ``(N, P, S)``, zero where nothing is observed."""
        values: Array = np.where(self.observed[..., None], columns.detach().double().numpy(), 0.0)
        return values

    @cached_property
    def pattern(self) -> NDArray[np.int64]:
        """The pattern of each row, ``(N,)``."""
        return self._patterns[1].reshape(-1)

    @cached_property
    def patterns(self) -> list[_Pattern]:
        """The distinct patterns."""
        outputs = [np.flatnonzero(mask) for mask in self._patterns[0]]
        return [_Pattern(numbers, np.ascontiguousarray(self.loadings[numbers])) for numbers in outputs]

    @cached_property
    def _patterns(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        masks, patterns = np.unique(self.observed, axis=0, return_inverse=True)
        return masks, patterns

    def transition(self, row: int) -> Any:
        """The step to a row."""
        lag = int(self.steps[row])
        if lag != self._lag:
            kind = _DenseStep if self.size <= _DENSE else _BlockStep
            self._lag, self._transition = lag, kind(*(table[lag] for table in self.tables))
        return self._transition

    @one_blas_thread
    def filtered(self, start: Array | None, keep: bool = False) -> list[Factor]:
        """The covariances, forwards; with those of all states after their rows if they are to be kept."""
        return list(self._filtered(start, keep))

    def _filtered(self, start: Array | None, keep: bool) -> Iterator[Factor]:
        C, K = diagonal_blocks(self.stationary) if start is None else start, self.count
        for row, number in enumerate(self.pattern):
            if row or start is not None:
                C = self.transition(row).spread(C)
            outputs, loadings = self.patterns[number]
            gain = C[:, :K] @ self.loadings.T
            if not len(outputs):
                yield Factor(gain, np.zeros((0, 0)), C if keep or row == len(self.pattern) - 1 else _NOTHING)
                continue
            noisy = loadings @ gain[:K, outputs]
            noisy.flat[:: len(outputs) + 1] += self.variances[row, outputs]
            root, failure = dpotrf(noisy, lower=1)
            if failure:
                raise NotPositiveDefiniteError(f"row {row}: the covariance of its observations cannot be factored")
            V = solve_forward(root, gain[:, outputs].T)
            C = C - V.T @ V
            yield Factor(gain, root, C if keep or row == len(self.pattern) - 1 else _NOTHING)

    @one_blas_thread
    def whitened(
        self, factors: Sequence[Factor], values: Array, start: Array | None
    ) -> tuple[list[Array], list[Array], Array]:
        """Columns of observations ``(N, P, S)``, forwards: predicted outputs and whitened innovations of every row."""
        K, known = self.count, np.zeros((self.size, values.shape[-1])) if start is None else start
        predicted, white = [], []
        for row, (factor, number) in enumerate(zip(factors, self.pattern, strict=True)):
            if row or start is not None:
                known = self.transition(row).forward(known)
            predicted.append(self.loadings @ known[:K])
            outputs, _ = self.patterns[number]
            white.append(solve_forward(factor.root, values[row, outputs] - predicted[-1][outputs]))
            if len(outputs):
                known = known + factor.gain[:, outputs] @ solve_backward(factor.root, white[-1])
        return predicted, white, known

    @one_blas_thread
    def smoothed(
        self, factors: Sequence[Factor], predicted: Sequence[Array], white: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Means of all outputs and weights of the observations, ``(N, P, S)`` each, backwards."""
        K, mean = self.count, np.stack(predicted)
        weights, r = np.zeros_like(mean), np.zeros((self.size, mean.shape[-1]))
        for row in range(len(factors) - 1, -1, -1):
            factor, (outputs, loadings) = factors[row], self.patterns[self.pattern[row]]
            if row < len(factors) - 1:
                r = self.transition(row + 1).adjoint(r)
            if len(outputs):
                weights[row, outputs] = solve_backward(
                    factor.root, white[row] - solve_forward(factor.root, factor.gain[:, outputs].T @ r)
                )
                r[:K] += loadings.T @ weights[row, outputs]
            mean[row] += factor.gain.T @ r
        return mean, weights

    @one_blas_thread
    def spread(self, factors: Sequence[Factor]) -> tuple[Array, Array]:
        """Variances of all outputs and the diagonal of the inverse of the observations' covariance, backwards."""
        variance, precision = np.empty_like(self.variances), np.zeros_like(self.variances)
        N = np.zeros((self.size, self.size))
        for row in range(len(factors) - 1, -1, -1):
            factor, (outputs, _) = factors[row], self.patterns[self.pattern[row]]
            if row < len(factors) - 1:
                N = self.transition(row + 1).precise(N)
            if len(outputs):
                N, inner = self.observe(N, factor, row)
                precision[row, outputs] = inverse_diagonal(factor.root, inner)
            variance[row] = np.einsum("pk,kp->p", self.loadings, factor.gain[: self.count])
            variance[row] -= np.einsum("kp,kp->p", factor.gain, N @ factor.gain)
        return variance.clip(min=0.0), precision

    def observe(self, N: Array, factor: Factor, row: int) -> tuple[Array, Array]:
        r"""N before a row's observations from that after them, and :math:`I + V N V^\top`."""
        outputs, loadings = self.patterns[self.pattern[row]]
        K = self.count
        V, white = solve_forward(factor.root, factor.gain[:, outputs].T), solve_forward(factor.root, loadings)
        M = V @ N
        inner = M @ V.T
        inner.flat[:: len(outputs) + 1] += 1.0
        M[:, :K] -= 0.5 * inner @ white
        change = white.T @ M
        N = N.copy()
        N[:K] -= change
        N[:, :K] -= change.T
        return N, inner

    @one_blas_thread
    def product(self, columns: Array) -> tuple[Array, Product]:
        """The covariance of all cells, without noise, times columns: ``(N, P, S)`` each, without its start."""
        r = np.zeros((self.size, columns.shape[-1]))
        adjoint, states = (np.empty((len(columns), *r.shape)) for _ in range(2))
        for row in range(len(columns) - 1, -1, -1):
            r[: self.count] += self.loadings.T @ columns[row]
            adjoint[row] = r
            r = self.transition(row).adjoint(r) if row else r
        shape = self.size // self.count, self.count, -1
        for row, each in enumerate(adjoint):
            noise = self.tables[1][self.steps[row]] if row else self.stationary
            noisy = np.einsum("abk,bks->aks", noise, each.reshape(shape)).reshape(each.shape)
            states[row] = self.transition(row).forward(states[row - 1]) + noisy if row else noisy
        return np.einsum("pk,nks->nps", self.loadings, states[:, : self.count]), Product(columns, adjoint, states)

    @one_blas_thread
    def prior_covariance(self, start: Array | None = None) -> Array:
        """The covariance of all outputs at all rows, from states N(0, start) before them, ``(N P, N P)``."""
        C, K, P = diagonal_blocks(self.stationary) if start is None else start, self.count, len(self.loadings)
        gains, blocks = np.zeros((self.size, 0)), np.zeros((len(self.steps), P, len(self.steps) * P))
        for row, block in enumerate(blocks):
            if row or start is not None:
                step = self.transition(row)
                C, gains = step.spread(C), step.forward(gains)  # of the state, and of it with the outputs before
            gains = np.hstack([gains, C[:, :K] @ self.loadings.T])
            block[:, : gains.shape[1]] = self.loadings @ gains[:K]
        lower = np.tril(blocks.reshape(blocks.shape[-1], -1))
        return lower + np.tril(lower, -1).T

    @one_blas_thread
    def prior_draws(self, count: int, generator: torch.Generator | None, start: Array | None = None) -> Array:
        """Draws of all outputs at all rows from the prior, or from states N(0, start) before it, ``(N, P, count)``."""
        roots = symmetric_roots(self.tables[1])
        state = self.first_draws(self.normal(count, generator), start)
        outputs = []
        for row in range(len(self.steps)):
            if row or start is not None:
                state = self.transition(row).forward(state.reshape(self.size, count)).reshape(-1, self.count, count)
                state = state + np.einsum("jmk,mks->jks", roots[self.steps[row]], self.normal(count, generator))
            outputs.append(self.loadings @ state[0])
        return np.stack(outputs)

    def first_draws(self, normal: Array, start: Array | None) -> Array:
        """Draws of the states before the first row from standard normal ones, ``(d, K, count)``."""
        if start is None:
            return np.asarray(np.einsum("jmk,mks->jks", symmetric_roots(self.stationary), normal))
        values, vectors = np.linalg.eigh(start)
        root = vectors * np.sqrt(values.clip(min=0.0))
        return (root @ normal.reshape(self.size, -1)).reshape(normal.shape)

    def normal(self, count: int, generator: torch.Generator | None) -> Array:
        """Standard normal states, ``(d, K, count)``."""
        shape = (self.size // self.count, self.count, count)
        return torch.randn(shape, generator=generator, dtype=torch.float64).numpy()


class _DenseStep:
    """A step as one matrix product."""

    def __init__(self, transition: Array, noise: Array) -> None:
        self.A, self.Q = diagonal_blocks(transition), diagonal_blocks(noise)

    def forward(self, x: Array) -> Array:
        return self.A @ x

    def adjoint(self, r: Array) -> Array:
        return self.A.T @ r

    def spread(self, C: Array) -> Array:
        return self.A @ C @ self.A.T + self.Q

    def precise(self, N: Array) -> Array:
        return self.A.T @ N @ self.A


class _BlockStep:
    """A step process by process, for many states."""

    def __init__(self, transition: Array, noise: Array) -> None:
        self.a, self.q = transition, noise

    def forward(self, x: Array) -> Array:
        return self._apply(self.a, x)

    def adjoint(self, r: Array) -> Array:
        return self._apply(self.a.swapaxes(0, 1), r)

    def spread(self, C: Array) -> Array:
        moved = self.forward(self.forward(C).T)
        size, _, count = self.a.shape
        each = np.arange(count)
        moved.reshape(size, count, size, count)[:, each, :, each] += np.moveaxis(self.q, -1, 0)
        return moved

    def precise(self, N: Array) -> Array:
        return self.adjoint(self.adjoint(N).T)

    def _apply(self, a: Array, x: Array) -> Array:
        size, _, count = a.shape
        x = x.reshape(size, count, -1)
        moved = np.empty_like(x, order="C")
        for j in range(size):
            np.multiply(a[j, 0][:, None], x[0], out=moved[j])
            for m in range(1, size):
                moved[j] += a[j, m][:, None] * x[m]
        return moved.reshape(size * count, -1)


def process_blocks(matrix: Array, size: int) -> Array:
    """The blocks of single processes in a matrix, ``(d, d, K)``."""
    count = len(matrix) // size
    return np.einsum("jkmk->jmk", matrix.reshape(size, count, size, count))


def diagonal_blocks(blocks: Array) -> Array:
    """The matrix ``(D, D)`` of blocks ``(d, d, K)`` of single processes."""
    size, _, count = blocks.shape
    matrix = np.zeros((size, count, size, count))
    each = np.arange(count)
    matrix[:, each, :, each] = np.moveaxis(blocks, -1, 0)
    return matrix.reshape(size * count, size * count)


def symmetric_roots(blocks: Array) -> Array:
    """Symmetric roots of positive semi-definite blocks ``(..., d, d, K)``."""
    values, vectors = np.linalg.eigh(np.moveaxis(blocks, -1, -3))
    roots = vectors * np.sqrt(values.clip(min=0.0))[..., None, :]
    return np.moveaxis(roots @ np.swapaxes(vectors, -1, -2), -3, -1)


def solve_forward(root: Array, columns: Array) -> Array:
    """:math:`L^{-1}B`."""
    return dtrtrs(root, columns, lower=1)[0] if len(root) else columns


def solve_backward(root: Array, columns: Array) -> Array:
    r""":math:`L^{-\top}B`."""
    return dtrtrs(root, columns, lower=1, trans=1)[0] if len(root) else columns


def inverse_diagonal(root: Array, inner: Array) -> Array:
    r"""The diagonal of :math:`L^{-\top} M L^{-1}` for a positive definite M."""
    return np.square(dpotrf(inner, lower=0)[0] @ solve_forward(root, np.eye(len(root)))).sum(0)
