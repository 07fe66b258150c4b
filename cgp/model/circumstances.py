"""Under what circumstances a model runs: its mode, the seed of its draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["eval_mode", "noise_again", "seeded", "uncompiled"]


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
    with noise_again(device):
        torch.manual_seed(seed)
        yield


@contextmanager
def noise_again(device: torch.device) -> Iterator[None]:
    """Put the global generators back after a ``with``: what follows draws the same noise.

    Args:
        device: whose generator is meant besides the CPU's.
    """
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=_forked(device)):
        yield


def _forked(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type


def uncompiled(model: nn.Module) -> nn.Module:
    """The model itself inside what ``torch.compile`` put around it.

    Args:
        model: any module.

    Returns:
        The module whose parameters and names these are.

    Example:
        >>> inner = nn.Linear(1, 1)
        >>> uncompiled(torch.compile(inner)) is inner
        True
    """
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model
