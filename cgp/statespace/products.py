"""Products and solutions with the covariance of a state space, in linear time and with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cgp.functional.linalg import differentiable_once
from cgp.functional.threads import one_blas_thread

from .factors import factor_of
from .filter import Array, Chain
from .lane_factor import LaneTables
from .slopes import Slopes, bilinear_slopes
from .space import StateSpace

__all__ = ["Products", "bilinear_gradients", "covariance_columns", "covariance_product", "covariance_solve"]

_WORK = 500  # states and outputs that lanes take in the time of a row


def covariance_product(space: StateSpace, columns: Tensor) -> Tensor:
    r"""The covariance of all cells, without noise, times columns, :math:`KB`.

    Args:
        space: state space of N rows and P outputs.
        columns: B, ``(N, P, S)``.

    Returns:
        ``(N, P, S)``, with gradients in closed form.
    """
    return _CovarianceProduct.apply(*space[:4], columns, space.kinds, space.steps)


@torch.no_grad()
def covariance_columns(space: StateSpace, columns: Tensor) -> Tensor:
    r"""As :func:`covariance_product`, without gradients, and in the memory of its result for stationary processes.

    .. math:: z_i = A_i z_{i-1} + PH^\top b_i, \quad u_{i-1} = A_i^\top(u_i + H^\top b_i), \qquad
        (Kb)_i = H(z_i + Pu_i)

    Args:
        space: state space of N rows and P outputs.
        columns: B, ``(N, P, S)``.

    Returns:
        ``(N, P, S)``.
    """
    chain, values = Chain(space), _array(columns)
    A, Q, P = space.transition.double(), space.noise.double(), space.stationary.double()
    moved = torch.einsum("uabk,bck,udck->uadk", A, P, A) + Q
    if not torch.allclose(moved, P.expand_as(moved), rtol=1e-9, atol=1e-12):
        return torch.as_tensor(chain.product(values)[0])
    return torch.as_tensor(_stationary_product(chain, values))


@one_blas_thread
def _stationary_product(chain: Chain, columns: Array) -> Array:
    """The product of :func:`covariance_columns`."""
    first, K = chain.stationary[0], chain.count  # P is symmetric
    product, full = np.empty_like(columns), (len(chain.stationary), K, columns.shape[-1])
    given = [bool(each.any()) for each in columns]
    z, u = np.zeros((2, chain.size, columns.shape[-1]))
    for row in range(len(columns)):
        z = chain.transition(row).forward(z) if row else z
        if given[row]:
            z = z + (first[:, :, None] * (chain.loadings.T @ columns[row])).reshape(z.shape)
        product[row] = chain.loadings @ z[:K]
    for row in range(len(columns) - 1, 0, -1):
        product[row] += chain.loadings @ np.einsum("ak,aks->ks", first, u.reshape(full))
        if given[row]:
            u[:K] += chain.loadings.T @ columns[row]
        u = chain.transition(row).adjoint(u)
    product[0] += chain.loadings @ np.einsum("ak,aks->ks", first, u.reshape(full))
    return product


def covariance_solve(space: StateSpace, columns: Tensor, noise: Tensor, observed: Tensor) -> Tensor:
    r""":math:`(K + \Sigma)^{-1}B` of the observed cells.

    Args:
        space: state space of N rows and P outputs.
        columns: B, ``(N, P, S)``; other cells are ignored.
        noise: noise variances, ``(N, P)``.
        observed: ``(N, P)`` booleans.

    Returns:
        ``(N, P, S)``, zero at other cells, with gradients in closed form.
    """
    return _CovarianceSolve.apply(*space[:4], columns, noise, space.kinds, space.steps, observed)


def bilinear_gradients(space: StateSpace, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    r"""Gradients of :math:`\operatorname{tr} B^\top(K + \Sigma)C` for columns B and C, ``(N, P, S)``.

    Returns:
        By transition, noise, stationary covariance, loadings and the cells' variances.
    """
    products = Products(Chain(space))
    slopes = products.slopes(*(products.parts(_array(columns))[1] for columns in (left, right)))
    by_kind = slopes.by_kind(space.kinds.numpy(), space[0].shape[-1])
    return tuple(torch.as_tensor(each).to(left) for each in (*by_kind[:4], by_kind[5]))


class Products:
    """Products with the covariance, row by row or in lanes."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        outputs = len(chain.loadings)
        self._lanes = LaneTables(chain, complete=True) if chain.size * outputs < _WORK else None

    def parts(self, columns: Array) -> tuple[Array, Any]:
        """The product with columns ``(N, P, S)``, and what gradients need of it."""
        if self._lanes is None:
            return self._chain.product(columns)
        product = self._lanes.lanes.product(self._lanes.columns(columns), self._lanes.first)
        return self._lanes.table(self._lanes.lanes.readings(product.after)), product

    def slopes(self, left: Any, right: Any) -> Slopes:
        """Gradients of the bilinear form of two columns, as of their parts."""
        if self._lanes is None:
            return bilinear_slopes(self._chain, left, right)
        return self._lanes.slopes(self._lanes.lanes.bilinear_slopes(left, right))


class _CovarianceProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        columns, kinds, steps = arguments[4:]
        chain = Chain(StateSpace._make((*arguments[:4], kinds, steps)))
        ctx.products, ctx.kinds, ctx.like = Products(chain), chain.kinds, arguments[:5]
        values, ctx.parts = ctx.products.parts(_array(columns))
        return torch.as_tensor(values).to(columns)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, parts = ctx.products.parts(_array(gradient))
        slopes = ctx.products.slopes(parts, ctx.parts)._replace(residual=values)
        return *slopes.gradients(ctx.kinds, ctx.like), None, None


class _CovarianceSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        columns, noise, kinds, steps, observed = arguments[4:]
        ctx.chain = Chain(StateSpace._make((*arguments[:4], kinds, steps)), noise, observed)
        ctx.factor, ctx.like = factor_of(ctx.chain), arguments[:6]
        ctx.solution = _solved(ctx.factor, ctx.chain, columns)
        return torch.as_tensor(ctx.solution).to(columns)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        products, solved = Products(ctx.chain), _solved(ctx.factor, ctx.chain, gradient)
        slopes = products.slopes(products.parts(-solved)[1], products.parts(ctx.solution)[1])
        return *slopes._replace(residual=solved).gradients(ctx.chain.kinds, ctx.like), None, None, None


def _solved(factor: Any, chain: Chain, columns: Tensor) -> Array:
    return factor.smoothed(factor.whitened(chain.known(columns), None))[1]


def _array(values: Tensor) -> Array:
    return values.detach().double().numpy()
