"""Attention blocks, one method per file."""

from cgp.variational.loss_terms import LossTerm

from .base import Attention, SamplingMixin
from .correlated import CGPAttention, CorrelatedAttention
from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs, EncodedKeys
from .kep_svgp import KEPSVGPAttention
from .kernel import KernelAttention
from .ksvd import PrimalAttention
from .sgpa import SGPAttention, StandardSGPAttention
from .shared_inducing import SharedInducingPoints
from .softmax import SoftmaxAttention
from .sparse_correlated import SparseCGPAttention
from .stochastic_heads import StochasticHeads

__all__ = [
    "Attention",
    "AttentionInputs",
    "CGPAttention",
    "CorrelatedAttention",
    "EncodedKeys",
    "GaussianProcessAttention",
    "KEPSVGPAttention",
    "KernelAttention",
    "LossTerm",
    "PrimalAttention",
    "SGPAttention",
    "SamplingMixin",
    "SharedInducingPoints",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "StandardSGPAttention",
    "StochasticHeads",
]
