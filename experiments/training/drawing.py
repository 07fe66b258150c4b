"""Draws and means of a whole model with any stochastic layers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.blocks import draws, sampling
from cgp.networks.model.inputs import call_model, logits_of, model_device, to_device

__all__ = ["called", "drawing", "eval_mode", "means"]


@contextmanager
def drawing(model: nn.Module, num_samples: int) -> Iterator[None]:
    """Context in which every stochastic block and layer of a model draws.

    The model's output is `(S, *batch, C)`, or `(*batch, C)` for a single draw or a model without such layers.
    """
    with sampling(model, "marginal"), draws(model, num_samples):
        yield


@torch.no_grad()
def called(model: nn.Module, inputs: Any) -> Tensor:
    """Call a model on one batch (a tensor, or a tuple or dict of arguments); returns its logits on the CPU."""
    return logits_of(call_model(model, to_device(inputs, model_device(model)))).cpu()


def means(model: nn.Module, batches: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the logits of each batch, in eval mode and with the mean of every stochastic block."""
    empty = True
    with eval_mode(model), sampling(model, "mean"):
        for part in batches:
            empty = False
            yield called(model, part)
    if empty:
        raise ValueError("batches: expected at least one, and something that can be run through twice, got none")


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Context in eval mode; afterwards every module has its previous mode, or keeps its frozen factors."""
    before = {module: module.training for module in model.modules()}
    if any(before.values()):
        model.eval()
    try:
        yield
    finally:
        for module, mode in before.items():
            if module.training != mode:
                module.training = mode
