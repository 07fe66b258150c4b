r"""Exact regression with a Gaussian process, as functions of matrices.

:math:`\Sigma` is the diagonal matrix of the noises, r the observations less their mean.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.functional.linalg import cholesky, log_determinant, solve_lower

__all__ = [
    "ExactCondition",
    "Moments",
    "exact_condition",
    "exact_covariance",
    "exact_evidence",
    "exact_log_density",
    "exact_moments",
]

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Moments(NamedTuple):
    """Mean and variance of marginals.

    Attributes:
        mean: ``(*batch, n)``.
        variance: ``(*batch, n)``.
    """

    mean: Tensor
    variance: Tensor


class ExactCondition(NamedTuple):
    r"""What prediction needs of the observations.

    Attributes:
        factor: L with :math:`LL^\top = K + \Sigma`, ``(*batch, n, n)``.
        whitened: :math:`L^{-1}r`, ``(*batch, n)``.
    """

    factor: Tensor
    whitened: Tensor


def exact_condition(covariance: Tensor, noise: Tensor, residual: Tensor) -> ExactCondition:
    r"""Factor the covariance of the observations.

    Args:
        covariance: K, ``(*batch, n, n)``.
        noise: the diagonal of :math:`\Sigma`, ``(*batch, n)``.
        residual: r, ``(*batch, n)``.

    Returns:
        The factor, and r whitened by it.
    """
    factor = cholesky(covariance + torch.diag_embed(noise), name="covariance of the observations", jitter=0.0)
    return ExactCondition(factor, solve_lower(factor, residual.unsqueeze(-1)).squeeze(-1))


def exact_log_density(condition: ExactCondition) -> Tensor:
    r"""Log marginal likelihood, :math:`-\tfrac12[\|L^{-1}r\|^2 + \log|K+\Sigma| + n\log 2\pi]`.

    Args:
        condition: the factored observations.

    Returns:
        ``(*batch,)``, in nats.

    Example:
        >>> exact_log_density(exact_condition(torch.zeros(1, 1), torch.ones(1), torch.zeros(1)))
        tensor(-0.9189)
    """
    count = condition.whitened.shape[-1]
    return -0.5 * (condition.whitened.square().sum(-1) + log_determinant(condition.factor) + count * _LOG_TWO_PI)


def exact_evidence(covariance: Tensor, noise: Tensor, residual: Tensor) -> Tensor:
    r"""Log marginal likelihood, with its gradient in closed form.

    .. math:: \frac{\partial}{\partial K} = \tfrac12\big(\alpha\alpha^\top - (K+\Sigma)^{-1}\big), \qquad
        \alpha = (K+\Sigma)^{-1}r

    The value is that of :func:`exact_log_density`; differentiating through the factor instead costs several times more.

    Args:
        covariance: K, ``(*batch, n, n)``.
        noise: ``(*batch, n)``.
        residual: r, ``(*batch, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Source:
        Rasmussen & Williams (2006), equation (5.9).

    Example:
        >>> exact_evidence(torch.zeros(1, 1), torch.ones(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return _Evidence.apply(covariance + torch.diag_embed(noise), residual)


class _Evidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, covariance: Tensor, residual: Tensor) -> Tensor:
        condition = exact_condition(covariance, torch.zeros_like(residual), residual)
        ctx.save_for_backward(condition.factor, condition.whitened)
        return exact_log_density(condition)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        factor, whitened = ctx.saved_tensors
        weights = torch.linalg.solve_triangular(factor.mT, whitened.unsqueeze(-1), upper=True)
        slope = weights @ weights.mT - torch.cholesky_inverse(factor)
        in_residual = -gradient.unsqueeze(-1) * weights.squeeze(-1)
        return 0.5 * gradient[..., None, None] * slope, in_residual


def exact_moments(condition: ExactCondition, cross: Tensor, prior_variance: Tensor) -> Moments:
    r"""Marginals of the posterior, less the mean function.

    .. math:: K_{*n}(K+\Sigma)^{-1}r, \qquad k_{**} - \|L^{-1}k_{n*}\|^2

    Args:
        condition: the factored observations.
        cross: :math:`K_{n*}`, ``(*batch, n, t)``.
        prior_variance: ``(*batch, t)``.

    Returns:
        t means and variances; rounding below zero is cut.
    """
    features = solve_lower(condition.factor, cross)
    mean = (features * condition.whitened.unsqueeze(-1)).sum(-2)
    return Moments(mean, (prior_variance - features.square().sum(-2)).clamp(min=0.0))


def exact_covariance(condition: ExactCondition, cross: Tensor, prior: Tensor) -> Tensor:
    r"""Covariance of the posterior, :math:`K_{**} - K_{*n}(K+\Sigma)^{-1}K_{n*}`.

    Args:
        condition: the factored observations.
        cross: :math:`K_{n*}`, ``(*batch, n, t)``.
        prior: :math:`K_{**}`, ``(*batch, t, t)``.

    Returns:
        ``(*batch, t, t)``.
    """
    features = solve_lower(condition.factor, cross)
    return prior - features.mT @ features
