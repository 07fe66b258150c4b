r"""Regression with a Gaussian process, as functions of matrices.

:math:`\Sigma` is the diagonal matrix of the noises, r the observations less their mean.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.functional.linalg import cholesky, log_determinant, solve_lower

__all__ = ["ExactPosterior", "Moments", "SparsePosterior", "SparseSums", "exact_evidence", "sparse_sums"]

_LOG_TWO_PI = math.log(2.0 * math.pi)


class Moments(NamedTuple):
    """Mean and variance of marginals.

    Attributes:
        mean: ``(*batch, n)``.
        variance: ``(*batch, n)``.
    """

    mean: Tensor
    variance: Tensor


class ExactPosterior:
    r"""The process given observations, :math:`K_{*n}(K+\Sigma)^{-1}r` and :math:`K_{**} - K_{*n}(K+\Sigma)^{-1}K_{n*}`.

    Args:
        covariance: K, ``(*batch, n, n)``.
        noise: ``(*batch, n)``.
        residual: r, ``(*batch, n)``.
    """

    def __init__(self, covariance: Tensor, noise: Tensor, residual: Tensor) -> None:
        self.factor = cholesky(covariance + torch.diag_embed(noise), name="covariance of the observations", jitter=0.0)
        self.whitened = solve_lower(self.factor, residual.unsqueeze(-1))

    def moments(self, cross: Tensor, prior_variance: Tensor) -> Moments:
        """Marginals at t rows, from their covariance with the observations, ``(*batch, n, t)``."""
        features = solve_lower(self.factor, cross)
        mean = (features * self.whitened).sum(-2)
        return Moments(mean, (prior_variance - features.square().sum(-2)).clamp(min=0.0))

    def covariance(self, cross: Tensor, prior: Tensor) -> Tensor:
        """Covariance of t rows, ``(*batch, t, t)``."""
        features = solve_lower(self.factor, cross)
        return prior - features.mT @ features

    def log_evidence(self) -> Tensor:
        """Log marginal likelihood in nats, ``(*batch,)``."""
        fit = self.whitened.square().sum((-2, -1))
        return -0.5 * (fit + log_determinant(self.factor) + self.whitened.shape[-2] * _LOG_TWO_PI)


def exact_evidence(covariance: Tensor, noise: Tensor, residual: Tensor) -> Tensor:
    r"""Log marginal likelihood, with its gradient in closed form.

    .. math:: \frac{\partial}{\partial K} = \tfrac12\big(\alpha\alpha^\top - (K+\Sigma)^{-1}\big), \qquad
        \alpha = (K+\Sigma)^{-1}r

    Differentiating through the factor instead costs several times more.

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
        posterior = ExactPosterior(covariance, torch.zeros_like(residual), residual)
        ctx.save_for_backward(posterior.factor, posterior.whitened)
        return posterior.log_evidence()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        factor, whitened = ctx.saved_tensors
        weights = torch.linalg.solve_triangular(factor.mT, whitened, upper=True)
        slope = weights @ weights.mT - torch.cholesky_inverse(factor)
        return 0.5 * gradient[..., None, None] * slope, -gradient.unsqueeze(-1) * weights.squeeze(-1)


class SparseSums(NamedTuple):
    r"""Sums over the observations, of a size that does not depend on their number.

    Attributes:
        gram: :math:`A\Sigma^{-1}A^\top`, ``(*batch, m, m)``.
        projection: :math:`A\Sigma^{-1}r`, ``(*batch, m)``.
        quadratic: :math:`r^\top\Sigma^{-1}r`, ``(*batch,)``.
        log_noise: :math:`\log|\Sigma|`, ``(*batch,)``.
        unexplained: :math:`\sum_i (k_{ii} - q_{ii})/\sigma_i^2`, ``(*batch,)``.
        total: n, ``(*batch,)``.
    """

    gram: Tensor
    projection: Tensor
    quadratic: Tensor
    log_noise: Tensor
    unexplained: Tensor
    total: Tensor


def sparse_sums(features: Tensor, residual: Tensor, noise: Tensor, prior_variance: Tensor) -> SparseSums:
    r"""Sums over observations; those of two sets of observations add.

    Args:
        features: :math:`A\Sigma^{-1/2}`, ``(*batch, m, n)``.
        residual: r, ``(*batch, n)``.
        noise: ``(*batch, n)``.
        prior_variance: ``(*batch, n)``.

    Returns:
        The sums, O(n m²).
    """
    whitened = residual / noise.sqrt()
    gram = features @ features.mT
    return SparseSums(
        gram=gram,
        projection=(features @ whitened.unsqueeze(-1)).squeeze(-1),
        quadratic=whitened.square().sum(-1),
        log_noise=noise.log().sum(-1),
        unexplained=(prior_variance / noise).sum(-1) - gram.diagonal(dim1=-2, dim2=-1).sum(-1),
        total=torch.full_like(noise[..., 0], noise.shape[-1]),
    )


class SparsePosterior:
    r"""The process given observations seen through inducing values, with :math:`B = I + A\Sigma^{-1}A^\top`.

    .. math:: A_*^\top B^{-1}A\Sigma^{-1}r, \qquad K_{**} - A_*^\top A_* + A_*^\top B^{-1}A_*

    Args:
        sums: over the observations.

    Source:
        Titsias (2009), equation (6), and equation (9) for the bound, with a noise for each observation.
    """

    def __init__(self, sums: SparseSums) -> None:
        identity = torch.eye(sums.gram.shape[-1], dtype=sums.gram.dtype, device=sums.gram.device)
        self.sums = sums
        self.factor = cholesky(identity + sums.gram, name="I + A A'/noise", jitter=0.0)
        self.whitened = solve_lower(self.factor, sums.projection.unsqueeze(-1))

    def moments(self, features: Tensor, prior_variance: Tensor) -> Moments:
        """Marginals at t rows, from their features, ``(*batch, m, t)``."""
        informed = solve_lower(self.factor, features)
        unexplained = (prior_variance - features.square().sum(-2)).clamp(min=0.0)
        return Moments((informed * self.whitened).sum(-2), unexplained + informed.square().sum(-2))

    def covariance(self, features: Tensor, prior: Tensor) -> Tensor:
        """Covariance of t rows, ``(*batch, t, t)``."""
        informed = solve_lower(self.factor, features)
        return prior - features.mT @ features + informed.mT @ informed

    def bound(self) -> Tensor:
        """Variational bound of the log marginal likelihood in nats, ``(*batch,)``."""
        sums = self.sums
        quadratic = sums.quadratic - self.whitened.square().sum((-2, -1))
        log_det = sums.log_noise + log_determinant(self.factor)
        return -0.5 * (quadratic + log_det + sums.total * _LOG_TWO_PI + sums.unexplained)
