"""Draws of layers that are no attention blocks, in the same words as those of blocks."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import Attention
from cgp.functional.gaussians import SAMPLING, check_sampling
from cgp.model.blocks import draws, eval_mode
from cgp.model.blocks import sampling as block_sampling
from cgp.model.inputs import call_model, logits_of, model_device, to_device

__all__ = ["StochasticLayer", "called", "drawing", "means", "stochastic_layers"]


class StochasticLayer(nn.Module):
    """What a layer that draws has in common with a stochastic attention block.

    Attributes:
        stochastic: whether it can draw.
        num_samples: number S of draws that it puts in front of its output; None is one, without that dimension.
    """

    stochastic: bool = True
    num_samples: int | None = None
    _sampling: str | None = None

    @property
    def sampling(self) -> str:
        """How it draws: "mean", "marginal" or "joint"; unless it is set, marginal in training and mean in eval."""
        if self._sampling is not None:
            return self._sampling
        return "marginal" if self.training and self.stochastic else "mean"

    @sampling.setter
    def sampling(self, value: str | None) -> None:
        if value is not None:
            check_sampling(value, SAMPLING)
        self._sampling = value

    def expanded(self, x: Tensor) -> Tensor:  # shape: (S, *batch, d), or that of x
        """Put the draws in front of the input, where this layer is the first that makes them."""
        return x if self.num_samples is None or self.sampling == "mean" else x.expand(self.num_samples, *x.shape)


def stochastic_layers(model: nn.Module) -> list[StochasticLayer | Attention]:
    """List the blocks and layers of a model that can draw; a model without any gives one draw, however many are due."""
    return [m for m in model.modules() if isinstance(m, StochasticLayer | Attention) and m.stochastic]


@contextmanager
def drawing(model: nn.Module, num_samples: int, mode: str = "marginal") -> Iterator[None]:
    """Draw from every stochastic block and layer of a model, for the time of a `with`.

    Its output is then `(S, *batch, C)`; that of a model without any, or of a single draw, is `(*batch, C)`.

    Args:
        model: lets leading dimensions through, and holds its layers in the order in which they run.
        num_samples: number S of draws.
        mode: "mean", "marginal" or "joint".

    Example:
        >>> import torch
        >>> from experiments.methods.mean_field import mean_field
        >>> model = mean_field(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))).eval()
        >>> with drawing(model, 6):
        ...     model(torch.zeros(5, 4)).shape
        torch.Size([6, 5, 3])
    """
    check_sampling(mode, SAMPLING)
    if num_samples < 1:
        raise ValueError(f"num_samples: expected at least 1, got {num_samples}")
    stochastic = stochastic_layers(model)
    layers = [module for module in stochastic if isinstance(module, StochasticLayer)]
    before = [layer._sampling for layer in layers]
    leading = stochastic[0] if stochastic and num_samples > 1 and mode != "mean" else None
    try:
        for layer in layers:
            layer.sampling = mode
        if isinstance(leading, StochasticLayer):
            leading.num_samples = num_samples
        with block_sampling(model, mode), draws(model, 1 if isinstance(leading, StochasticLayer) else num_samples):
            yield
    finally:
        for layer, mode_before in zip(layers, before, strict=True):
            layer.sampling, layer.num_samples = mode_before, None


@torch.no_grad()
def called(model: nn.Module, inputs: Any) -> Tensor:
    """Call a model on one batch (a tensor, or a tuple or dict of arguments); returns its logits on the CPU."""
    return logits_of(call_model(model, to_device(inputs, model_device(model)))).cpu()


def means(model: nn.Module, batches: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the logits of each batch, in eval mode and with the mean of every stochastic block."""
    empty = True
    with eval_mode(model), block_sampling(model, "mean"):
        for part in batches:
            empty = False
            yield called(model, part)
    if empty:
        raise ValueError("batches: expected at least one, and something that can be run through twice, got none")
