"""Linear operators whose sampling and log-density keep a posterior's structure, and the distribution made of them."""

from .deferred_normal import DeferredNormal
from .dense_covariance import DenseCovarianceLinearOperator
from .low_rank_plus_diagonal import LowRankPlusDiagonalLinearOperator
from .multivariate_normal import multivariate_normal, shared_covariance
from .shared_covariance import SharedCovarianceLinearOperator

__all__ = [
    "DeferredNormal",
    "DenseCovarianceLinearOperator",
    "LowRankPlusDiagonalLinearOperator",
    "SharedCovarianceLinearOperator",
    "multivariate_normal",
    "shared_covariance",
]
