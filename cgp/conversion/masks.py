"""Masks as host models hand them over, reduced to what a Gaussian process knows: padding and causal order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cgp.attention.masks import causal_mask

__all__ = ["HostMask", "read_key_padding", "read_pair_mask"]

_EXPECTED = "expected a mask that is padding, causal or both (the Gaussian process is not defined for others)"


class HostMask(NamedTuple):
    """What a host's masks amount to.

    Attributes:
        key_padding_mask: ``(*batch, Nk)``, True = padding, or None.
        is_causal: whether a query sees no later key.
    """

    key_padding_mask: Tensor | None
    is_causal: bool


def read_key_padding(mask: Any, *, real: bool) -> Tensor | None:
    """A mask over keys as padding.

    Args:
        mask: ``(*batch, Nk)``: bool, integer, or additive float (zeros and minus infinity); or None.
        real: whether True (or 1) marks a real token rather than padding.

    Returns:
        ``(*batch, Nk)`` bool, True = padding, or None.

    Raises:
        ValueError: if it is no such mask.

    Example:
        >>> read_key_padding(torch.tensor([1, 1, 0]), real=True)
        tensor([False, False,  True])
    """
    if mask is None:
        return None
    if isinstance(mask, Tensor) and not mask.is_floating_point() and mask.dtype != torch.bool:
        mask = mask != 0
    return _blocked(mask, attends=real)


def read_pair_mask(mask: Any, batch: torch.Size, num_queries: int, num_keys: int, *, attends: bool) -> HostMask:
    """A mask over pairs of tokens as padding, causal order, or both.

    Args:
        mask: ``(Nq, Nk)``, ``(*batch, Nq, Nk)`` or ``(*batch, h or 1, Nq, Nk)``; bool, or additive float (zeros and
            minus infinity); or None.
        batch: the batch shape of the tokens.
        num_queries: Nq.
        num_keys: Nk.
        attends: whether True means attended (as in scaled_dot_product_attention) rather than left out.

    Returns:
        The reading.

    Raises:
        ValueError: if the mask is neither padding nor causal, or has no such shape.

    Example:
        >>> read_pair_mask(torch.ones(3, 3).tril().bool(), torch.Size([2]), 3, 3, attends=True)
        HostMask(key_padding_mask=None, is_causal=True)
    """
    if mask is None:
        return HostMask(None, False)
    blocked = _blocked(mask, attends=attends)
    if blocked.dim() < 2 or blocked.shape[-1] != num_keys or blocked.shape[-2] not in (1, num_queries):
        raise ValueError(f"attention mask: {_EXPECTED} over {num_queries} × {num_keys}, got {tuple(blocked.shape)}")
    if blocked.dim() > len(batch) + 2:
        if bool((blocked != blocked[..., :1, :, :]).any()):
            raise ValueError(f"attention mask: {_EXPECTED}, got one that differs between heads")
        blocked = blocked[..., 0, :, :]
    columns = blocked[..., -1:, :]  # under a causal mask the last query sees every key but padding
    is_causal = not bool((blocked == columns).all())
    if is_causal and not _is_causal(blocked, columns, num_queries, num_keys):
        raise ValueError(f"attention mask: {_EXPECTED}, got another")
    if not bool(columns.any()):
        return HostMask(None, is_causal)
    return HostMask(columns[..., 0, :].expand(*batch, num_keys), is_causal)


def _is_causal(blocked: Tensor, columns: Tensor, num_queries: int, num_keys: int) -> bool:
    if num_queries != num_keys:
        return False
    return bool((blocked == (columns | causal_mask(num_queries, num_keys, blocked.device))).all())


def _blocked(mask: Any, *, attends: bool) -> Tensor:
    """True where a key is left out."""
    if not isinstance(mask, Tensor):
        raise ValueError(f"attention mask: expected a tensor, got {type(mask).__name__} (use eager or sdpa attention)")
    if mask.dtype == torch.bool:
        return ~mask if attends else mask
    if not mask.is_floating_point():
        raise ValueError(f"attention mask: expected bool or additive float, got {mask.dtype}")
    blocked = mask <= torch.finfo(mask.dtype).min / 2
    if bool((~blocked & (mask != 0)).any()):
        raise ValueError(f"attention mask: {_EXPECTED}, got additive biases other than 0 and -inf")
    return blocked
