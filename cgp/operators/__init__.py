"""Linear operators whose sampling and log-density keep a posterior's structure, and the distribution made of them."""

from .dense_covariance import DenseCovarianceLinearOperator
from .lazy_multivariate_normal import LazyMultivariateNormal
from .markov import MarkovLinearOperator
from .missing import leave_out_missing
from .shared_covariance import LowRankPlusDiagonalLinearOperator, SharedCovarianceLinearOperator, shared_covariance

__all__ = [
    "DenseCovarianceLinearOperator",
    "LazyMultivariateNormal",
    "LowRankPlusDiagonalLinearOperator",
    "MarkovLinearOperator",
    "SharedCovarianceLinearOperator",
    "leave_out_missing",
    "shared_covariance",
]
