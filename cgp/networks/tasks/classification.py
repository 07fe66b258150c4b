"""What a task asks of a network's outputs, so that every kind of classification is one of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cgp.networks.model.inputs import logits_of

from .labels import check_not_sigmoid

__all__ = ["CLASSIFICATIONS", "DIMENSIONS", "task_output"]

CLASSIFICATIONS = ("classification", "tokens", "multilabel", "dense")
"""One label for each input, for each token, several for each input, one for each pixel."""

DIMENSIONS = {
    "classification": (2, "(N, C), one label for every input"),
    "tokens": (3, "(N, n, C), one label for every token"),
    "multilabel": (3, "(N, C) of C labels that are there or not"),
    "dense": (4, "(N, C, H, W), one label for every pixel"),
}
"""Dimensions of the logits that :func:`task_output` takes, and how the network gives them."""


def task_output(task: str, output: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    """What takes logits with the classes last from what a network returns.

    Args:
        task: one of ``CLASSIFICATIONS``.
        output: takes the network's own logits.

    Returns:
        ``output`` itself, or what puts the classes of maps ``(N, C, H, W)`` last, or makes the two classes of each of C
        labels, whose softmax is the sigmoid: ``(N, C, 2)``.

    Example:
        >>> task_output("multilabel", lambda out: out)(torch.tensor([[3.0]]))
        tensor([[[0., 3.]]])
        >>> task_output("dense", lambda out: out)(torch.zeros(1, 5, 2, 3)).shape
        torch.Size([1, 2, 3, 5])
    """
    if task == "dense":
        return lambda returned: _maps(output(returned))
    if task == "multilabel":
        return lambda returned: _two_classes(output(returned), checks=output is logits_of)
    return output


def _maps(logits: Tensor) -> Tensor:
    if logits.dim() != 4:
        raise ValueError(f"model: expected logits (N, C, H, W) with task='dense', got shape {tuple(logits.shape)}")
    return logits.movedim(1, -1)


def _two_classes(logits: Tensor, *, checks: bool) -> Tensor:
    if logits.dim() != 2:
        raise ValueError(f"model: expected logits (N, C) with task='multilabel', got shape {tuple(logits.shape)}")
    if checks:
        check_not_sigmoid(logits)
    return torch.stack([torch.zeros_like(logits), logits], -1)
