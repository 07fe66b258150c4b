"""Attention blocks, one method a file."""

from .base import Attention
from .correlated import CGPAttention
from .gaussian_process import GaussianProcessAttention
from .kep_svgp import KEPSVGPAttention
from .kernel import KernelAttention
from .loss_terms import LossTerm
from .primal import PrimalAttention
from .sgpa import SGPAttention
from .softmax import SoftmaxAttention
from .sparse_correlated import SparseCGPAttention
from .tokens import Tokens
from .travelling import TravellingInducingPoints

__all__ = [
    "Attention",
    "CGPAttention",
    "GaussianProcessAttention",
    "KEPSVGPAttention",
    "KernelAttention",
    "LossTerm",
    "PrimalAttention",
    "SGPAttention",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "Tokens",
    "TravellingInducingPoints",
]
