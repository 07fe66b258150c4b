"""Attention blocks, one method a file."""

from .base import Attention, Tokens
from .correlated import CGPAttention
from .gaussian_process import GaussianProcessAttention
from .kernel import KernelAttention
from .loss_terms import LossTerm
from .softmax import SoftmaxAttention
from .sparse_correlated import SparseCGPAttention

__all__ = [
    "Attention",
    "CGPAttention",
    "GaussianProcessAttention",
    "KernelAttention",
    "LossTerm",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "Tokens",
]
