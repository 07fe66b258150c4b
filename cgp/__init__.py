"""Honest uncertainty for transformers: correlated Gaussian process attention in the GPyTorch ecosystem."""

from .attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    PrimalAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
    TravellingInducingPoints,
)
from .calibration import Calibration, calibrate
from .conversion import convert, describe
from .deep_gp import freeze
from .likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
from .objectives import Objective
from .prediction import Prediction, predict

__version__ = "0.1.0"

__all__ = [
    "CGPAttention",
    "Calibration",
    "CategoricalLikelihood",
    "HomoscedasticLikelihood",
    "KEPSVGPAttention",
    "KernelAttention",
    "Objective",
    "Prediction",
    "PrimalAttention",
    "SGPAttention",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "TravellingInducingPoints",
    "__version__",
    "calibrate",
    "convert",
    "describe",
    "freeze",
    "predict",
]
