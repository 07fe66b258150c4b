"""A block with a host's projections."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from cgp.attention import Attention, CGPAttention, SparseCGPAttention
from cgp.attention.kep_svgp import KEPSVGPAttention
from cgp.attention.sgpa import SGPAttention

from .adapter import Projections

__all__ = ["METHODS", "AttentionChoice", "added_parameters", "build_block", "has_softmax_mean"]

AttentionChoice = str | Callable[[int, int], Attention]
"""The name of a method, or a factory ``(embed_dim, num_heads) -> block``."""

METHODS: dict[str, type[Attention]] = {
    "cgp": CGPAttention,
    "scgp": SparseCGPAttention,
    "sgpa": SGPAttention,
    "kep_svgp": KEPSVGPAttention,
}
_KEEP_THE_MEAN = ("cgp", "scgp")


def build_block(
    attention: AttentionChoice,
    projections: Projections,
    *,
    defaults: dict[str, Any],
    plain: bool,
    options: dict[str, Any],
) -> Attention:
    """A block of a method that has a host's projections.

    Args:
        attention: the name of a method, or a factory.
        projections: the host's.
        defaults: options that keep the host's mean, for the methods that can.
        plain: whether the host's queries and keys are linear maps of the tokens.
        options: of the block.

    Returns:
        The block, on the host's device and in its precision.

    Raises:
        ValueError: if the method is unknown, the sizes do not fit, or the method cannot stand in for the host.
    """
    d = _check_sizes(projections)
    weight = projections.weights["query"]
    if isinstance(attention, str):
        if attention not in METHODS:
            raise ValueError(f"attention: expected a factory or one of {tuple(METHODS)}, got {attention!r}")
        kept = defaults if attention in _KEEP_THE_MEAN else {}
        block = METHODS[attention](d, projections.num_heads, **{**kept, **options})
    else:
        block = attention(d, projections.num_heads, **options)
    if not isinstance(block, Attention):
        raise ValueError(f"attention: expected a factory of cgp.attention.Attention, got {type(block).__name__}")
    if not plain and not {"query", "key", "value"} <= set(block.processes):
        raise ValueError(
            f"attention: {type(block).__name__} is not defined for a host that normalises or rotates its queries and "
            "keys; expected 'cgp' or 'scgp'"
        )
    block = block.to(weight)
    _load(block, projections, from_softmax=defaults.get("mean") == "softmax", plain=plain)
    block.clears_padding = not has_softmax_mean(block)
    return block


def has_softmax_mean(block: nn.Module) -> bool:
    """Whether a block's mean is softmax attention.

    Args:
        block: any module.

    Returns:
        Whether it holds the scales of such a posterior.
    """
    return getattr(block, "softmax", None) is not None


def added_parameters(block: Attention) -> int:
    """Parameters that a block has beyond a query, key, value and output projection.

    Args:
        block: the block.

    Returns:
        Their number.

    Example:
        >>> added_parameters(CGPAttention(8, 2, mean="softmax"))
        4
    """
    total = sum(parameter.numel() for parameter in block.parameters())
    projections = sum(p.numel() for part in (block.in_proj, block.out_proj) for p in part.parameters())
    further = max(0, len(block.processes) - 3) / len(block.processes)
    return total - projections + round(further * sum(p.numel() for p in block.in_proj.parameters()))


def _check_sizes(projections: Projections) -> int:
    d, shapes = projections.weights["query"].shape[-1], {tuple(w.shape) for w in projections.weights.values()}
    if shapes != {(d, d)} or d % projections.num_heads:
        raise ValueError(
            f"projections: expected heads of the width divided by their number ({d} / {projections.num_heads}), got "
            f"maps of shapes {sorted(shapes)}"
        )
    return d


@torch.no_grad()
def _load(block: Attention, projections: Projections, *, from_softmax: bool, plain: bool) -> None:
    """Put the host's maps into the block; the output projection stays the host's own module."""
    factors = _factors(block, projections, from_softmax=from_softmax, plain=plain)
    own = {"latent": "key"}  # a latent process starts at the keys
    names = [own.get(name, name) for name in block.processes]
    weights = [factors.get(name, 1.0) * projections.weights[name] for name in names]
    d, like = block.embed_dim, projections.weights["query"]
    has_bias = any(projections.biases[name] is not None for name in names)
    block.in_proj = nn.Linear(d, len(names) * d, bias=has_bias, device=like.device, dtype=like.dtype)
    block.in_proj.weight.copy_(torch.cat(weights))
    if has_bias:
        zero = like.new_zeros(d)
        given = [(factors.get(name, 1.0), projections.biases[name]) for name in names]
        block.in_proj.bias.copy_(torch.cat([zero if bias is None else factor * bias for factor, bias in given]))
    block.in_proj.requires_grad_(any(weight.requires_grad for weight in projections.weights.values()))
    block.out_proj = projections.out_proj  # type: ignore[assignment]


def _factors(block: Attention, projections: Projections, *, from_softmax: bool, plain: bool) -> dict[str, float]:
    """What the maps of queries and keys are multiplied with, so that the block's scores are the host's."""
    root = math.sqrt(block.head_dim)
    relative = 1.0 if projections.scale is None else projections.scale * root
    if abs(relative - 1.0) < 1e-6:
        relative = 1.0
    if relative != 1.0 and not plain:
        raise ValueError(f"scale: expected {1 / root:g} where queries are normalised, got {projections.scale:g}")
    canonical = getattr(block, "canonical", None)
    if from_softmax and not has_softmax_mean(block) and canonical is not None and canonical.stationary:
        factor = relative**0.5 * root**-0.5  # exp(q·k/√s) belongs to a squared exponential of q s^{-1/4}, k s^{-1/4}
        return {"query": factor, "key": factor}
    return {"query": relative}
