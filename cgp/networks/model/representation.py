"""The representation that the last layer of a network reads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cgp.networks.model.inputs import call_model
from cgp.networks.model.structural_copy import structural_copy, with_own_buffers

__all__ = ["Features", "call_with_features", "pooled_features"]

Features = Callable[[nn.Module, Any], Tensor]
"""Computes the representation ``(N, d)`` of inputs."""


def pooled_features(model: nn.Module, inputs: Any) -> Tensor:
    """The representation ``(N, d)`` that the last layer of a network reads, averaged over tokens if any.

    The last layer is the linear one whose output the network returns, or else the last one that it calls.

    Args:
        model: the network. It is not changed.
        inputs: a tensor, a tuple of arguments or a dict of them.

    Returns:
        The representation.
    """
    copy = with_own_buffers(structural_copy(model))
    return call_with_features(copy, lambda: call_model(copy, inputs))[1]


def call_with_features(model: nn.Module, call: Callable[[], Any], given: Any = None) -> tuple[Any, Tensor]:
    """What a call of a model returns, and the representation ``(N, d)`` that its last layer read.

    Args:
        model: gets hooks for the time of the call.
        call: runs it.
        given: what the last layer reads where no layer is called: of a model that is linear, whose ``forward`` is.

    Returns:
        Both.

    Raises:
        ValueError: if no linear layer was called.
    """
    calls: dict[int, tuple[Tensor, Any]] = {}  # the last of each width, in their order

    def keep(layer: nn.Linear, arguments: tuple[Any, ...], options: dict[str, Any], returned: Tensor) -> None:
        calls.pop(layer.out_features, None)
        calls[layer.out_features] = next(iter((*arguments, *options.values()))), weakref.ref(returned)

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    try:
        returned = call()
    finally:
        for hook in hooks:
            hook.remove()
    read = _read_by_last(calls, returned, given)
    return returned, read.flatten(1, -2).mean(1) if read.dim() > 2 else read


def _read_by_last(calls: Mapping[int, tuple[Tensor, Any]], returned: Any, given: Any) -> Tensor:
    """What the layer read whose output is among those that a model returned, or else the last layer."""
    leaves = tree_leaves([returned, getattr(returned, "logits", None)])
    outputs = {id(leaf) for leaf in leaves if isinstance(leaf, Tensor)}
    reads = [read for read, output in calls.values() if id(output()) in outputs]
    reads = reads or [read for read, _ in calls.values()] or ([] if given is None else [given])
    if not reads:
        raise ValueError(
            "model: expected a linear layer that reads the representation, got none (pass features=..., a function of "
            "the model and its inputs)"
        )
    return reads[-1]
