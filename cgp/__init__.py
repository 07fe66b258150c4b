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
from .deep_gp import freeze
from .likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
from .objectives import Objective

__version__ = "0.1.0"

__all__ = [
    "CGPAttention",
    "CategoricalLikelihood",
    "HomoscedasticLikelihood",
    "KEPSVGPAttention",
    "KernelAttention",
    "Objective",
    "PrimalAttention",
    "SGPAttention",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "TravellingInducingPoints",
    "__version__",
    "freeze",
]
