"""The source of a prediction: fingerprint of the weights, calibration and options."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from cgp.networks.guarantees.source import Source
from cgp.networks.model.temperature import logit_temperature
from cgp.networks.tasks import Task

from .method import Method
from .settings import settings_of

__all__ = ["source_of"]


def source_of(model: nn.Module, weights: int, task: Task, options: Mapping[str, Any]) -> Source:
    """The source of a prediction.

    Args:
        model: that predicts.
        weights: its fingerprint.
        task: takes outputs, and of a regression their noise.
        options: of :func:`cgp.predict`, that change what it predicts, by name.

    Returns:
        The source, in words that are equal after saving and loading; of functions only that they are given.
    """
    settings = settings_of(model)
    method = settings.method
    parts = {"T": f"{logit_temperature(model):.9g}", "method": "none" if method is None else method.name}
    if settings.scale is not None:
        parts["scale"] = _words(settings.scale)
    if method is not None and (content := _content(method)):
        parts["fitted"] = f"{zlib.crc32(content):08x}"
    asked = {**options, "noise": getattr(task, "noise", None)}
    asked["output"] = None if task.output is type(task).__dataclass_fields__["output"].default else task.output
    words = {name: _words(value) for name, value in asked.items()}
    return Source(weights, ", ".join(f"{name}={value}" for name, value in parts.items()), words)


def _content(method: Method) -> bytes:
    """What a method was fitted to, in bytes; nothing of one that cannot be written."""
    try:
        tensors = method.state()[1]
    except ValueError:
        return b""
    return b"".join(tensors[name].cpu().numpy().tobytes() for name in sorted(tensors))


def _words(value: Any) -> str:
    if callable(value):
        return "a function"
    if isinstance(value, bool | str | torch.dtype) or value is None:
        return str(value)
    numbers = torch.as_tensor(value).detach().double().reshape(-1).tolist()
    return " ".join(f"{number:.9g}" for number in numbers)
