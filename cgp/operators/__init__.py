"""Linear operators whose sampling and log-density keep a posterior's structure, and the distribution made of them."""

from .dense_covariance import DenseCovarianceLinearOperator
from .low_rank_plus_diagonal import LowRankPlusDiagonalLinearOperator
from .multivariate_normal import multivariate_normal
from .shared_covariance import SharedCovarianceLinearOperator

__all__ = [
    "DenseCovarianceLinearOperator",
    "LowRankPlusDiagonalLinearOperator",
    "SharedCovarianceLinearOperator",
    "multivariate_normal",
]
