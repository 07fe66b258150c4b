"""Posteriors whose columns have covariances of their own, as GPyTorch's distributions."""

from __future__ import annotations

from functools import partial

from linear_operator import LinearOperator

from cgp.functional.column_gaussians import ColumnGaussian
from cgp.operators import DenseCovarianceLinearOperator, LazyMultivariateNormal, LowRankPlusDiagonalLinearOperator

__all__ = ["column_normal", "single_normal"]


def column_normal(posterior: ColumnGaussian) -> LazyMultivariateNormal:
    """GPyTorch's distribution of a posterior with one covariance per column.

    Args:
        posterior: mean ``(*batch, n, s)`` and the covariance of each column.

    Returns:
        Batch shape ``(*batch, s)``, event shape ``(n,)``; the covariance, of low rank plus a diagonal where the
        residual is diagonal, is built when it is asked for.
    """
    return LazyMultivariateNormal(posterior.mean.mT, partial(_covariance, posterior), variance=posterior.variances.mT)


def single_normal(posterior: ColumnGaussian) -> LazyMultivariateNormal:
    """The same of a posterior of one column, without the dimension of the columns."""

    def build() -> LinearOperator:
        return _covariance(posterior)[..., 0, :, :]

    return LazyMultivariateNormal(posterior.mean[..., 0], build, variance=posterior.variances[..., 0])


def _covariance(posterior: ColumnGaussian) -> LinearOperator:
    if posterior.residual_root is not None:
        return DenseCovarianceLinearOperator(posterior.covariance)
    root = posterior.features[..., None, :, :] @ posterior.roots  # (*batch, s, n, m)
    diagonal = root.new_zeros(()) if posterior.diagonal is None else posterior.diagonal.mT
    return LowRankPlusDiagonalLinearOperator(root, diagonal.expand(root.shape[:-1]))
