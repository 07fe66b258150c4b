"""Regression with correlated Gaussian processes: exact, sparse, fully Bayesian, and in scikit-learn's convention."""

from .classifier import CorrelatedGPClassifier
from .compressed import CompressedCorrelatedGPRegression
from .covariance import correlated_covariance
from .estimator import CorrelatedGPRegressor
from .exact import CorrelatedGPRegression
from .factors import factor_covariance
from .likelihood import ProcessGaussianLikelihood
from .series import SeriesCorrelatedGPRegression
from .sparse import SparseCorrelatedGPRegression
from .stochastic import StochasticCorrelatedGPRegression

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
