"""The transformer as a deep Gaussian process: stochastic layers of any module, their draws and divergences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import Attention, LossTerm, SharedInducingPoints, StochasticHeads

__all__ = [
    "added_losses",
    "attention_blocks",
    "clear_added_losses",
    "draws",
    "eval_mode",
    "freeze",
    "global_kl",
    "sampling",
    "seeded",
]


def attention_blocks(model: nn.Module, *, stochastic: bool = False) -> list[Attention]:
    """The attention blocks of a module, in the order in which they are registered.

    Args:
        model: any module.
        stochastic: only those that draw at this moment (not in "mean" mode).

    Returns:
        The blocks.

    Example:
        >>> from cgp import CGPAttention, SoftmaxAttention
        >>> len(attention_blocks(nn.Sequential(SoftmaxAttention(8, 2), CGPAttention(8, 2)), stochastic=True))
        1
    """
    blocks = [module for module in model.modules() if isinstance(module, Attention | StochasticHeads)]
    return [b for b in blocks if b.stochastic and b.sampling != "mean"] if stochastic else blocks


def freeze(model: nn.Module) -> nn.Module:
    """Compute once, in every block, the factors that depend on weights alone.

    They are used until ``train()``, ``load_state_dict`` or ``to`` drops them; weights changed by other means in
    between are not seen.

    Args:
        model: any module, in eval mode.

    Returns:
        The same module.

    Raises:
        RuntimeError: if a block is in training mode.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> block = freeze(SparseCGPAttention(8, 2).eval())
        >>> block.frozen_factor("whitening").shape
        torch.Size([2, 16, 16])
    """
    for module in model.modules():
        if isinstance(module, SharedInducingPoints):
            module.freeze()  # with the keys that travelled there, which the blocks alone do not know
    for block in attention_blocks(model):
        if not block.is_frozen:
            block.freeze()
    return model


@contextmanager
def sampling(model: nn.Module, mode: str | None) -> Iterator[None]:
    """Set how every stochastic block draws, for the time of a ``with``.

    Args:
        model: any module.
        mode: "mean", "marginal", "joint", or None for each block's default.
    """
    blocks = [block for block in attention_blocks(model) if block.stochastic]
    before = [block._sampling for block in blocks]
    try:
        for block in blocks:
            block.sampling = mode
        yield
    finally:
        for block, mode_before in zip(blocks, before, strict=True):
            block.sampling = mode_before


@contextmanager
def draws(model: nn.Module, num_samples: int) -> Iterator[None]:
    """Expand to S draws after the first stochastic block, for the time of a ``with``.

    The layers below it run once; the layers above carry a leading dimension S. A single draw adds no dimension. The
    model must
    let leading dimensions through, as the reference models do, and hold its blocks in the order in which they run.

    Args:
        model: any module.
        num_samples: S, at least 1.

    Raises:
        ValueError: if S is below 1.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples: expected at least 1, got {num_samples}")
    first = attention_blocks(model, stochastic=True)[:1] if num_samples > 1 else []
    try:
        for block in first:
            block.num_samples = num_samples
        yield
    finally:
        for block in first:
            block.num_samples = None


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode for the time of a ``with``; each module gets its own mode back.

    Args:
        model: any module; one that is in eval mode already keeps its frozen factors.
    """
    before = {module: module.training for module in model.modules()}
    if any(before.values()):
        model.eval()
    try:
        yield
    finally:
        for module, mode in before.items():
            if module.training != mode:
                module.training = mode


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """A seed of the global generators for the time of a ``with``; they are left as they were.

    Args:
        seed: None leaves them alone.
        device: whose generator is meant besides the CPU's.
    """
    if seed is None:
        yield
        return
    forked = "cuda" if device.type == "cpu" else device.type
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=forked):
        torch.manual_seed(seed)
        yield


def clear_added_losses(model: nn.Module) -> None:
    """Forget the per-sequence terms of the last forward pass, and the graphs they hold.

    Args:
        model: any module.
    """
    for terms in _term_tables(model):
        for name in terms:
            terms[name] = None


def added_losses(model: nn.Module) -> dict[str, Tensor]:
    """Per-sequence terms that the blocks left in the last forward pass, summed by kind.

    Args:
        model: any module.

    Returns:
        A scalar a kind ("log_density", "kl", "ksvd"); kinds that nobody left are absent.
    """
    totals: dict[str, Tensor] = {}
    for terms in _term_tables(model):
        for term in terms.values():
            if isinstance(term, LossTerm):
                totals[term.kind] = totals[term.kind] + term.loss() if term.kind in totals else term.loss()
    return totals


def global_kl(model: nn.Module) -> Tensor:
    """KL divergences of the variational variables that the whole data set shares, summed over layers.

    Args:
        model: any module.

    Returns:
        ``()``, in nats; zero for a model that has none.
    """
    anchor = next(iter(model.parameters()), torch.zeros(()))
    total = anchor.new_zeros(())
    for module in model.modules():
        strategy = getattr(module, "variational_strategy", None)
        if strategy is not None:
            total = total + strategy.kl_divergence().sum()
    return total


def _term_tables(model: nn.Module) -> Iterator[dict[str, Any]]:
    for module in model.modules():
        terms = getattr(module, "_added_loss_terms", None)
        if terms:
            yield terms
