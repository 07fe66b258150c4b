r"""Means and variances of all outputs given observations, with gradients, in linear time.

The gradient of :math:`b^\top\mu = b^\top K u`, with :math:`u = (K + \Sigma)^{-1}y` and
:math:`z = (K + \Sigma)^{-1}Kb`, is a bilinear form of covariances,

.. math:: d(b^\top\mu) = (b - z)^\top dK\,u - z^\top d\Sigma\,u + z^\top dy

and that of variances is :func:`.variance_slopes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cgp.functional.linalg import differentiable_once

from .factors import factor_of
from .filter import Array, Chain
from .lane_factor import LaneFactor, LaneTables
from .lane_filter import FilteredLanes
from .lane_variance import variance_slopes
from .products import Products
from .slopes import Slopes
from .space import StateSpace

__all__ = ["Moments", "posterior_moments"]

_MOST_ENTRIES = 2**28  # of the covariances of all states, twice


class Moments(NamedTuple):
    """Means and variances of all outputs at all rows, without noise, ``(N, P)`` each."""

    mean: Tensor
    variance: Tensor


def posterior_moments(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor) -> Moments:
    r"""Every output at every row given the observations, with gradients in closed form.

    .. math:: \mu = K(K + \Sigma)^{-1}y, \qquad v = \operatorname{diag}\big[K - K(K + \Sigma)^{-1}K\big]

    Args:
        space: state space of N rows and P outputs.
        residual: observations minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.

    Returns:
        In float64.

    Raises:
        NotPositiveDefiniteError: if the observations' covariance is not.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(3, dtype=torch.long))
        >>> y = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
        >>> moments = posterior_moments(space, y, torch.full_like(y, 0.1), torch.tensor([[True], [False], [True]]))
        >>> moments.mean[1], moments.variance[1]
        (tensor([0.7798], dtype=torch.float64), tensor([0.6231], dtype=torch.float64))
    """
    return Moments(*_Moments.apply(*space[:4], residual, noise, space.kinds, space.steps, observed))


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        residual, variances, kinds, steps, observed = arguments[4:]
        ctx.chain = Chain(StateSpace._make((*arguments[:4], kinds, steps)), variances, observed)
        ctx.factor, ctx.like = factor_of(ctx.chain, complete=True), arguments[:6]
        white = ctx.factor.whitened(ctx.chain.known(residual[..., None]), None)
        mean, ctx.weights = ctx.factor.smoothed(white)
        return torch.as_tensor(mean[..., 0]), torch.as_tensor(ctx.factor.spread()[0])

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, mean: Tensor | None, variance: Tensor | None) -> tuple[Tensor | None, ...]:
        slopes = Slopes.zeros(ctx.chain)
        if mean is not None:
            by_mean = _mean_slopes(ctx.chain, ctx.factor, ctx.weights, mean.numpy()[..., None])
            slopes = Slopes(*map(np.add, slopes, by_mean))
        if variance is not None:
            by_variance = _variance_slopes(ctx.chain, isinstance(ctx.factor, LaneFactor), variance.numpy())
            slopes = Slopes(*map(np.add, slopes, by_variance))
        return *slopes.gradients(ctx.chain.kinds, ctx.like), None, None, None


def _mean_slopes(chain: Chain, factor: Any, weights: Array, columns: Array) -> Slopes:
    products = Products(chain)
    explained = np.where(chain.observed[..., None], products.parts(columns)[0], 0.0)
    z = factor.smoothed(factor.whitened(explained, None))[1]
    slopes = products.slopes(products.parts(columns - z)[1], products.parts(weights)[1])
    return slopes._replace(residual=z[..., 0], variances=-(z * weights)[..., 0])


def _variance_slopes(chain: Chain, lanes: bool, weights: Array) -> Slopes:
    entries = weights.size * chain.size**2
    if entries > _MOST_ENTRIES:
        raise ValueError(
            f"gradients of variances: expected at most {_MOST_ENTRIES:.0e} cells times squared states, got "
            f"{entries:.0e}: predict in parts, or within torch.no_grad()"
        )
    tables = LaneTables(chain, complete=True, count=None if lanes else 1)
    filtered = FilteredLanes(tables.lanes, tables.first, keep=True)
    return tables.slopes(variance_slopes(filtered, tables.columns(weights[..., None])[:, 0]))
