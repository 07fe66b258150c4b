"""From a posterior's tensors to GPyTorch's distribution, the structure of the covariance kept."""

from __future__ import annotations

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator

from cgp.functional.gaussians import DenseGaussian, Gaussian, LowRankGaussian, MarginalGaussian

from .dense_covariance import DenseCovarianceLinearOperator
from .low_rank_plus_diagonal import LowRankPlusDiagonalLinearOperator
from .shared_covariance import SharedCovarianceLinearOperator

__all__ = ["multivariate_normal", "shared_covariance"]


def multivariate_normal(posterior: Gaussian) -> MultivariateNormal:
    r"""GPyTorch's distribution of a posterior whose s columns share a covariance.

    Its batch shape is ``(*batch, s)`` and its event shape ``(n,)``; the s channels are independent. The covariance is
    factorised once for all of them and, where it is of low rank plus a diagonal, never built. Padded tokens have zero
    variance: draws give them their mean; ``log_prob`` refuses them with a ValueError (``posterior.log_prob`` leaves
    them out), unless a likelihood has added noise.

    Args:
        posterior: mean ``(*batch, n, s)`` and a covariance over the n tokens.

    Returns:
        The distribution.

    Raises:
        TypeError: if the posterior is of no known class.

    Example:
        >>> posterior = LowRankGaussian(torch.zeros(6, 2), torch.ones(6, 3), torch.ones(6))
        >>> distribution = multivariate_normal(posterior)
        >>> distribution.batch_shape, distribution.event_shape, distribution.rsample().shape
        (torch.Size([2]), torch.Size([6]), torch.Size([2, 6]))
    """
    return MultivariateNormal(posterior.mean.mT, shared_covariance(posterior))


def shared_covariance(posterior: Gaussian) -> LinearOperator:
    """The covariance of a posterior's s columns, factorised once for all of them.

    Args:
        posterior: mean ``(*batch, n, s)`` and a covariance over the n tokens.

    Returns:
        ``(*batch, s, n, n)``.

    Raises:
        TypeError: if the posterior is of no known class.

    Example:
        >>> shared_covariance(LowRankGaussian(torch.zeros(6, 2), torch.ones(6, 3), torch.ones(6))).shape
        torch.Size([2, 6, 6])
    """
    shape = posterior.mean.mT.shape  # (*batch, s, n)
    covariance = _covariance(posterior).unsqueeze(-3)  # (*batch, 1, n, n)
    own = (1,) * (len(shape) + 1 - covariance.dim()) + covariance.batch_shape
    repeats = (size // max(one, 1) for size, one in zip(shape[:-1], own, strict=True))
    return SharedCovarianceLinearOperator(covariance, torch.Size(repeats))


def _covariance(posterior: Gaussian) -> LinearOperator:
    """The covariance over tokens, ``(*batch, n, n)``."""
    if isinstance(posterior, MarginalGaussian):
        # A root of zeros: the same operator, with the same care for variances that are zero.
        variances = posterior.variances
        return LowRankPlusDiagonalLinearOperator(torch.zeros_like(variances).unsqueeze(-1), variances)
    if not isinstance(posterior, Gaussian):
        raise TypeError(f"posterior: expected one of the Gaussians of cgp.functional, got {type(posterior).__name__}")
    joint = posterior.joint()
    if isinstance(joint, DenseGaussian):
        return DenseCovarianceLinearOperator(joint.covariance)
    assert isinstance(joint, LowRankGaussian)
    return LowRankPlusDiagonalLinearOperator(joint.root, joint.diagonal)
