"""The vision transformer of the papers."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from models.patch_embedding import PatchEmbedding
from models.pooling import pooling_layer
from models.transformer_layer import AttentionFactory, transformer_layers

__all__ = ["VisionTransformer"]


class VisionTransformer(nn.Module):
    r"""A pre-norm vision transformer around any attention.

    .. math:: \mathrm{logits} = W\,\mathrm{pool}(\mathrm{norm}(f_L \circ \dots \circ f_1(\mathrm{embed}(x)))) + b

    Args:
        image_size: side of the (square) images, in pixels.
        patch_size: side of a patch, in pixels.
        channels: number C of colour channels.
        num_classes: number of classes.
        depth: number L of layers.
        embed_dim: width d of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        attention: factory `(embed_dim, num_heads) -> module`, or a sequence of them, one per layer.
        pooling: "mean", or "sequence" for a learned weighted mean.
        dropout: probability of dropping an entry of the embedding and of each branch.

    Raises:
        ValueError: if the sizes do not fit together, or the number of factories is not the depth.

    Reference: CGPT, section 5; KEP-SVGP, appendix C.

    Example:
        >>> from models import DIGITS
        >>> class Mean(nn.Module):
        ...     def forward(self, x):
        ...         return x.mean(-2, keepdim=True).expand_as(x)
        >>> model = VisionTransformer(**DIGITS, num_classes=10, attention=lambda d, h: Mean())
        >>> model(torch.zeros(3, 1, 8, 8)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        *,
        image_size: int,
        patch_size: int,
        channels: int,
        num_classes: int,
        depth: int,
        embed_dim: int,
        mlp_dim: int,
        num_heads: int,
        attention: AttentionFactory | Sequence[AttentionFactory],
        pooling: Literal["mean", "sequence"] = "mean",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = PatchEmbedding(
            image_size=image_size, patch_size=patch_size, channels=channels, embed_dim=embed_dim
        )
        self.dropout = nn.Dropout(dropout)
        self.layers: nn.ModuleList = transformer_layers(
            attention, depth, embed_dim=embed_dim, mlp_dim=mlp_dim, num_heads=num_heads, dropout=dropout
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.pooling = pooling_layer(pooling, embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(
        self,
        images: torch.Tensor,  # shape: (*batch, C, H, W)
    ) -> torch.Tensor:  # shape: (*batch, classes), or (S, *batch, classes) where a layer draws S
        """Compute the logits."""
        x = self.dropout(self.embedding(images))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.pooling(self.norm(x)))
