"""What enters the last layer of a model."""

from typing import Any

import torch
from torch import Tensor, nn

from cgp.model.blocks import sampling
from cgp.model.circumstances import eval_mode
from experiments.methods.batches import batches, called

__all__ = ["last_features", "last_linear"]


def last_linear(model: nn.Module, inputs: Any, batch_size: int = 256) -> tuple[str, nn.Linear]:
    """Find the linear layer whose output is the model's.

    Args:
        model: from inputs to logits.
        inputs: a tensor, a tuple or dict of arguments, or an iterable of batches; the first batch is looked at.
        batch_size: examples at a time.

    Returns:
        Its name in the model, and itself.

    Raises:
        ValueError: if there is none, or two passes of the model differ.

    Example:
        >>> last_linear(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), torch.zeros(2, 4))
        ('2', Linear(in_features=8, out_features=3, bias=True))
    """
    first = next(iter(batches(inputs, batch_size)))
    outputs: list[tuple[str, nn.Linear, Tensor]] = []
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name, m=module: outputs.append((name, m, out)))
        for name, module in layers
    ]
    try:
        with eval_mode(model), sampling(model, "mean"):
            logits = called(model, first)
            again = called(model, first)
    finally:
        for hook in hooks:
            hook.remove()
    if not torch.allclose(logits, again, rtol=1e-4, atol=1e-5):
        raise ValueError("model: expected the same logits in two passes, got others: it draws in eval mode")
    if not outputs or not torch.equal(outputs[-1][2].cpu(), again):
        raise ValueError("model: expected a linear layer whose output is the model's, got a model without one")
    name, layer, _ = outputs[-1]
    return name, layer


def last_features(model: nn.Module, layer: str, inputs: Any, batch_size: int = 256) -> Tensor:  # shape: (N, D)
    """Collect what enters a layer, in eval mode, with the mean of every stochastic block.

    Args:
        model: any module.
        layer: name of the layer in it; it sees each example once, as one vector.
        inputs: a tensor, a tuple or dict of arguments, or an iterable of batches.
        batch_size: examples at a time.

    Returns:
        `(N, D)` float64, on the CPU.

    Raises:
        ValueError: if the layer sees more than one vector an example.

    Example:
        >>> model = nn.Sequential(nn.ReLU(), nn.Linear(2, 1))
        >>> last_features(model, "1", torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2.]], dtype=torch.float64)
    """
    seen: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _, args: seen.append(args[0].double().cpu()))
    try:
        with eval_mode(model), sampling(model, "mean"):
            for part in batches(inputs, batch_size):
                called(model, part)
    finally:
        hook.remove()
    features = torch.cat(seen)
    if features.ndim != 2:
        raise ValueError(f"layer: expected one vector an example, got {tuple(features.shape)} entering {layer!r}")
    return features
