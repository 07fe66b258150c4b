r"""Posterior of several outputs over one ordered input, in time that is linear in the number of rows.

.. math:: y_{ip} = \sum_k \Lambda_{pk}\, [s_i^{(k)}]_0 + \epsilon_{ip}, \qquad
    s_{i+1}^{(k)} = A_i^{(k)} s_i^{(k)} + w_i^{(k)}

K independent Markov processes (:mod:`cgp.functional.markov`) of d states each are mixed by loadings; any entry of y
may be missing. It is the posterior of the dense Gaussian process with covariance
:math:`\sum_k \Lambda_{pk}\Lambda_{rk}\,\kappa_k(t - t')`, by a Kalman filter and an adjoint recursion, which needs no
inverse of a state covariance: rows may repeat and processes be without noise. Time O(N D² P) for D = K d states.

The filter goes through the rows with the predicted state and its covariance :math:`\hat P`,

.. math:: G = \hat P H^\top,\quad LL^\top = H_O G_O + \Sigma_O,\quad V = L^{-1}G_O^\top,\quad
    \hat P \leftarrow A(\hat P - V^\top V)A^\top + Q

and the adjoint recursion back with r and N, such that :math:`\hat s + \hat P r` and :math:`\hat P - \hat P N \hat P`
are mean and covariance of a state given all rows. Both are in float64.

Source: Durbin & Koopman (2012), Time series analysis by state space methods, sections 4.3-4.4 and 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs
from torch import Tensor
from torch.autograd.function import once_differentiable

from .gaussians import lazy
from .linalg import NotPositiveDefiniteError
from .markov import MarkovProcess

__all__ = ["FilterState", "StateSpace", "StateSpacePosterior", "log_evidence", "state_space"]

Array = NDArray[np.float64]
_DENSE = 64  # states up to which a transition is one matrix product; beyond, products of its blocks are faster


class StateSpace(NamedTuple):
    """Independent Markov processes, mixed.

    Attributes:
        transition: A of C kinds of processes at U lags, ``(U, d, d, C)``.
        noise: Q, ``(U, d, d, C)``.
        stationary: P, ``(d, d, C)``.
        loadings: ``(P, K)``.
        kinds: the kind of each process, ``(K,)``.
        steps: which of the lags comes before each of N rows, ``(N,)``; the first is used after a :class:`FilterState`.
    """

    transition: Tensor
    noise: Tensor
    stationary: Tensor
    loadings: Tensor
    kinds: Tensor
    steps: Tensor


class FilterState(NamedTuple):
    """What is known of the states after the last row.

    Attributes:
        mean: ``(D, S)``.
        covariance: ``(D, D)``.
    """

    mean: Array
    covariance: Array


def state_space(processes: Sequence[MarkovProcess], loadings: Sequence[Tensor], steps: Tensor) -> StateSpace:
    """Copies of some kinds of processes, mixed.

    Args:
        processes: C kinds, at the same U lags; where they differ in their number of states, zeros are added.
        loadings: of each kind, ``(P, R_c)``: a column per copy.
        steps: which of the lags comes before each row, ``(N,)``.

    Returns:
        Of K = ΣR_c processes.

    Example:
        >>> from cgp.functional.markov import matern_process
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> state_space([process], [torch.ones(2, 3)], torch.zeros(5, dtype=torch.long)).loadings.shape
        torch.Size([2, 3])
    """
    size = max(process.stationary.shape[-1] for process in processes)
    parts = [_padded(process, size) for process in processes]
    transition, noise, stationary = (torch.stack(field, dim=-1) for field in zip(*parts, strict=True))
    copies = torch.tensor([columns.shape[-1] for columns in loadings])
    kinds = torch.arange(len(processes)).repeat_interleave(copies)
    return StateSpace(transition, noise, stationary, torch.cat(list(loadings), dim=-1), kinds, steps)


def log_evidence(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor) -> Tensor:
    r"""Log-density of the observations, with gradients in closed form.

    .. math:: -\tfrac12\sum_i \Big[\|L_i^{-1}v_i\|^2 + \log|L_iL_i^\top| + |O_i|\log 2\pi\Big]

    Args:
        space: N rows, P outputs.
        residual: the observations less their mean, ``(N, P)``; what is missing is not read.
        noise: variances, ``(N, P)``.
        observed: ``(N, P)`` booleans.

    Returns:
        In nats, a scalar.

    Raises:
        NotPositiveDefiniteError: if the observations' covariance is not.
    """
    return _LogEvidence.apply(*space[:4], residual, noise, space.kinds, space.steps, observed)


class StateSpacePosterior:
    """The outputs at all rows given the observations; everything is computed when it is first asked for, and kept.

    Args:
        space: N rows, P outputs.
        residual: the observations less their mean, ``(N, P)``; what is missing is not read.
        noise: variances, ``(N, P)``.
        observed: ``(N, P)`` booleans.
        start: what is known before the first row; None is the stationary distribution.

    Raises:
        NotPositiveDefiniteError: if the observations' covariance is not.

    Example:
        >>> from cgp.functional.markov import matern_process
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(3, dtype=torch.long))
        >>> y = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
        >>> posterior = StateSpacePosterior(space, y, torch.full_like(y, 0.1), torch.tensor([[True], [False], [True]]))
        >>> posterior.mean[1], posterior.variance[1]
        (tensor([0.7798], dtype=torch.float64), tensor([0.6231], dtype=torch.float64))
    """

    def __init__(
        self, space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, *, start: FilterState | None = None
    ) -> None:
        self._residual = np.where(observed.numpy(), residual.detach().double().numpy(), 0.0)
        self._chain = _Chain(space, noise.detach().double().numpy(), observed.numpy())
        self._start = start
        self._factors = [*self._chain.filtered(None if start is None else start.covariance)]

    @lazy
    def mean(self) -> Tensor:
        """Mean of every output at every row, ``(N, P)``."""
        return torch.as_tensor(self._smoothed[0][..., 0])

    @lazy
    def variance(self) -> Tensor:
        """Variance of every output at every row, without noise, ``(N, P)``."""
        return torch.as_tensor(self._spread[0])

    @lazy
    def weights(self) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}(y - m)` at the observations, zero elsewhere, ``(N, P)``."""
        return torch.as_tensor(self._smoothed[1][..., 0])

    @lazy
    def precision(self) -> Tensor:
        r"""The diagonal of :math:`(K + \Sigma)^{-1}` at the observations, zero elsewhere, ``(N, P)``."""
        return torch.as_tensor(self._spread[1])

    @lazy
    def log_evidence(self) -> Tensor:
        """Log-density of the observations, in nats."""
        quadratic = sum(float(white[:, 0] @ white[:, 0]) for white in self._whitened[1])
        return torch.tensor(_log_normal(quadratic, self._factors))

    @lazy
    def last(self) -> FilterState:
        """What is known after the last row: where a posterior of later rows starts."""
        return FilterState(self._whitened[2], self._factors[-1].filtered)

    def solve(self, columns: Tensor) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}B` for columns B, ``(N, P, S)``; entries that are not observed are not read."""
        values = np.where(self._chain.observed[..., None], columns.detach().double().numpy(), 0.0)
        whitened = self._chain.whitened(self._factors, values, None)
        return torch.as_tensor(self._chain.smoothed(self._factors, *whitened[:2])[1])

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Joint draws of all outputs at all rows, without noise: of the prior, corrected by what is observed.

        Args:
            count: how many.
            generator: None is torch's own.

        Returns:
            ``(count, N, P)``.

        Raises:
            ValueError: if the posterior goes on from the last state of another.

        Source:
            Durbin & Koopman (2002), A simple and efficient simulation smoother for state space time series analysis.
        """
        if self._start is not None:
            raise ValueError("draw: expected a posterior that starts at the stationary distribution")
        prior = self._chain.prior_draws(count, generator)
        noise = torch.randn(prior.shape, generator=generator, dtype=torch.float64).numpy()
        noisy = prior + np.sqrt(self._chain.variances)[..., None] * noise
        whitened = self._chain.whitened(self._factors, np.where(self._chain.observed[..., None], noisy, 0.0), None)
        known = self._chain.smoothed(self._factors, *whitened[:2])[0]
        return self.mean + torch.as_tensor(np.moveaxis(prior - known, -1, 0))

    @lazy
    def _whitened(self) -> tuple[list[Array], list[Array], Array]:
        start = None if self._start is None else self._start.mean
        return self._chain.whitened(self._factors, self._residual[..., None], start)

    @lazy
    def _smoothed(self) -> tuple[Array, Array]:
        return self._chain.smoothed(self._factors, *self._whitened[:2])

    @lazy
    def _spread(self) -> tuple[Array, Array]:
        return self._chain.spread(self._factors)


class _Factor(NamedTuple):
    """What the filter keeps of a row.

    Attributes:
        gain: G, covariances of the predicted state and all outputs, ``(D, P)``.
        root: L, of the observations, ``(m, m)``.
        filtered: the state's covariance after the row, of the last row only unless all are asked for.
    """

    gain: Array
    root: Array
    filtered: Array


class _Pattern(NamedTuple):
    """Which outputs a row has: their numbers and their rows of the loadings."""

    outputs: NDArray[np.intp]
    loadings: Array


class _Chain:
    """The recursions of a state space in numpy. States are ordered by derivative, then by process: ``(d, K)``."""

    def __init__(self, space: StateSpace, variances: Array, observed: NDArray[np.bool_]) -> None:
        self.kinds = space.kinds.numpy()
        self.tables = [space[field].detach().double().numpy()[..., self.kinds] for field in range(2)]
        self.stationary = space.stationary.detach().double().numpy()[..., self.kinds]
        self.loadings = space.loadings.detach().double().numpy()
        self.steps, self.variances, self.observed = space.steps.numpy(), variances, observed
        self.count = self.loadings.shape[1]
        self.size = self.count * space.stationary.shape[0]
        masks, patterns = np.unique(observed, axis=0, return_inverse=True)
        outputs = [np.flatnonzero(mask) for mask in masks]
        self.patterns = [_Pattern(numbers, np.ascontiguousarray(self.loadings[numbers])) for numbers in outputs]
        self.pattern = patterns.reshape(-1)
        self._transition: Any = None
        self._lag = -1

    def transition(self, row: int) -> Any:
        """The step to a row."""
        lag = int(self.steps[row])
        if lag != self._lag:
            kind = _Dense if self.size <= _DENSE else _Blocks
            self._lag, self._transition = lag, kind(*(table[lag] for table in self.tables))
        return self._transition

    def filtered(self, start: Array | None, keep: bool = False) -> Any:
        """The covariances, forwards: a :class:`_Factor` for every row."""
        C, K = _diagonal_blocks(self.stationary) if start is None else start, self.count
        for row, number in enumerate(self.pattern):
            if row or start is not None:
                C = self.transition(row).spread(C)
            outputs, loadings = self.patterns[number]
            gain = C[:, :K] @ self.loadings.T
            if not len(outputs):
                yield _Factor(gain, np.zeros((0, 0)), C if keep or row == len(self.pattern) - 1 else _NOTHING)
                continue
            noisy = loadings @ gain[:K, outputs]
            noisy.flat[:: len(outputs) + 1] += self.variances[row, outputs]
            root, failure = dpotrf(noisy, lower=1)
            if failure:
                raise NotPositiveDefiniteError(f"row {row}: the covariance of its observations cannot be factored")
            V = _forward(root, gain[:, outputs].T)
            C = C - V.T @ V
            yield _Factor(gain, root, C if keep or row == len(self.pattern) - 1 else _NOTHING)

    def whitened(
        self, factors: Sequence[_Factor], values: Array, start: Array | None
    ) -> tuple[list[Array], list[Array], Array]:
        """Columns of observations ``(N, P, S)``, forwards: predicted outputs and whitened innovations of every row."""
        K, known = self.count, np.zeros((self.size, values.shape[-1])) if start is None else start
        predicted, white = [], []
        for row, (factor, number) in enumerate(zip(factors, self.pattern, strict=True)):
            if row or start is not None:
                known = self.transition(row).forward(known)
            predicted.append(self.loadings @ known[:K])
            outputs, _ = self.patterns[number]
            white.append(_forward(factor.root, values[row, outputs] - predicted[-1][outputs]))
            if len(outputs):
                known = known + factor.gain[:, outputs] @ _backward(factor.root, white[-1])
        return predicted, white, known

    def smoothed(
        self, factors: Sequence[_Factor], predicted: Sequence[Array], white: Sequence[Array]
    ) -> tuple[Array, Array]:
        """Means of all outputs and weights of the observations, ``(N, P, S)`` each, backwards."""
        K, mean = self.count, np.stack(predicted)
        weights, r = np.zeros_like(mean), np.zeros((self.size, mean.shape[-1]))
        for row in range(len(factors) - 1, -1, -1):
            factor, (outputs, loadings) = factors[row], self.patterns[self.pattern[row]]
            if row < len(factors) - 1:
                r = self.transition(row + 1).adjoint(r)
            if len(outputs):
                weights[row, outputs] = _backward(
                    factor.root, white[row] - _forward(factor.root, factor.gain[:, outputs].T @ r)
                )
                r[:K] += loadings.T @ weights[row, outputs]
            mean[row] += factor.gain.T @ r
        return mean, weights

    def spread(self, factors: Sequence[_Factor]) -> tuple[Array, Array]:
        """Variances of all outputs and the diagonal of the inverse of the observations' covariance, backwards."""
        variance, precision = np.empty_like(self.variances), np.zeros_like(self.variances)
        N = np.zeros((self.size, self.size))
        for row in range(len(factors) - 1, -1, -1):
            factor, (outputs, _) = factors[row], self.patterns[self.pattern[row]]
            if row < len(factors) - 1:
                N = self.transition(row + 1).precise(N)
            if len(outputs):
                N, inner = self._observe(N, factor, row)
                precision[row, outputs] = np.square(_forward_inverse(factor.root, inner)).sum(0)
            variance[row] = np.einsum("pk,kp->p", self.loadings, factor.gain[: self.count])
            variance[row] -= np.einsum("kp,kp->p", factor.gain, N @ factor.gain)
        return variance.clip(min=0.0), precision

    def _observe(self, N: Array, factor: _Factor, row: int) -> tuple[Array, Array]:
        r"""N before a row's observations from that after them, and :math:`I + V N V^\top`."""
        outputs, loadings = self.patterns[self.pattern[row]]
        K = self.count
        V, white = _forward(factor.root, factor.gain[:, outputs].T), _forward(factor.root, loadings)
        M = V @ N
        inner = M @ V.T
        inner.flat[:: len(outputs) + 1] += 1.0
        M[:, :K] -= 0.5 * inner @ white
        change = white.T @ M
        N = N.copy()
        N[:K] -= change
        N[:, :K] -= change.T
        return N, inner

    def prior_draws(self, count: int, generator: torch.Generator | None) -> Array:
        """Draws of all outputs at all rows from the prior, ``(N, P, count)``."""
        roots = _root(self.tables[1])
        state = np.einsum("jmk,mks->jks", _root(self.stationary), self._normal(count, generator))
        outputs = []
        for row in range(len(self.steps)):
            if row:
                state = self.transition(row).forward(state.reshape(self.size, count)).reshape(-1, self.count, count)
                state = state + np.einsum("jmk,mks->jks", roots[self.steps[row]], self._normal(count, generator))
            outputs.append(self.loadings @ state[0])
        return np.stack(outputs)

    def _normal(self, count: int, generator: torch.Generator | None) -> Array:
        shape = (self.size // self.count, self.count, count)
        return torch.randn(shape, generator=generator, dtype=torch.float64).numpy()


class _Dense:
    """A step as one matrix product."""

    def __init__(self, transition: Array, noise: Array) -> None:
        self.A, self.Q = _diagonal_blocks(transition), _diagonal_blocks(noise)

    def forward(self, x: Array) -> Array:
        return self.A @ x

    def adjoint(self, r: Array) -> Array:
        return self.A.T @ r

    def spread(self, C: Array) -> Array:
        return self.A @ C @ self.A.T + self.Q

    def precise(self, N: Array) -> Array:
        return self.A.T @ N @ self.A


class _Blocks:
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


_NOTHING: Array = np.zeros((0, 0))


class _LogEvidence(torch.autograd.Function):
    """The filter forwards; the adjoint recursion, which gives the gradients by Fisher's identity, backwards.

    Source:
        Koopman & Shephard (1992), Exact score for time series models in state space form.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        transition, noise, stationary, loadings, residual, variances, kinds, steps, observed = arguments
        space = StateSpace(transition, noise, stationary, loadings, kinds, steps)
        ctx.chain = _Chain(space, variances.detach().double().numpy(), observed.numpy())
        ctx.needed = any(argument.requires_grad for argument in arguments)
        ctx.factors = list(ctx.chain.filtered(None, keep=ctx.needed))
        values = np.where(observed.numpy(), residual.detach().double().numpy(), 0.0)[..., None]
        _, ctx.white, _ = ctx.chain.whitened(ctx.factors, values, None)
        ctx.like = arguments[:6]
        quadratic = sum(float(white[:, 0] @ white[:, 0]) for white in ctx.white)
        return residual.new_tensor(_log_normal(quadratic, ctx.factors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        slopes = _slopes(ctx.chain, ctx.factors, ctx.white, ctx.like[0].shape[-1])
        return *(gradient * torch.as_tensor(slope).to(like) for slope, like in zip(slopes, ctx.like, strict=True)), *(
            [None] * 3
        )


def _slopes(chain: _Chain, factors: Sequence[_Factor], white: Sequence[Array], num_kinds: int) -> tuple[Array, ...]:
    """Gradients of the log evidence by transition, noise, stationary covariance, loadings, residual and variances."""
    K, size = chain.count, chain.size // chain.count
    slopes = _Slopes.zeros(chain)
    known = _filtered_means(chain, factors, white)
    r, N = np.zeros(chain.size), np.zeros((chain.size, chain.size))
    for row in range(len(factors) - 1, -1, -1):
        factor, (outputs, loadings) = factors[row], chain.patterns[chain.pattern[row]]
        if row < len(factors) - 1:
            step, lag = chain.transition(row + 1), chain.steps[row + 1]
            moved = step.forward(factor.filtered)  # A times the filtered covariance
            mean = known[row] + moved.T @ r
            slopes.noise[lag] += 0.5 * (_paired(r, r, size) - _own_blocks(N, size))
            slopes.transition[lag] += _paired(r, mean, size) - _paired_rows(N, moved.T, size)
            r, N = step.adjoint(r[:, None])[:, 0], step.precise(N)
        if not len(outputs):
            continue
        V = _forward(factor.root, factor.gain[:, outputs].T)
        u = _backward(factor.root, white[row][:, 0] - V @ r)
        gain = _backward(factor.root, V)
        slopes.loadings[outputs] += np.outer(u, (known[row] + factor.filtered @ r)[:K])
        slopes.loadings[outputs] -= gain[:, :K] - (gain @ N) @ factor.filtered[:, :K]
        N, inner = chain._observe(N, factor, row)
        slopes.residual[row, outputs] = -u
        precision = np.square(_forward_inverse(factor.root, inner)).sum(0)
        slopes.variances[row, outputs] = 0.5 * (u * u - precision)
        r[:K] += loadings.T @ u
    slopes.stationary[:] = 0.5 * (_paired(r, r, size) - _own_blocks(N, size))
    return slopes.by_kind(chain.kinds, num_kinds)


class _Slopes(NamedTuple):
    """Gradients, those of processes one by one."""

    transition: Array
    noise: Array
    stationary: Array
    loadings: Array
    residual: Array
    variances: Array

    @classmethod
    def zeros(cls, chain: _Chain) -> _Slopes:
        shapes = (*chain.tables, chain.stationary, chain.loadings, chain.variances, chain.variances)
        return cls(*(np.zeros(values.shape) for values in shapes))

    def by_kind(self, kinds: NDArray[np.int64], count: int) -> tuple[Array, ...]:
        """Those of processes summed over the processes of a kind."""
        member = np.eye(count)[kinds]
        return *(values @ member for values in self[:3]), *self[3:]


def _filtered_means(chain: _Chain, factors: Sequence[_Factor], white: Sequence[Array]) -> list[Array]:
    """The mean of the state after each row, ``(D,)`` each."""
    means, known = [], np.zeros(chain.size)
    for row, factor in enumerate(factors):
        if row:
            known = chain.transition(row).forward(known[:, None])[:, 0]
        outputs, _ = chain.patterns[chain.pattern[row]]
        if len(outputs):
            known = known + factor.gain[:, outputs] @ _backward(factor.root, white[row][:, 0])
        means.append(known)
    return means


def _paired(left: Array, right: Array, size: int) -> Array:
    """The blocks of single processes in an outer product, ``(d, d, K)``."""
    return left.reshape(size, 1, -1) * right.reshape(1, size, -1)


def _paired_rows(left: Array, right: Array, size: int) -> Array:
    """The blocks of single processes in the product of a matrix and the transpose of another, ``(d, d, K)``."""
    shape = size, -1, left.shape[-1]
    return np.einsum("jkx,mkx->jmk", left.reshape(shape), right.reshape(shape))


def _own_blocks(matrix: Array, size: int) -> Array:
    """The blocks of single processes in a matrix, ``(d, d, K)``."""
    count = len(matrix) // size
    return np.einsum("jkmk->jmk", matrix.reshape(size, count, size, count))


def _diagonal_blocks(blocks: Array) -> Array:
    """The matrix ``(D, D)`` of blocks ``(d, d, K)`` of single processes."""
    size, _, count = blocks.shape
    matrix = np.zeros((size, count, size, count))
    each = np.arange(count)
    matrix[:, each, :, each] = np.moveaxis(blocks, -1, 0)
    return matrix.reshape(size * count, size * count)


def _root(blocks: Array) -> Array:
    """Symmetric roots of positive semi-definite blocks ``(..., d, d, K)``."""
    values, vectors = np.linalg.eigh(np.moveaxis(blocks, -1, -3))
    roots = vectors * np.sqrt(values.clip(min=0.0))[..., None, :]
    return np.moveaxis(roots @ np.swapaxes(vectors, -1, -2), -3, -1)


def _forward(root: Array, columns: Array) -> Array:
    """:math:`L^{-1}B`."""
    return dtrtrs(root, columns, lower=1)[0] if len(root) else columns


def _backward(root: Array, columns: Array) -> Array:
    r""":math:`L^{-\top}B`."""
    return dtrtrs(root, columns, lower=1, trans=1)[0] if len(root) else columns


def _forward_inverse(root: Array, inner: Array) -> Array:
    r"""A root X of :math:`L^{-\top} M L^{-1} = X^\top X` of a positive definite M."""
    return dpotrf(inner, lower=0)[0] @ _forward(root, np.eye(len(root)))


def _log_normal(quadratic: float, factors: Sequence[_Factor]) -> float:
    count = sum(len(factor.root) for factor in factors)
    determinant = 2.0 * sum(float(np.log(factor.root.diagonal()).sum()) for factor in factors)
    return -0.5 * (quadratic + determinant + count * math.log(2.0 * math.pi))


def _padded(process: MarkovProcess, size: int) -> MarkovProcess:
    """With states added that are zero."""
    extra = size - process.stationary.shape[-1]
    return MarkovProcess(*(torch.nn.functional.pad(field, (0, extra, 0, extra)) for field in process))
