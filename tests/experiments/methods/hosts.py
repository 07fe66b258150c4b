"""Transformers of the smallest sizes, and inputs for them."""

from typing import Any

import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionTransformer

from cgp import SoftmaxAttention
from models import TextTransformer, VisionTransformer

SIZES: dict[str, Any] = {"embed_dim": 8, "mlp_dim": 16, "num_heads": 2}
CLASSES = 3
IMAGES = torch.linspace(-1, 1, 5 * 3 * 16 * 16).reshape(5, 3, 16, 16)
DIGITS = torch.linspace(-1, 1, 6 * 8 * 8).sin().reshape(6, 1, 8, 8)
TOKENS = torch.arange(60).reshape(12, 5) % 9
PADDING = (torch.arange(12) % 2 == 0)[:, None] & (torch.arange(5) >= 3)
WORDS = {"tokens": TOKENS, "padding_mask": PADDING}


def torchvision_host(dropout=0.1, attention_dropout=0.0):
    model = TorchvisionTransformer(
        16, 8, 2, 2, 8, 8, dropout=dropout, attention_dropout=attention_dropout, num_classes=CLASSES
    )  # fmt: skip
    nn.init.normal_(model.heads.head.weight)  # torchvision starts it at zero
    return model


def vision(attention=SoftmaxAttention, *, image_size=16, channels=3, dropout=0.3, depth=1, patch_size=8):
    return VisionTransformer(
        image_size=image_size, patch_size=patch_size, channels=channels, num_classes=CLASSES, attention=attention,
        depth=depth, dropout=dropout, **SIZES,
    )  # fmt: skip


def digits(attention=SoftmaxAttention, *, depth=2, dropout=0.0):
    return vision(attention, image_size=8, channels=1, patch_size=4, depth=depth, dropout=dropout)


def text(dropout=0.3):
    sizes = {"vocabulary_size": 9, "max_length": 8, "num_classes": CLASSES, "depth": 1, "dropout": dropout}
    return TextTransformer(attention=SoftmaxAttention, **sizes, **SIZES)
