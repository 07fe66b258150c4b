"""Regression with correlated Gaussian processes: exact, sparse, fully Bayesian, and in scikit-learn's convention."""

from .classifier import CorrelatedGPClassifier
from .covariances.correlated import correlated_covariance
from .covariances.factors import factor_covariance
from .estimator import CorrelatedGPRegressor
from .likelihood import ProcessGaussianLikelihood
from .solvers.compressed import CompressedCorrelatedGPRegression
from .solvers.exact import CorrelatedGPRegression
from .solvers.series import SeriesCorrelatedGPRegression
from .solvers.sparse import SparseCorrelatedGPRegression
from .solvers.stochastic import StochasticCorrelatedGPRegression

__all__ = [
    "CompressedCorrelatedGPRegression",
    "CorrelatedGPClassifier",
    "CorrelatedGPRegression",
    "CorrelatedGPRegressor",
    "ProcessGaussianLikelihood",
    "SeriesCorrelatedGPRegression",
    "SparseCorrelatedGPRegression",
    "StochasticCorrelatedGPRegression",
    "correlated_covariance",
    "factor_covariance",
]
