"""The pre-norm transformer layer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["AttentionFactory", "TransformerLayer", "transformer_layers"]

AttentionFactory = Callable[[int, int], nn.Module]
"""`(embed_dim, num_heads) -> module`, the module mapping `(*batch, n, d)` to `(*batch, n, d)`."""


class TransformerLayer(nn.Module):
    r"""A pre-norm transformer layer around any attention, of the tokens themselves or of other ones.

    .. math:: h = x + \mathrm{attn}(\mathrm{norm}(x), \mathrm{norm}(c)), \qquad y = h + \mathrm{mlp}(\mathrm{norm}(h))

    with the tokens c = x in self-attention. In cross-attention, as of targets that attend to contexts, both go through
    one norm, so that tokens which attend to themselves as context are those of self-attention.

    Where the attention draws S samples, the layer's output gains S as its leading dimension.

    Args:
        embed_dim: width d of the tokens.
        mlp_dim: width of the hidden layer of the perceptron.
        num_heads: number of attention heads.
        attention: factory of the attention module.
        dropout: probability of dropping an entry of either branch.

    Raises:
        ValueError: if the attention factory does not return a module.

    Example:
        >>> class Mean(nn.Module):
        ...     def forward(self, x):
        ...         return x.mean(-2, keepdim=True).expand_as(x)
        >>> layer = TransformerLayer(embed_dim=8, mlp_dim=16, num_heads=2, attention=lambda d, h: Mean(), dropout=0.0)
        >>> layer(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        mlp_dim: int,
        num_heads: int,
        attention: AttentionFactory,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.attention = attention(embed_dim, num_heads)
        if not isinstance(self.attention, nn.Module):
            raise ValueError(
                "attention: expected a factory (embed_dim, num_heads) -> torch.nn.Module, "
                f"but it returned {type(self.attention).__name__}"
            )
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, mlp_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, embed_dim),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: torch.Tensor,  # shape: (*batch, n, d)
        context: torch.Tensor | None = None,  # shape: (*batch, k, d)
        **masks: Any,
    ) -> torch.Tensor:  # shape: (*batch, n, d), or (S, *batch, n, d) where the attention draws S
        """Apply the layer.

        Args:
            x: tokens, `(*batch, n, d)`.
            context: tokens that they attend to, `(*batch, k, d)`; None for self-attention.
            **masks: what the attention takes besides: `key_padding_mask`, `query_padding_mask` (of `x`, with a
                context), `attn_mask`, `is_causal`.

        Returns:
            Tokens `(*batch, n, d)`, or `(S, *batch, n, d)` where the attention draws S samples.

        Raises:
            ValueError: if the attention changes the shape of the tokens.
        """
        tokens = [x] if context is None else [x, context]
        attended = self.attention(*map(self.attention_norm, tokens), **masks)
        if attended.shape[-x.ndim :] != x.shape:
            raise ValueError(
                f"attention: expected an output of shape {tuple(x.shape)}, with draws in front "
                f"if any, got {tuple(attended.shape)} from {type(self.attention).__name__}"
            )
        hidden = x + self.dropout(attended)
        return hidden + self.dropout(self.mlp(self.mlp_norm(hidden)))


def transformer_layers(
    attention: AttentionFactory | Sequence[AttentionFactory], depth: int, **sizes: Any
) -> nn.ModuleList:
    """A stack of layers of the same sizes, with one factory of attention, or one per layer."""
    factories = [attention] * depth if callable(attention) else list(attention)
    if len(factories) != depth:
        raise ValueError(f"attention: expected one factory, or one for each of {depth} layers, got {len(factories)}")
    return nn.ModuleList(TransformerLayer(attention=factory, **sizes) for factory in factories)
