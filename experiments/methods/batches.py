"""Inputs of any kind, a batch at a time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cgp.model.inputs import call_model, logits_of, model_device, split_inputs, to_device

__all__ = ["batches", "called", "check_labels"]


def batches(inputs: Any, batch_size: int) -> Iterator[Any]:
    """Yield inputs in batches.

    Args:
        inputs: a tensor, a tuple, list or dict of arguments, or another iterable of batches, which is passed on.
        batch_size: at most so many at a time; an iterable of batches has its own.

    Yields:
        What the model is called with.

    Raises:
        ValueError: if there is nothing, or an iterable can be run through only once.

    Example:
        >>> [part.shape[0] for part in batches(torch.zeros(5, 2), 2)]
        [2, 2, 1]
    """
    if isinstance(inputs, Tensor | Mapping | tuple | list):
        parts: Iterable[Any] = split_inputs(inputs, batch_size)
    elif isinstance(inputs, Iterator):
        raise ValueError("inputs: expected something that can be run through twice, got an iterator")
    else:
        parts = inputs
    empty = True
    for part in parts:
        empty = False
        yield part
    if empty:
        raise ValueError("inputs: expected at least one example, got none")


@torch.no_grad()
def called(model: nn.Module, inputs: Any) -> Tensor:
    """Call a model on one batch.

    Args:
        model: from inputs to logits.
        inputs: one batch.

    Returns:
        The logits, on the CPU.
    """
    return logits_of(call_model(model, to_device(inputs, model_device(model)))).cpu()


def check_labels(labels: Tensor, count: int, num_classes: int) -> Tensor:
    """Check that there is a class for each example.

    Args:
        labels: classes.
        count: number N of examples.
        num_classes: C.

    Returns:
        `(N,)` int64, on the CPU.

    Raises:
        ValueError: if there is not.
    """
    if labels.shape != (count,):
        raise ValueError(f"labels: expected ({count},), one for each example, got {tuple(labels.shape)}")
    labels = labels.cpu().long()
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise ValueError(
            f"labels: expected classes 0 to {num_classes - 1}, got {int(labels.min())} to {int(labels.max())}"
        )
    return labels
