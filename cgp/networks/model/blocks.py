"""The transformer as a deep Gaussian process: stochastic layers of any module, their draws and divergences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import Attention, LossTerm, SamplingMixin, SharedInducingPoints, StochasticHeads

__all__ = [
    "REPLACED",
    "added_losses",
    "attention_blocks",
    "clear_added_losses",
    "draws",
    "freeze",
    "global_kl",
    "sampling",
    "stochastic_layers",
    "unwrapped",
    "used_modules",
]

REPLACED = "replaced_parameters"
"""Where a block keeps the number of parameters of the attention that it replaced."""


def unwrapped(module: Any) -> Any:
    """The active module inside a wrapper of peft's ``modules_to_save``; any other module is returned unchanged."""
    parts = getattr(module, "_modules", {})
    if not {"original_module", "modules_to_save"} <= set(parts.keys()):  # a list, of TorchScript
        return module
    active = [name for name in module.active_adapters if name in parts["modules_to_save"]]
    return parts["original_module"] if module.disable_adapters or not active else parts["modules_to_save"][active[0]]


def used_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules by name; of several that peft keeps in one wrapper only the active one."""
    named = dict(model.named_modules())
    wrappers = [(name, module) for name, module in named.items() if unwrapped(module) is not module]
    idle = [
        path
        for name, wrapper in wrappers
        for path, part in wrapper.named_modules(prefix=name)
        if part is not wrapper and part not in set(unwrapped(wrapper).modules())
    ]
    return {name: module for name, module in named.items() if name not in idle}


def attention_blocks(model: nn.Module) -> list[Any]:
    """The attention blocks of a module and the heads inside its converted attention, in the order of registration."""
    return [module for module in used_modules(model).values() if isinstance(module, Attention | StochasticHeads)]


def stochastic_layers(model: nn.Module) -> list[Any]:
    """The attention blocks and other layers of a module that can draw, in the order of registration."""
    return [m for m in used_modules(model).values() if isinstance(m, SamplingMixin) and m.stochastic]


def freeze(model: nn.Module) -> nn.Module:
    """Compute once, in every block, the factors that depend only on weights.

    They are used until ``train()``, ``load_state_dict`` or ``to`` drops them; weights changed by other means do not
    update them.

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
            module.freeze()  # only this module can compute the travelling keys of its blocks
    for block in attention_blocks(model):
        if not block.is_frozen:
            block.freeze()
    return model


@contextmanager
def sampling(model: nn.Module, mode: str | None) -> Iterator[None]:
    """Context that sets how every stochastic layer draws; :func:`draws` goes around it or inside.

    Args:
        model: any module.
        mode: "mean", "marginal", "joint", or None for each layer's default.
    """
    layers = stochastic_layers(model)
    before = [layer._sampling for layer in layers]
    try:
        _set_modes(layers, [mode] * len(layers))
        yield
    finally:
        _set_modes(layers, before)


def _set_modes(layers: list[Any], modes: list[str | None]) -> None:
    """How each layer draws; the number of draws of the first that drew passes to the first that does now."""
    first = _first_to_draw(layers)
    for layer, mode in zip(layers, modes, strict=True):
        layer.sampling = mode
    for before, now in zip(first, _first_to_draw(layers), strict=True):
        if before is not now and before.num_samples is not None:
            now.num_samples = before.num_samples
            del before.num_samples


def _first_to_draw(layers: list[Any]) -> list[Any]:
    """The first layer that draws or, if none does, the first of all, which adds no dimension; none of no layers."""
    return ([layer for layer in layers if layer.sampling != "mean"] or layers)[:1]


@contextmanager
def draws(model: nn.Module, num_samples: int) -> Iterator[None]:
    """Context in which the first layer that draws makes S draws at once.

    The layers below it run once; the outputs of the layers above have a leading dimension S. There is none for a single
    draw or if no layer draws, as in eval mode without :func:`sampling`. The model must accept leading dimensions, as
    the reference models do, and register its layers in the order in which they run.

    Args:
        model: any module.
        num_samples: S, at least 1.

    Raises:
        ValueError: if S is below 1.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> block = SparseCGPAttention(8, 2).eval()
        >>> with draws(block, 6), sampling(block, "marginal"):
        ...     block(torch.zeros(4, 5, 8)).shape
        torch.Size([6, 4, 5, 8])
    """
    if num_samples < 1:
        raise ValueError(f"num_samples: expected at least 1, got {num_samples}")
    first = _first_to_draw(stochastic_layers(model)) if num_samples > 1 else []
    try:
        for layer in first:
            layer.num_samples = num_samples
        yield
    finally:
        for layer in first:
            del layer.num_samples  # back to the class attribute, None


def clear_added_losses(model: nn.Module) -> None:
    """Remove the per-sequence loss terms of the last forward pass, and the graphs they hold."""
    for terms in _term_tables(model):
        for name in terms:
            terms[name] = None


def added_losses(model: nn.Module) -> dict[str, Tensor]:
    """Per-sequence loss terms of the last forward pass, summed by kind."""
    totals: dict[str, Tensor] = {}
    for terms in _term_tables(model):
        for term in terms.values():
            if isinstance(term, LossTerm):
                totals[term.kind] = totals[term.kind] + term.loss() if term.kind in totals else term.loss()
    return totals


def global_kl(model: nn.Module) -> Tensor:
    """KL divergence of the variational variables shared by the whole data set, in nats, summed over layers."""
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
