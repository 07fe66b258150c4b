"""The temperature by which predictions divide the logits of a model, and the weights that it was fitted with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .blocks import used_modules
from .structural_copy import uncompiled

__all__ = [
    "KEPT",
    "calibrated_weights",
    "keep_weights",
    "logit_temperature",
    "modules_with_temperature",
    "set_logit_temperature",
]

_TEMPERATURE, _WEIGHTS = KEPT = ("cgp_temperature", "cgp_weights")


def logit_temperature(model: nn.Module) -> float:
    """The temperature by which :func:`cgp.predict` divides the logits of a model; 1 unless one was set."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    return float(keeping[0]._buffers[_TEMPERATURE] if keeping else getattr(model, _TEMPERATURE, 1.0))


def modules_with_temperature(model: nn.Module) -> list[Any]:
    """Modules whose state dict holds the temperature: the heads of the converted layers in use."""
    return [module for module in used_modules(model).values() if _TEMPERATURE in module._buffers]


def set_logit_temperature(model: nn.Module, temperature: float) -> None:
    r"""Let :func:`cgp.predict` divide the logits of a model, :math:`p = \operatorname{softmax}(f / T)`.

    The output of the model itself does not change. Copies keep the temperature. A converted model has it in its state
    dict, and so in every saved file; the state dict of another model does not. Nothing is known of the weights that a
    temperature belongs to which is set by hand.

    Args:
        model: any module.
        temperature: T, positive.

    Raises:
        ValueError: if the temperature is not positive and finite.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> set_logit_temperature(model, 1.5)
        >>> logit_temperature(model)
        1.5
    """
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature: expected a positive number, got {temperature!r}")
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    for module in keeping:  # a new tensor: copies share the old one
        setattr(module, _TEMPERATURE, torch.full_like(getattr(module, _TEMPERATURE), temperature))
    if not keeping:
        setattr(model, _TEMPERATURE, float(temperature))
    keep_weights(model, None)


def calibrated_weights(model: nn.Module) -> int | None:
    """The fingerprint of the weights that a model was calibrated with; None if it was not, or by hand."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    kept = int(keeping[0]._buffers[_WEIGHTS]) if keeping else vars(model).get(_WEIGHTS)
    return kept or None


def keep_weights(model: nn.Module, weights: int | None) -> None:
    """Let a model keep the fingerprint of the weights that it was calibrated with, beside its temperature."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    for module in keeping:  # a new tensor: copies share the old one
        setattr(module, _WEIGHTS, torch.full_like(getattr(module, _WEIGHTS), weights or 0))
    if not keeping:
        vars(model)[_WEIGHTS] = weights
