"""The transformer layer where attention takes masks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from models.transformer_layer import AttentionFactory, TransformerLayer
from models.vision_transformer import _one_a_layer

__all__ = ["MaskedTransformerLayer", "masked_layers"]


class MaskedTransformerLayer(TransformerLayer):
    r"""A pre-norm transformer layer whose attention is told of padding or of a causal order.

    Example:
        >>> from cgp import SoftmaxAttention
        >>> options = {"embed_dim": 8, "mlp_dim": 16, "num_heads": 2, "dropout": 0.0}
        >>> layer = MaskedTransformerLayer(attention=SoftmaxAttention, **options)
        >>> layer(torch.zeros(3, 5, 8), is_causal=True).shape
        torch.Size([3, 5, 8])
    """

    def forward(
        self,
        x: torch.Tensor,  # shape: (*batch, n, d)
        **masks: Any,
    ) -> torch.Tensor:  # shape: (*batch, n, d), or (S, *batch, n, d) where the attention draws S
        """Apply the layer.

        Args:
            x: tokens, `(*batch, n, d)`.
            **masks: what the attention takes: `key_padding_mask`, `attn_mask`, `is_causal`.

        Returns:
            Tokens `(*batch, n, d)`, or `(S, *batch, n, d)` where the attention draws S samples.
        """
        hidden = x + self.dropout(self.attention(self.attention_norm(x), **masks))
        return hidden + self.dropout(self.mlp(self.mlp_norm(hidden)))


def masked_layers(attention: AttentionFactory | Sequence[AttentionFactory], depth: int, **sizes: Any) -> nn.ModuleList:
    """A stack of layers.

    Args:
        attention: factory `(embed_dim, num_heads) -> module`, or a sequence of them, one a layer.
        depth: number of layers.
        **sizes: `embed_dim`, `mlp_dim`, `num_heads`, `dropout`.

    Returns:
        The layers.

    Raises:
        ValueError: if the number of factories is not the depth.
    """
    factories = _one_a_layer(attention, depth)
    return nn.ModuleList(MaskedTransformerLayer(attention=factory, **sizes) for factory in factories)
