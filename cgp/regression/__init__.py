"""Regression with correlated Gaussian processes: exact, sparse, fully Bayesian, and in scikit-learn's convention."""

from .classifier import CorrelatedGPClassifier
from .covariance import correlated_covariance
from .estimator import CorrelatedGPRegressor
from .exact import CorrelatedGPRegression
from .processes import ProcessGaussianLikelihood
from .series import SeriesCorrelatedGPRegression
from .sparse import SparseCorrelatedGPRegression
from .stochastic import StochasticCorrelatedGPRegression

__all__ = [
    "CorrelatedGPClassifier",
    "CorrelatedGPRegression",
    "CorrelatedGPRegressor",
    "ProcessGaussianLikelihood",
    "SeriesCorrelatedGPRegression",
    "SparseCorrelatedGPRegression",
    "StochasticCorrelatedGPRegression",
    "correlated_covariance",
]
