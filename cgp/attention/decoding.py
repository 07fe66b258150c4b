"""Causal attention one token at a time: what each block keeps of the tokens before.

Under a causal mask every row conditions on its own prefix, so a row is never revised: stepping through a sequence gives
the rows of the full forward pass. A draw is kept as well: with "marginal" sampling a sequence is one path through the
layers.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from cgp.functional.causal_step import PrefixState, empty_prefix, prefix_state, prefix_step
from cgp.functional.gaussians import MarginalGaussian

from .base import Attention
from .gaussian_process import GaussianProcessAttention
from .inputs import AttentionInputs, full_precision
from .sparse_correlated import SparseCGPAttention

__all__ = ["BlockState", "Decoded", "KeyValueCache", "can_decode", "initial_state", "prefill", "step"]


class KeyValueCache(NamedTuple):
    """The projected tokens so far; both are empty, of shape ``(0,)``, before the first.

    Attributes:
        keys: ``(*batch, h, t, s)``.
        values: ``(*batch, h, t, s)``.
    """

    keys: Tensor
    values: Tensor


BlockState = PrefixState | KeyValueCache
"""Of fixed size for sparse correlated attention with its own mean, else a cache that grows with the sequence."""


class Decoded(NamedTuple):
    """What a block makes of new tokens.

    Attributes:
        output: ``(*batch, n, d)``, the mean or a draw of it as ``block.sampling`` says, with S in front under draws.
        variance: of the head outputs, ``(*batch, h, n)``; None where the block is deterministic.
        state: with these tokens in it.
    """

    output: Tensor
    variance: Tensor | None
    state: BlockState


def can_decode(module: nn.Module) -> bool:
    """Whether a module is a block that takes a causal mask, as it is configured.

    Args:
        module: any module.

    Returns:
        Whether :func:`prefill` and :func:`step` take it.

    Example:
        >>> can_decode(SparseCGPAttention(8, 2)), can_decode(SparseCGPAttention(8, 2, coupling="latent"))
        (True, False)
    """
    return isinstance(module, Attention) and module.takes_causal


def initial_state(block: Attention) -> BlockState:
    """The state before the first token; the first step gives it its batch shape.

    Args:
        block: one that takes a causal mask.

    Returns:
        The state.

    Raises:
        ValueError: if the block takes no causal mask.

    Example:
        >>> initial_state(SparseCGPAttention(8, 2, num_inducing=3)).root.shape
        torch.Size([2, 3, 3])
    """
    _check(block)
    weight = block.in_proj.weight
    dtype = torch.promote_types(weight.dtype, torch.float32)  # as projected tokens
    if _has_fixed_state(block):
        square = weight.new_empty(block.num_heads, block.num_inducing, block.num_inducing, dtype=dtype)
        return empty_prefix(square, block.head_dim)
    empty = weight.new_empty(0, dtype=dtype)
    return KeyValueCache(empty, empty)


def prefill(block: Attention, x: Tensor) -> Decoded:
    """The first n tokens at once: a causal forward pass that also leaves the state for the steps after.

    Args:
        block: one that takes a causal mask.
        x: tokens, ``(*batch, n, d)``.

    Returns:
        Output ``(*batch, n, d)``, variance and state.

    Raises:
        ValueError: if the block takes no causal mask, or its sampling is "joint".

    Example:
        >>> prefill(SparseCGPAttention(8, 2), torch.zeros(3, 5, 8)).variance.shape
        torch.Size([3, 2, 5])
    """
    _check(block)
    tokens = block.project(x, is_causal=True)
    state: BlockState = KeyValueCache(tokens.k, tokens.v)
    if _has_fixed_state(block):
        with full_precision(x.device):
            state = prefix_state(block._features(tokens)[1], tokens.v, noise=block.noise)
    heads, variance = _attend(block, tokens)
    return Decoded(block.merge(heads, x.dtype), variance, state)


def step(block: Attention, state: BlockState, x: Tensor) -> Decoded:
    """One more token.

    Sparse correlated attention ("direct", its own mean) takes O(m (m + s)) whatever came before, once
    :func:`cgp.freeze` has its inducing inputs factored. Softmax and kernel attention, and softmax's mean, look at the
    t cached keys; the variance of exact correlated attention costs a Cholesky of them, O(t³).

    Args:
        block: one that takes a causal mask.
        state: of the tokens before.
        x: the token, ``(*batch, 1, d)``.

    Returns:
        Output ``(*batch, 1, d)``, variance ``(*batch, h, 1)`` and state.

    Raises:
        ValueError: if the block takes no causal mask, its sampling is "joint", or x is not one token.

    Example:
        >>> block, x = SparseCGPAttention(8, 2).eval(), torch.randn(3, 5, 8)
        >>> state = prefill(block, x[:, :4]).state
        >>> torch.allclose(step(block, state, x[:, 4:]).output, block(x, is_causal=True)[:, 4:], atol=1e-5)
        True
    """
    _check(block)
    if x.dim() < 2 or x.shape[-2] != 1:
        raise ValueError(f"x: expected one token (*batch, 1, {block.embed_dim}), got shape {tuple(x.shape)}")
    tokens = block.project(x)
    heads: Tensor
    variance: Tensor | None
    after: BlockState
    if isinstance(state, PrefixState):
        heads, variance, after = _fixed_step(block, state, tokens)
    else:
        after = KeyValueCache(*(torch.cat(pair, -2) for pair in zip(state, (tokens.k, tokens.v), strict=True)))
        heads, variance = _attend(block, tokens._replace(k=after.keys, v=after.values))
    return Decoded(block.merge(heads, x.dtype), variance, after)


def _has_fixed_state(block: Attention) -> TypeGuard[SparseCGPAttention]:
    return isinstance(block, SparseCGPAttention) and block.softmax is None


def _check(block: Attention) -> None:
    if not can_decode(block):
        raise ValueError(f"block: expected one that takes a causal mask, got {type(block).__name__} as configured")


def _fixed_step(block: Attention, state: PrefixState, tokens: AttentionInputs) -> tuple[Tensor, Tensor, PrefixState]:
    assert isinstance(block, SparseCGPAttention)
    with full_precision(tokens.q.device):
        features_q, features_k = block._features(tokens)
        prior = block.canonical.diagonal(tokens.q)
        mean, variance, after = prefix_step(
            state, features_q, features_k, tokens.v, prior, noise=block.noise, conditional=block.conditional
        )
        return _draw(block, mean, variance), variance, after


def _attend(block: Attention, tokens: AttentionInputs) -> tuple[Tensor, Tensor | None]:
    """Head outputs and their variance."""
    if not isinstance(block, GaussianProcessAttention):
        return block.attend(tokens), None
    with full_precision(tokens.q.device):
        posterior = block.marginals(tokens)
        return _draw(block, posterior.mean, posterior.variance), posterior.variance


def _draw(block: GaussianProcessAttention, mean: Tensor, variance: Tensor) -> Tensor:
    draws = block.num_samples if block.sampling != "mean" else None
    return MarginalGaussian(mean, variance).rsample(block.sampling, torch.Size([] if draws is None else [draws]))
