"""Projected tokens, and the floating-point precision of attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.correlated import ObservedKeys

__all__ = ["AttentionInputs", "EncodedKeys", "full_precision"]


class AttentionInputs(NamedTuple):
    """Projected tokens of every process, split into heads.

    Attributes:
        q: ``(*batch, h, Nq, s)``.
        k: ``(*batch, h, Nk, s)``.
        v: ``(*batch, h, Nk, s)``.
        o: latent inputs, ``(*batch, h, Nk, s)``, or None where the block has no latent process.
        query_padding: ``(*batch, 1, Nq)``, True = padding, or None.
        key_padding: ``(*batch, 1, Nk)``, True = padding, or None.
        attn_mask: a mask over pairs that is neither padding nor causal, True = not attended, or a float bias; or None.
        is_causal: whether a query sees no later key.
        key_noise: variance of the noise of each key, ``(*batch, 1, Nk)``, or None for the block's.
        own: the keys' tokens as queries, ``(*batch, h, Nk, s)``: q itself in self-attention; None if unused.
        observed: the keys as data of a posterior, factorised, or None where they are not encoded.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor | None
    query_padding: Tensor | None
    key_padding: Tensor | None
    attn_mask: Tensor | None
    is_causal: bool
    key_noise: Tensor | None = None
    own: Tensor | None = None
    observed: ObservedKeys | None = None


class EncodedKeys(NamedTuple):
    """Keys that many queries attend to, projected and, by a block that factorises them, factorised: once.

    Attributes:
        tokens: of the keys; their queries are not used.
    """

    tokens: AttentionInputs


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Disable autocast: half precision has too few digits for distances, factorisations and densities."""
    with torch.autocast(device_type=device.type, enabled=False):
        yield
