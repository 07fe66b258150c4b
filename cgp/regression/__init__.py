"""Regression with correlated Gaussian processes: structures, solvers, inference, in scikit-learn's convention."""

from .classifier import CorrelatedGPClassifier
from .covariances import (
    Affine,
    Auto,
    Coregionalised,
    Factors,
    Independent,
    MultiScale,
    Shared,
    Shifted,
    SmoothAndRough,
    Structure,
)
from .covariances.correlated import correlated_covariance
from .covariances.factors import factor_covariance
from .estimator import CorrelatedGPRegressor
from .inference import MAP, NUTS, Inference, Laplace, Minibatches, Slices, Windows
from .likelihood import ProcessGaussianLikelihood
from .posterior import Posterior
from .solvers.compressed import CompressedCorrelatedGPRegression
from .solvers.exact import CorrelatedGPRegression
from .solvers.series import SeriesCorrelatedGPRegression
from .solvers.sparse import SparseCorrelatedGPRegression
from .solvers.stochastic import StochasticCorrelatedGPRegression
from .sums import Sums

__all__ = [
    "MAP",
    "NUTS",
    "Affine",
    "Auto",
    "CompressedCorrelatedGPRegression",
    "Coregionalised",
    "CorrelatedGPClassifier",
    "CorrelatedGPRegression",
    "CorrelatedGPRegressor",
    "Factors",
    "Independent",
    "Inference",
    "Laplace",
    "Minibatches",
    "MultiScale",
    "Posterior",
    "ProcessGaussianLikelihood",
    "SeriesCorrelatedGPRegression",
    "Shared",
    "Shifted",
    "Slices",
    "SmoothAndRough",
    "SparseCorrelatedGPRegression",
    "StochasticCorrelatedGPRegression",
    "Structure",
    "Sums",
    "Windows",
    "correlated_covariance",
    "factor_covariance",
]
