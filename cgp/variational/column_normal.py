"""Posteriors whose columns have covariances of their own, as GPyTorch's distributions."""

from __future__ import annotations

from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator

from cgp.functional.column_gaussians import ColumnGaussian
from cgp.operators import DenseCovarianceLinearOperator, LowRankPlusDiagonalLinearOperator

__all__ = ["column_covariance", "column_normal"]


def column_normal(posterior: ColumnGaussian) -> MultivariateNormal:
    """GPyTorch's distribution of a posterior with a covariance a column.

    Args:
        posterior: mean ``(*batch, n, s)`` and the covariance of each column.

    Returns:
        Batch shape ``(*batch, s)``, event shape ``(n,)``; of low rank plus a diagonal where the residual is diagonal.

    Example:
        >>> import torch
        >>> gaussian = ColumnGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(2, 1, 1), torch.ones(3, 1))
        >>> column_normal(gaussian).covariance_matrix.shape
        torch.Size([2, 3, 3])
    """
    return MultivariateNormal(posterior.mean.mT, column_covariance(posterior))


def column_covariance(posterior: ColumnGaussian) -> LinearOperator:
    """The covariance of each column.

    Args:
        posterior: mean ``(*batch, n, s)`` and the covariance of each column.

    Returns:
        ``(*batch, s, n, n)``, of low rank plus a diagonal where the residual is diagonal.

    Example:
        >>> import torch
        >>> gaussian = ColumnGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(2, 1, 1), torch.ones(3, 1))
        >>> column_covariance(gaussian).shape
        torch.Size([2, 3, 3])
    """
    if posterior.residual_root is not None:
        return DenseCovarianceLinearOperator(posterior.covariance)
    root = posterior.features[..., None, :, :] @ posterior.roots  # (*batch, s, n, m)
    return LowRankPlusDiagonalLinearOperator(root, posterior.diagonal.mT.expand(root.shape[:-1]))
