"""timm's attention: fused or separate projections, normalised queries and keys, rotary positions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import Attention, AttentionInputs

from .adapter import Adapter, ConvertedAttention, Projections
from .masks import read_pair_mask

__all__ = ["ConvertedTimmAttention", "ConvertedTimmRotaryAttention", "TimmAdapter"]

_NAMES = ("query", "key", "value")
_PLAIN = ("timm.layers.attention.Attention", "timm.models.vision_transformer.Attention")
_ROTARY = ("timm.layers.attention.AttentionRope", "timm.models.eva.EvaAttention")


class ConvertedTimmAttention(ConvertedAttention):
    """A block called as timm's ``Attention`` is.

    Args:
        host: the module whose place it takes; its norms and its dropout after the projection are kept.
        block: with the host's projections.
    """

    def __init__(self, host: Any, block: Attention) -> None:
        super().__init__(block)
        self.q_norm, self.k_norm, self.proj_drop = host.q_norm, host.k_norm, host.proj_drop
        self.num_heads = host.num_heads

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Attend.

        Args:
            x: tokens, ``(B, N, d)``.
            attn_mask: broadcastable to ``(B, h, N, N)``, True = attended, or additive float.
            is_causal: whether a token sees no later one; ``attn_mask`` is then not read.

        Returns:
            AttentionInputs ``(B, N, d)``.
        """
        return self._attend(x, attn_mask, is_causal, self.normalise)

    def normalise(self, tokens: AttentionInputs) -> AttentionInputs:
        """The host's norms of queries and keys.

        Args:
            tokens: the projected tokens.

        Returns:
            The tokens that attend.
        """
        return tokens._replace(q=_in_own_dtype(self.q_norm, tokens.q), k=_in_own_dtype(self.k_norm, tokens.k))

    def _attend(self, x: Tensor, attn_mask: Tensor | None, is_causal: bool, token_map: Any) -> Tensor:
        batch, count = x.shape[:-2], x.shape[-2]
        try:
            mask = read_pair_mask(None if is_causal else attn_mask, batch, count, count, attends=True)
        except ValueError as error:
            raise self.refusal(error) from error
        if is_causal:
            mask = mask._replace(is_causal=True)
        return self.proj_drop(self.attend(x, **mask._asdict(), token_map=token_map))


class ConvertedTimmRotaryAttention(ConvertedTimmAttention):
    """A block called as timm's ``EvaAttention`` and ``AttentionRope`` are.

    Args:
        host: the module whose place it takes.
        block: with the host's projections.
    """

    def __init__(self, host: Any, block: Attention) -> None:
        super().__init__(host, block)
        self.num_prefix_tokens, self.rotate_half = host.num_prefix_tokens, getattr(host, "rotate_half", False)

    def forward(  # type: ignore[override]
        self, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend.

        Args:
            x: tokens, ``(B, N, d)``.
            rope: rotary embedding of the patch tokens, or None.
            attn_mask: broadcastable to ``(B, h, N, N)``, True = attended, or additive float.
            is_causal: whether a token sees no later one; ``attn_mask`` is then not read.

        Returns:
            AttentionInputs ``(B, N, d)``.
        """
        return self._attend(x, attn_mask, is_causal, partial(self.rotate, rope=rope))

    def rotate(self, tokens: AttentionInputs, rope: Tensor | None) -> AttentionInputs:
        """The host's norms and rotations; class and register tokens are not rotated.

        Args:
            tokens: the projected tokens.
            rope: rotary embedding of the patch tokens, or None.

        Returns:
            The tokens that attend.
        """
        tokens = self.normalise(tokens)
        return (
            tokens
            if rope is None
            else tokens._replace(q=self._rotated(tokens.q, rope), k=self._rotated(tokens.k, rope))
        )

    def _rotated(self, x: Tensor, rope: Tensor) -> Tensor:
        from timm.layers.pos_embed_sincos import (
            apply_rot_embed_cat,
        )  # here: the package does not need timm unless a model brings it

        prefix, patches = x[..., : self.num_prefix_tokens, :], x[..., self.num_prefix_tokens :, :]
        return torch.cat([prefix, apply_rot_embed_cat(patches, rope, half=self.rotate_half).type_as(x)], -2)


class TimmAdapter(Adapter):
    """Reads and replaces the attention of timm's ViT, DeiT and EVA families."""

    hosts = (*_PLAIN, *_ROTARY)

    def read(self, host: Any) -> Projections:
        """The host's projections, fused or separate.

        Args:
            host: the module.

        Returns:
            Its own parameters.

        Raises:
            ValueError: if heads are gated, or keys and values have fewer heads than queries.
        """
        if getattr(host, "gate", None) is not None:
            raise ValueError("gate: expected attention without a gate on its output, got a gated one")
        if getattr(host, "num_kv_heads", host.num_heads) != host.num_heads:
            raise ValueError(f"num_kv_heads: expected as many as queries, {host.num_heads}, got {host.num_kv_heads}")
        weights, biases = _fused(host) if host.qkv is not None else _separate(host)
        norm = getattr(host, "norm", None)
        out = host.proj if norm is None or isinstance(norm, nn.Identity) else nn.Sequential(norm, host.proj)
        return Projections(host.num_heads, weights, biases, out)

    def wrap(self, host: nn.Module, block: Attention) -> ConvertedTimmAttention:
        """The module in the host's place.

        Args:
            host: the module that is replaced.
            block: with its projections.

        Returns:
            With the same calling convention.
        """
        rotary = f"{type(host).__module__}.{type(host).__qualname__}" in _ROTARY
        return (ConvertedTimmRotaryAttention if rotary else ConvertedTimmAttention)(host, block)

    def plain(self, host: Any) -> bool:
        """Whether the host neither normalises nor may rotate its queries and keys.

        Args:
            host: the module.

        Returns:
            Whether it does neither.
        """
        rotary = f"{type(host).__module__}.{type(host).__qualname__}" in _ROTARY
        return not rotary and isinstance(host.q_norm, nn.Identity) and isinstance(host.k_norm, nn.Identity)


def _fused(host: Any) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    weights = dict(zip(_NAMES, host.qkv.weight.chunk(3), strict=True))
    if getattr(host, "q_bias", None) is not None:
        return weights, {"query": host.q_bias, "key": None, "value": host.v_bias}
    if host.qkv.bias is None:
        return weights, dict.fromkeys(_NAMES)
    return weights, dict(zip(_NAMES, host.qkv.bias.chunk(3), strict=True))


def _separate(host: Any) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    maps = dict(zip(_NAMES, (host.q_proj, host.k_proj, host.v_proj), strict=True))
    return {n: linear.weight for n, linear in maps.items()}, {n: linear.bias for n, linear in maps.items()}


def _in_own_dtype(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm in the precision of its weights, as in the host; heads themselves are float32 at least."""
    weight = next(norm.parameters(), x)
    return norm(x.to(weight.dtype)).to(x.dtype)
