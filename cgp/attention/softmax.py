"""Softmax attention, the deterministic baseline."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cgp.functional.normalised_softmax import has_normaliser, normalised_softmax

from .base import Attention
from .inputs import AttentionInputs
from .masks import causal_mask

__all__ = ["NormalisedHeads", "SoftmaxAttention", "normalised_heads", "softmax_heads"]


class SoftmaxAttention(Attention):
    r"""Scaled dot-product attention.

    .. math:: \operatorname{softmax}(QK^\top/\sqrt{s})\,V

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        bias: whether the projections have biases.
        device: of the parameters.
        dtype: of the parameters.

    Example:
        >>> SoftmaxAttention(8, 2)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    takes_any_mask = True
    takes_causal = True

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """Head outputs.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        return softmax_heads(tokens)


class NormalisedHeads(NamedTuple):
    """Softmax attention with what it knows of its normaliser.

    Attributes:
        mean: ``(*batch, h, Nq, s)``.
        log_normaliser: ``(*batch, h, Nq)``, or None where it is not to be had for nothing.
    """

    mean: Tensor
    log_normaliser: Tensor | None


def normalised_heads(tokens: AttentionInputs) -> NormalisedHeads:
    """Softmax attention of every head with the logarithm of its normaliser where PyTorch's kernel gives it out.

    Args:
        tokens: the projected tokens.

    Returns:
        Mean and normaliser.
    """
    is_plain = tokens.key_padding is None and tokens.attn_mask is None and not tokens.is_causal
    if is_plain and has_normaliser(tokens.q):
        return NormalisedHeads(*normalised_softmax(tokens.q, tokens.k, tokens.v))
    return NormalisedHeads(softmax_heads(tokens), None)


def softmax_heads(tokens: AttentionInputs) -> Tensor:
    """Softmax attention of every head; queries whose every key is masked give zero.

    Args:
        tokens: the projected tokens.

    Returns:
        ``(*batch, h, Nq, s)``.
    """
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
