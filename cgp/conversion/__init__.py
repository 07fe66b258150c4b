"""Gaussian-process attention put into models that exist already: torchvision, timm, transformers, torch, one's own."""

from .adapter import Adapter, ConvertedAttention, Projections
from .convert import convert
from .description import describe
from .inducing import initialize_inducing
from .layout import TokenLayout, token_layout
from .registry import register_adapter
from .storage import from_pretrained, save_pretrained

__all__ = [
    "Adapter",
    "ConvertedAttention",
    "Projections",
    "TokenLayout",
    "convert",
    "describe",
    "from_pretrained",
    "initialize_inducing",
    "register_adapter",
    "save_pretrained",
    "token_layout",
]
