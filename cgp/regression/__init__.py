"""Regression with correlated Gaussian processes: exact, sparse, fully Bayesian, and in scikit-learn's convention."""

from .covariance import correlated_covariance
from .exact import CorrelatedGPRegression
from .likelihood import ProcessGaussianLikelihood
from .sparse import SparseCorrelatedGPRegression
from .variational import StochasticCorrelatedGPRegression

__all__ = [
    "CorrelatedGPRegression",
    "ProcessGaussianLikelihood",
    "SparseCorrelatedGPRegression",
    "StochasticCorrelatedGPRegression",
    "correlated_covariance",
]
