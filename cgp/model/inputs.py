"""What models take: a tensor, a tuple of arguments or a dict of them; in batches, on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["call_model", "logits_of", "model_device", "split_inputs", "to_device"]


def call_model(model: nn.Module, inputs: Any, **options: Any) -> Any:
    """Call a model.

    Args:
        model: any module.
        inputs: a dict becomes keyword arguments, a tuple or list positional ones, anything else the one argument.
        **options: further keyword arguments.

    Returns:
        What the model returns.
    """
    if isinstance(inputs, Mapping):
        return model(**inputs, **options)
    return model(*inputs, **options) if isinstance(inputs, tuple | list) else model(inputs, **options)


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returns.

    Args:
        output: a tensor, or an object or mapping with ``logits``.

    Returns:
        ``(B, ..., C)``.

    Raises:
        ValueError: if there are none.
    """
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("logits")
    if not isinstance(found, Tensor):
        raise ValueError(
            f"model: expected a tensor of logits or an output with .logits, got {type(output).__name__} "
            "(pass output=..., which takes them from it)"
        )
    return found


def model_device(model: nn.Module) -> torch.device:
    """Where a model's parameters are.

    Args:
        model: any module.

    Returns:
        The device of the first of them; the CPU if there are none.
    """
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def to_device(inputs: Any, device: torch.device) -> Any:
    """Inputs with every tensor on a device.

    Args:
        inputs: a tensor, tuple, list or dict.
        device: where to.

    Returns:
        The like.
    """
    if isinstance(inputs, Mapping):
        return {name: to_device(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(to_device(value, device) for value in inputs)
    return inputs.to(device) if isinstance(inputs, Tensor) else inputs


def split_inputs(inputs: Any, batch_size: int | None) -> Iterator[Any]:
    """Inputs in batches along the first dimension of every tensor.

    Args:
        inputs: a tensor, tuple, list or dict.
        batch_size: at most so many at a time; None is all at once.

    Yields:
        The like, with fewer examples.

    Raises:
        ValueError: if the batch size is not positive, there is no tensor, or tensors differ in their first dimension.

    Example:
        >>> [len(part) for part in split_inputs(torch.zeros(5, 2), 2)]
        [2, 2, 1]
    """
    if batch_size is None:
        yield inputs
        return
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    sizes = {tensor.shape[0] if tensor.dim() else 0 for tensor in _tensors(inputs)}
    if len(sizes) != 1:
        raise ValueError(
            f"inputs: expected tensors with one first dimension to split, got sizes {sorted(sizes)} "
            "(batch_size=None passes them whole)"
        )
    for start in range(0, sizes.pop(), batch_size):
        yield _slice(inputs, slice(start, start + batch_size))


def _tensors(inputs: Any) -> list[Tensor]:
    if isinstance(inputs, Mapping):
        return [tensor for value in inputs.values() for tensor in _tensors(value)]
    if isinstance(inputs, tuple | list):
        return [tensor for value in inputs for tensor in _tensors(value)]
    return [inputs] if isinstance(inputs, Tensor) else []


def _slice(inputs: Any, part: slice) -> Any:
    if isinstance(inputs, Mapping):
        return {name: _slice(value, part) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_slice(value, part) for value in inputs)
    return inputs[part] if isinstance(inputs, Tensor) else inputs
