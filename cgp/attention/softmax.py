"""Softmax attention, the deterministic baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Attention
from .inputs import AttentionInputs
from .masks import causal_mask

__all__ = ["SoftmaxAttention", "softmax_heads"]


class SoftmaxAttention(Attention):
    r"""Scaled dot-product attention.

    .. math:: \operatorname{softmax}(QK^\top/\sqrt{s})\,V

    As in ``torch.nn.MultiheadAttention``, a padded query attends, and NaN or infinity in tokens gives NaN; heads of
    Gaussian-process blocks are zero, or raise ValueError, there.

    Example:
        >>> SoftmaxAttention(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    takes_any_mask = weighs_values = True
    takes_causal = True

    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs ``(*batch, h, Nq, s)`` of projected tokens."""
        return softmax_heads(tokens)


def softmax_heads(tokens: AttentionInputs) -> Tensor:
    """Softmax attention of every head, ``(*batch, h, Nq, s)``; zero for queries whose keys are all masked."""
    mask = _additive_mask(tokens)
    attended = nn.functional.scaled_dot_product_attention(
        tokens.q, tokens.k, tokens.v, attn_mask=mask, is_causal=tokens.is_causal and mask is None
    )
    if mask is None:
        return attended
    nothing = (mask == -torch.inf).all(-1, keepdim=True)
    return attended.masked_fill(nothing, 0.0)


def _additive_mask(tokens: AttentionInputs) -> Tensor | None:
    """The masks of a call as one additive bias, or None where SDPA needs none."""
    if tokens.key_padding is None and tokens.attn_mask is None:
        return None
    n_q, n_k = tokens.q.shape[-2], tokens.k.shape[-2]
    bias = tokens.q.new_zeros(n_q, n_k)
    if tokens.attn_mask is not None:
        given = tokens.attn_mask
        bias = bias.masked_fill(given, -torch.inf) if given.dtype == torch.bool else bias + given
    if tokens.is_causal:
        bias = bias.masked_fill(causal_mask(n_q, n_k, bias.device), -torch.inf)
    if tokens.key_padding is not None:
        bias = bias.masked_fill(tokens.key_padding[..., None, :], -torch.inf)
    return bias
