"""A structural copy of a model: modules of its own, and shared tensors."""

from __future__ import annotations

import functools
from collections import OrderedDict
from copy import copy
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["check_module", "structural_copy", "uncompiled", "with_own_buffers"]


def check_module(model: object) -> None:
    """Raise for a model of another library."""
    if not isinstance(model, nn.Module):
        saved = "cgp.assess(torch.nn.Identity(), [(logits, labels)]), or cgp assess FILE on the command line"
        whose = "saved logits" if isinstance(model, Tensor | np.ndarray) else "another library's model, by its logits"
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__} ({whose}: {saved})")


def uncompiled(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of ``torch.compile`` and of data-parallel training."""
    check_module(model)
    while True:
        parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
        inner = model.module if parallel else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def structural_copy(model: nn.Module) -> nn.Module:
    """Copy the modules of a model, and share its parameters, buffers and everything else.

    Changes of the copy's modules (attributes, modes, hooks, replaced methods) do not affect the model; changes of its
    tensors do. References among the modules (lists, bound methods, partial functions) point into the copy. Compiled
    modules are copied uncompiled. TorchScript modules inside a model are shared, not copied; one that is the model
    is copied as a whole.

    Args:
        model: any module.

    Returns:
        The copy, in the same mode as the model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        >>> copy = structural_copy(model).eval()
        >>> copy[0].weight is model[0].weight, model.training
        (True, True)
    """
    model = uncompiled(model)
    if isinstance(model, torch.jit.ScriptModule):
        return copy(model)
    originals = {id(module): uncompiled(module) for module in model.modules()}
    copies: dict[int, nn.Module] = {}
    for original in originals.values():
        if id(original) not in copies:
            scripted = isinstance(original, torch.jit.ScriptModule)
            copies[id(original)] = original if scripted else object.__new__(type(original))
    copies.update({key: copies[id(original)] for key, original in originals.items()})
    for original in originals.values():
        copied = copies[id(original)]
        if copied is not original:
            # A copy first, in one step: other threads may train the model.
            attributes = {name: _mapped(value, copies) for name, value in vars(original).copy().items()}
            attributes.pop("_compiled_call_impl", None)
            vars(copied).update(attributes)
    return copies[id(model)]


def with_own_buffers(model: nn.Module) -> nn.Module:
    """The model, with buffers of its own: some change in a forward pass, and a structural copy shares them."""
    owned: dict[int, Tensor] = {}
    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            buffers: dict[str, Any] = module._buffers
            for name, buffer in buffers.items():
                if buffer is not None:
                    buffers[name] = owned.setdefault(id(buffer), buffer.detach().clone())
    return model


def _mapped(value: Any, copies: dict[int, nn.Module]) -> Any:
    """A value with modules replaced by their copies; containers are copied, other values shared."""
    kind = type(value)
    if kind in (dict, OrderedDict):
        return kind((key, _mapped(item, copies)) for key, item in value.copy().items()) if value else kind()
    if kind in (list, tuple, set):
        return kind(_mapped(item, copies) for item in list(value))
    if kind is MethodType and id(value.__self__) in copies:
        return MethodType(value.__func__, copies[id(value.__self__)])
    if kind is functools.partial:
        function, arguments, options = (_mapped(part, copies) for part in (value.func, value.args, value.keywords))
        return functools.partial(function, *arguments, **options)
    return copies.get(id(value), value)
