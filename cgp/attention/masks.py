"""Masks of a call, read as padding, causal, or neither."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import may_read

__all__ = ["MaskReading", "causal_mask", "check_key_noise", "check_padding", "read_masks"]


class MaskReading(NamedTuple):
    """Masks reduced to padding ``(*batch, Nk)``, a mask over pairs that is neither, and causality."""

    key_padding: Tensor | None
    attn_mask: Tensor | None
    is_causal: bool


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
    """Mask ``(num_queries, num_keys)``, True where key j lies after query i."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).triu(1)


def read_masks(
    memory: Tensor,
    num_queries: int,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    *,
    any_mask: bool,
) -> MaskReading:
    """Read the masks of a call; unless ``any_mask``, a mask over pairs has to be padding or causal, and is reduced."""
    num_keys = memory.shape[-2]
    padding = check_padding("key", memory, key_padding_mask)
    if is_causal and num_queries != num_keys:
        raise ValueError(f"is_causal: expected as many queries as keys, got {num_queries} and {num_keys}")
    if attn_mask is None or is_causal:
        return MaskReading(padding, None, is_causal)
    _check_pairs(attn_mask, num_queries, num_keys)
    if any_mask:
        return MaskReading(padding, attn_mask, False)
    return _reduce(attn_mask, padding, num_queries, num_keys)


def check_padding(process: str, tokens: Tensor, mask: Tensor | None) -> Tensor | None:
    """Check the padding mask of tokens ``(*batch, n, d)``, which are queries or keys, and return it."""
    if mask is None:
        return None
    name = f"{process}_padding_mask"
    if mask.is_floating_point():
        mask = _blocked(mask, name)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name}: expected bool, True = padding, or zeros and -inf, got {mask.dtype}")
    batch, given = tokens.shape[:-1], mask.shape
    if given[-1:] != batch[-1:] or len(given) > len(batch) or given[:-1] != batch[len(batch) - len(given) : -1]:
        plural = "queries" if process == "query" else "keys"
        raise ValueError(f"{name}: expected shape {tuple(batch)} (*batch, {plural}), got {tuple(given)}")
    return mask


def check_key_noise(noise: Tensor, memory: Tensor, padding: Tensor | None, *, least: float) -> Tensor:
    """Check variances of the noise of keys ``(*batch, Nk, d)``; those of padded keys, whatever they are, become one."""
    if noise.shape != memory.shape[:-1] or not noise.is_floating_point():
        raise ValueError(
            f"key_noise: expected floating-point variances of shape {tuple(memory.shape[:-1])} (*batch, keys), "
            f"got {noise.dtype} of shape {tuple(noise.shape)}"
        )
    noise = noise if padding is None else noise.masked_fill(padding, 1.0)
    if may_read(noise) and not bool((noise >= least).all() and noise.isfinite().all()):
        wrong = noise[~((noise >= least) & noise.isfinite())]
        raise ValueError(f"key_noise: expected finite variances of at least {least:g}, got {float(wrong[0]):g}")
    return noise


def _check_pairs(mask: Tensor, num_queries: int, num_keys: int) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"attn_mask: expected bool (True = not attended) or additive float, got {mask.dtype}")
    if mask.dim() < 2 or mask.shape[-1] != num_keys or mask.shape[-2] not in (1, num_queries):
        raise ValueError(
            f"attn_mask: expected (..., {num_queries}, {num_keys}) broadcastable to (*batch, h, Nq, Nk), "
            f"got {tuple(mask.shape)}"
        )


def _reduce(mask: Tensor, padding: Tensor | None, num_queries: int, num_keys: int) -> MaskReading:
    """The padding or causal mask to which a mask over pairs is equivalent."""
    blocked = _blocked(mask, "attn_mask") if mask.is_floating_point() else mask
    causal = causal_mask(num_queries, num_keys, mask.device)
    if not bool(blocked.any()):
        return MaskReading(padding, None, False)
    same_for_all_queries = bool((blocked == blocked[..., :1, :]).all())
    if num_queries == num_keys and bool((blocked == causal).all()) and num_keys != 1:
        return MaskReading(padding, None, True)
    same_for_all_heads = mask.dim() < 3 or mask.shape[-3] == 1 or bool((blocked == blocked[..., :1, :, :]).all())
    if not (same_for_all_queries and same_for_all_heads):
        raise ValueError(
            "attn_mask: expected a padding or a causal mask (a general mask over pairs is no process scale, so the "
            "Gaussian process is not defined for it), got another. A bool mask is read as torch.nn.MultiheadAttention "
            "reads it, True = not attended; of one for scaled_dot_product_attention, True = attended, pass ~mask"
        )
    columns = blocked[..., 0, :] if mask.dim() < 3 else blocked[..., 0, 0, :]
    return MaskReading(columns if padding is None else padding | columns, None, False)


def _blocked(mask: Tensor, name: str) -> Tensor:
    """Where an additive mask is minus infinity, or nearly so."""
    blocked = mask <= torch.finfo(mask.dtype).min / 2
    if may_read(mask) and not bool((blocked | (mask == 0)).all()):
        where = " (padding or causal) for a GP block" if name == "attn_mask" else ""
        raise ValueError(f"{name}: expected zeros and -inf{where}, got other biases")
    return blocked
