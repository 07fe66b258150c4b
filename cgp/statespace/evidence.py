r"""Log-density of observations in a state space, with gradients in closed form.

Source: Koopman & Shephard (1992), Exact score for time series models in state space form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from .filter import Array, Chain, Factor, inverse_diagonal, log_normal_of, process_blocks, solve_backward, solve_forward
from .space import StateSpace
from .threads import one_blas_thread

__all__ = ["log_evidence"]


def log_evidence(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor) -> Tensor:
    r"""Log-density of the observations, with gradients in closed form.

    .. math:: -\tfrac12\sum_i \Big[\|L_i^{-1}v_i\|^2 + \log|L_iL_i^\top| + |O_i|\log 2\pi\Big]

    Args:
        space: state space of N rows and P outputs.
        residual: observations minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.

    Returns:
        In nats, a scalar.

    Raises:
        NotPositiveDefiniteError: if the observations' covariance is not.
    """
    return _LogEvidence.apply(*space[:4], residual, noise, space.kinds, space.steps, observed)


class _LogEvidence(torch.autograd.Function):
    """The filter forwards; the adjoint recursion, which gives the gradients by Fisher's identity, backwards.

    Source:
        Koopman & Shephard (1992), Exact score for time series models in state space form.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        transition, noise, stationary, loadings, residual, variances, kinds, steps, observed = arguments
        space = StateSpace(transition, noise, stationary, loadings, kinds, steps)
        ctx.chain = Chain(space, variances.detach().double().numpy(), observed.numpy())
        ctx.needed = any(argument.requires_grad for argument in arguments)
        ctx.factors = list(ctx.chain.filtered(None, keep=ctx.needed))
        values = np.where(observed.numpy(), residual.detach().double().numpy(), 0.0)[..., None]
        _, ctx.white, _ = ctx.chain.whitened(ctx.factors, values, None)
        ctx.like = arguments[:6]
        return residual.new_tensor(log_normal_of(ctx.white, ctx.factors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        slopes = _slopes(ctx.chain, ctx.factors, ctx.white, ctx.like[0].shape[-1])
        return *(gradient * torch.as_tensor(slope).to(like) for slope, like in zip(slopes, ctx.like, strict=True)), *(
            [None] * 3
        )


@one_blas_thread
def _slopes(chain: Chain, factors: Sequence[Factor], white: Sequence[Array], num_kinds: int) -> tuple[Array, ...]:
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
            slopes.noise[lag] += 0.5 * (_paired(r, r, size) - process_blocks(N, size))
            slopes.transition[lag] += _paired(r, mean, size) - _paired_rows(N, moved.T, size)
            r, N = step.adjoint(r[:, None])[:, 0], step.precise(N)
        if not len(outputs):
            continue
        V = solve_forward(factor.root, factor.gain[:, outputs].T)
        u = solve_backward(factor.root, white[row][:, 0] - V @ r)
        gain = solve_backward(factor.root, V)
        slopes.loadings[outputs] += np.outer(u, (known[row] + factor.filtered @ r)[:K])
        slopes.loadings[outputs] -= gain[:, :K] - (gain @ N) @ factor.filtered[:, :K]
        N, inner = chain.observe(N, factor, row)
        slopes.residual[row, outputs] = -u
        slopes.variances[row, outputs] = 0.5 * (u * u - inverse_diagonal(factor.root, inner))
        r[:K] += loadings.T @ u
    slopes.stationary[:] = 0.5 * (_paired(r, r, size) - process_blocks(N, size))
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
    def zeros(cls, chain: Chain) -> _Slopes:
        shapes = (*chain.tables, chain.stationary, chain.loadings, chain.variances, chain.variances)
        return cls(*(np.zeros(values.shape) for values in shapes))

    def by_kind(self, kinds: NDArray[np.int64], count: int) -> tuple[Array, ...]:
        """The gradients summed over the processes of each kind."""
        member = np.eye(count)[kinds]
        return *(values @ member for values in self[:3]), *self[3:]


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
