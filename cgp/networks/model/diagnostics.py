"""Diagnostics of a model's layers, as arrays: over-smoothing, attention matrices, variance by layer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cgp.attention import Attention
from cgp.attention.inputs import full_precision
from cgp.functional.padding import count_tokens, mask_tokens
from cgp.networks.model.inputs import call_model
from cgp.networks.model.structural_copy import structural_copy, with_own_buffers

__all__ = [
    "Features",
    "attention_matrix",
    "call_with_features",
    "layer_outputs",
    "pooled_features",
    "token_similarity",
    "variance_by_layer",
]

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


def token_similarity(tokens: Tensor, padding: Tensor | None = None) -> Tensor:
    r"""Mean cosine similarity between the tokens of a sequence; 1 means that all are alike (over-smoothing).

    .. math:: \frac{1}{n(n-1)}\sum_{i \ne j}\frac{x_i^\top x_j}{\|x_i\|\|x_j\|}

    Args:
        tokens: ``(*batch, n, d)``.
        padding: ``(*batch, n)`` bool, True = padding, or None.

    Returns:
        ``(*batch,)``, in [-1, 1]; NaN for sequences with fewer than two real tokens.

    Example:
        >>> token_similarity(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
        tensor(0.3333)
    """
    directions = mask_tokens(nn.functional.normalize(tokens, dim=-1), padding)
    pairs = directions.sum(-2).square().sum(-1) - directions.square().sum((-2, -1))  # over i ≠ j
    count = count_tokens(tokens[..., 0], padding)
    return torch.where(count > 1, pairs / (count * (count - 1.0)), torch.nan)


@torch.no_grad()
def attention_matrix(block: Attention, x: Tensor, **masks: Any) -> Tensor:
    """The matrix by which the mean of a block mixes the values of a sequence, for any method.

    The mean is affine in the values, so the matrix is computed by replacing the values by unit vectors. A block without
    values defines an ``attention_matrix`` itself (KEP-SVGP: the matrix whose singular vectors it learns).

    Args:
        block: an attention block.
        x: tokens, ``(*batch, n, d)``.
        **masks: masks of the block's ``forward``.

    Returns:
        ``(*batch, h, n, n)``, queries by keys.

    Example:
        >>> from cgp import SoftmaxAttention
        >>> attention_matrix(SoftmaxAttention(8, 2), torch.zeros(4, 8))[0, 0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    compute = getattr(block, "attention_matrix", None)
    if compute is not None:
        return compute(x, **masks)
    tokens = block.project(x, **masks)
    respond = block.mean_heads if hasattr(block, "mean_heads") else block.attend
    n, width = tokens.v.shape[-2:]
    identity = torch.eye(n, dtype=tokens.v.dtype, device=tokens.v.device)
    with full_precision(x.device):
        offset = respond(tokens._replace(v=torch.zeros_like(tokens.v)))
        columns = []
        # A block may have learned variables per column of the values: their number of columns must not change.
        for part in identity.split(width, dim=-1):
            unit = nn.functional.pad(part, (0, width - part.shape[-1])).expand_as(tokens.v)
            columns.append((respond(tokens._replace(v=unit)) - offset)[..., : part.shape[-1]])
    return torch.cat(columns, dim=-1)


@torch.no_grad()
def layer_outputs(model: nn.Module, layers: Iterable[nn.Module], *inputs: Any, **options: Any) -> list[Tensor]:
    """Outputs of some layers during one call of the model.

    Args:
        model: any module.
        layers: modules inside it.
        *inputs: positional arguments of the model.
        **options: keyword arguments of the model.

    Returns:
        One output per layer, in the order of ``layers``.

    Raises:
        ValueError: if a layer did not run.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> [out.shape for out in layer_outputs(model, model, torch.zeros(4, 2))]
        [torch.Size([4, 3]), torch.Size([4, 3])]
    """
    layers = list(layers)
    seen: dict[int, Tensor] = {}
    handles = [layer.register_forward_hook(partial(_keep, seen, i)) for i, layer in enumerate(layers)]
    try:
        model(*inputs, **options)
    finally:
        for handle in handles:
            handle.remove()
    missed = [i for i in range(len(layers)) if i not in seen]
    if missed:
        raise ValueError(f"layers: expected modules that run inside the model, got some that did not: {missed}")
    return [seen[i] for i in range(len(layers))]


@torch.no_grad()
def variance_by_layer(model: nn.Module, *inputs: Any, **options: Any) -> list[Tensor]:
    """Predictive variance of each token in every block with a posterior, given the inputs that reach it.

    Args:
        model: any module.
        *inputs: positional arguments of the model.
        **options: keyword arguments of the model.

    Returns:
        ``(*batch, h, n)`` per block, in the order in which they ran; in units of the head outputs squared.

    Example:
        >>> from cgp import CGPAttention
        >>> model = nn.Sequential(CGPAttention(8, 2), CGPAttention(8, 2)).eval()
        >>> [variance.shape for variance in variance_by_layer(model, torch.randn(3, 5, 8))]
        [torch.Size([3, 2, 5]), torch.Size([3, 2, 5])]
    """
    variances: list[Tensor] = []

    def measure(block: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        variances.append(block.token_variance(*args, **kwargs))

    blocks = [module for module in model.modules() if isinstance(module, Attention) and module.stochastic]
    handles = [block.register_forward_pre_hook(measure, with_kwargs=True) for block in blocks]
    try:
        model(*inputs, **options)
    finally:
        for handle in handles:
            handle.remove()
    return variances


def _keep(seen: dict[int, Tensor], index: int, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
    seen[index] = output
