"""Gaussian-process posteriors around the attention of existing models: torchvision, timm, transformers, plain torch."""

from .convert import convert
from .heads import ConvertedHeads, HostAttention
from .replace import replace_attention
from .sites import attention_sites, describe

__all__ = [
    "ConvertedHeads",
    "HostAttention",
    "attention_sites",
    "convert",
    "describe",
    "replace_attention",
]
