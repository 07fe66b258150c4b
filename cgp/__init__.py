"""Honest uncertainty for transformers: correlated Gaussian process attention in the GPyTorch ecosystem."""

from .attention import CGPAttention, KernelAttention, SoftmaxAttention, SparseCGPAttention
from .deep_gp import freeze
from .likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
from .objectives import Objective

__version__ = "0.1.0"

__all__ = [
    "CGPAttention",
    "CategoricalLikelihood",
    "HomoscedasticLikelihood",
    "KernelAttention",
    "Objective",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "__version__",
    "freeze",
]
