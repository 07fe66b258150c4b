"""Reference models of the papers; they take an attention factory and know no method by name."""

from models.causal_transformer import CausalTransformer
from models.configurations import CGPT_CIFAR, DIGITS, KEP_SVGP_CIFAR, VisionTransformerSizes
from models.text_transformer import TextTransformer
from models.transformer_layer import AttentionFactory, TransformerLayer
from models.vision_transformer import VisionTransformer

__all__ = [
    "CGPT_CIFAR",
    "DIGITS",
    "KEP_SVGP_CIFAR",
    "AttentionFactory",
    "CausalTransformer",
    "TextTransformer",
    "TransformerLayer",
    "VisionTransformer",
    "VisionTransformerSizes",
]
