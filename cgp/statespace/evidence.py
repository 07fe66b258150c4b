r"""Log-density of observations in a state space, with gradients in closed form.

Source: Koopman & Shephard (1992), Exact score for time series models in state space form.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import differentiable_once

from .factors import factor_of
from .filter import Chain
from .space import StateSpace

__all__ = ["QuadraticForm", "log_evidence", "quadratic_form"]


class QuadraticForm(NamedTuple):
    """A quadratic form of the inverse of a covariance, and the covariance's log-determinant, scalars."""

    inverse_quadratic: Tensor
    log_determinant: Tensor


def log_evidence(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor) -> Tensor:
    r"""Log-density of the observations, with gradients in closed form.

    .. math:: -\tfrac12\big[y^\top\Sigma^{-1}y + \log|\Sigma| + n\log 2\pi\big]

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
    quadratic, determinant = quadratic_form(space, residual, noise, observed)
    return -0.5 * (quadratic + determinant + int(observed.sum()) * math.log(2.0 * math.pi))


def quadratic_form(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor) -> QuadraticForm:
    r""":math:`y^\top\Sigma^{-1}y` and :math:`\log|\Sigma|` of the observations, as :func:`log_evidence`."""
    return QuadraticForm(*_QuadraticForm.apply(*space[:4], residual, noise, space.kinds, space.steps, observed))


class _QuadraticForm(torch.autograd.Function):
    """The filter forwards; the adjoint recursion, which gives the gradients by Fisher's identity, backwards."""

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        residual, variances, kinds, steps, observed = arguments[4:]
        needed = any(ctx.needs_input_grad)
        chain = Chain(StateSpace._make((*arguments[:4], kinds, steps)), variances, observed)
        ctx.factor = factor_of(chain, keep=needed)
        ctx.white = ctx.factor.whitened(chain.known(residual[..., None]), None)
        ctx.like, ctx.kinds = arguments[:6], chain.kinds
        quadratic = ctx.factor.quadratic(ctx.white)[0]
        return residual.new_tensor(quadratic), residual.new_tensor(ctx.factor.log_determinant)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, quadratic: Tensor, determinant: Tensor) -> tuple[Tensor | None, ...]:
        slopes = ctx.factor.slopes(ctx.white, float(quadratic), float(determinant))
        return *slopes.gradients(ctx.kinds, ctx.like), None, None, None
