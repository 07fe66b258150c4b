"""``nn.MultiheadAttention``, wherever it stands: alone, in ``nn.TransformerEncoder``, in torchvision."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from cgp.attention import Attention

from .adapter import Adapter, ConvertedAttention, Projections
from .masks import HostMask, read_key_padding, read_pair_mask

__all__ = ["ConvertedMultiheadAttention", "TorchAdapter"]

_NAMES = ("query", "key", "value")


class ConvertedMultiheadAttention(ConvertedAttention):
    """A block called as ``nn.MultiheadAttention`` is; the attention weights it returns are None.

    Args:
        host: the module whose place it takes.
        block: with the host's projections.
    """

    in_proj_bias = None  # nn.TransformerEncoderLayer reads it, and leaves its fused path where there is none
    _qkv_same_embed_dim = True

    def __init__(self, host: nn.MultiheadAttention, block: Attention) -> None:
        super().__init__(block)
        self.batch_first, self.num_heads, self.embed_dim = host.batch_first, host.num_heads, host.embed_dim

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Attend.

        Args:
            query: tokens, ``(B, Nq, d)``, ``(Nq, B, d)`` unless ``batch_first``, or ``(Nq, d)``.
            key: tokens, likewise.
            value: tokens, likewise.
            key_padding_mask: ``(B, Nk)``; True, or minus infinity, is padding.
            need_weights: not used: there are no weights to return.
            attn_mask: ``(Nq, Nk)`` or ``(B·h, Nq, Nk)``; True, or minus infinity, is not attended.
            average_attn_weights: not used.
            is_causal: a hint that ``attn_mask`` is causal; the mask itself is read.

        Returns:
            AttentionInputs shaped as ``query``, and None.
        """
        turned = not self.batch_first and query.dim() == 3
        q, k, v = (x.transpose(0, 1) for x in (query, key, value)) if turned else (query, key, value)
        mask = self._read(q, k, key_padding_mask, attn_mask)
        others = () if key is query and value is query else (k, v)
        out = self.attend(q, *others, **mask._asdict())
        return (out.transpose(-2, -3) if turned else out), None

    def _read(self, query: Tensor, key: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> HostMask:
        batch, sizes = query.shape[:-2], (query.shape[-2], key.shape[-2])
        try:
            if attn_mask is not None and attn_mask.dim() == 3 and len(batch) == 1:
                attn_mask = attn_mask.unflatten(0, (-1, self.num_heads))
            pairs = read_pair_mask(attn_mask, batch, *sizes, attends=False)
            padding = read_key_padding(key_padding_mask, real=False)
        except ValueError as error:
            raise self.refusal(error) from error
        if padding is None or pairs.key_padding_mask is None:
            return pairs if padding is None else pairs._replace(key_padding_mask=padding)
        return pairs._replace(key_padding_mask=padding | pairs.key_padding_mask)


class TorchAdapter(Adapter):
    """Reads and replaces ``nn.MultiheadAttention``."""

    hosts = (nn.MultiheadAttention,)

    def read(self, host: nn.Module) -> Projections:
        """The host's packed projections.

        Args:
            host: the module.

        Returns:
            Its own parameters.

        Raises:
            ValueError: if keys and values have widths of their own, or extra keys are appended.
        """
        host = cast(nn.MultiheadAttention, host)
        if not host._qkv_same_embed_dim:
            raise ValueError(f"kdim, vdim: expected the width {host.embed_dim}, got {host.kdim} and {host.vdim}")
        if host.bias_k is not None or host.add_zero_attn:
            raise ValueError("add_bias_kv, add_zero_attn: expected False: appended keys are no tokens")
        weights = dict(zip(_NAMES, host.in_proj_weight.chunk(3), strict=True))
        biases: dict[str, Tensor | None] = dict.fromkeys(_NAMES)
        if host.in_proj_bias is not None:
            biases.update(zip(_NAMES, host.in_proj_bias.chunk(3), strict=True))
        return Projections(host.num_heads, weights, biases, host.out_proj)

    def wrap(self, host: nn.Module, block: Attention) -> ConvertedMultiheadAttention:
        """The module in the host's place.

        Args:
            host: the module that is replaced.
            block: with its projections.

        Returns:
            With the same calling convention.
        """
        return ConvertedMultiheadAttention(cast(nn.MultiheadAttention, host), block)

    def finish(self, model: nn.Module) -> None:
        """Keep nested tensors, which only the fused path understands, out of encoders with converted layers.

        Args:
            model: the converted model.
        """
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder) and _has_converted(module):
                encoder: Any = module
                encoder.use_nested_tensor = False


def _has_converted(module: nn.Module) -> bool:
    return any(isinstance(inner, ConvertedMultiheadAttention) for inner in module.modules())
