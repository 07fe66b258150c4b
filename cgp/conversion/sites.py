"""Every attention of a model: what can be converted, what is converted, and what cannot be reached and why."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from cgp.attention import Attention, StochasticHeads

from .hooks import attends_eagerly, is_attached

__all__ = ["Site", "attention_sites"]

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "num_head", "num_attn_heads")
_MAPS = {"qkv", "qk", "q", "k", "kv", "query", "key", "q_proj", "k_proj", "to_q", "to_k", "to_qkv", "Wqkv"}
_DEPTH = 3  # of helper functions that are read for the call


class Site(NamedTuple):
    """A place in a model where there is attention.

    Attributes:
        path: its name in ``named_modules``.
        module: what stands there.
        state: "softmax" (can be converted), "converted", "native" (a stochastic block of this package) or
            "unreachable".
        reason: why it is unreachable, with the remedy if there is one.
        number: among the sites of the model.
    """

    path: str
    module: nn.Module
    state: str
    reason: str = ""
    number: int = 0

    @property
    def num_heads(self) -> int:
        """Heads, as far as the module or its configuration says; 1 stands for unknown."""
        owners = (self.module, getattr(self.module, "config", None))
        found = (getattr(owner, name, None) for owner in owners if owner is not None for name in _HEADS)
        return next((number for number in found if isinstance(number, int) and number > 0), 1)


def attention_sites(model: nn.Module) -> list[Site]:
    """The attention modules of a model, in the order in which they are registered.

    Args:
        model: any module.

    Returns:
        The sites; a module named after attention that only contains others is none.

    Example:
        >>> [(site.path, site.state) for site in attention_sites(nn.TransformerEncoderLayer(8, 2))]
        [('self_attn', 'softmax')]
    """
    found: list[Site] = []
    closed: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(prefix) for prefix in closed) or isinstance(module, StochasticHeads):
            continue
        state, reason = _state(module)
        if state:
            found.append(Site(path, module, state, reason))
        if state == "native":
            closed.append(f"{path}." if path else "")
    paths = [site.path for site in found]
    kept = [site for site in found if site.state != "unreachable" or not _contains(site.path, paths)]
    return [site._replace(number=number) for number, site in enumerate(kept)]


def _contains(path: str, paths: list[str]) -> bool:
    prefix = f"{path}." if path else ""
    return any(other != path and other.startswith(prefix) for other in paths)


def _state(module: Any) -> tuple[str, str]:
    if isinstance(module, Attention) and module.stochastic:
        return "native", ""
    if is_attached(module):
        return "converted", ""
    if isinstance(module, nn.MultiheadAttention):
        return _multihead_state(module)
    kind: Any = type(module)
    called = _called(kind)
    if "scaled_dot_product_attention" in called or "ALL_ATTENTION_FUNCTIONS" in called:
        reason = _switched_off(module, called)
        return ("unreachable", reason) if reason else ("softmax", "")
    name = type(module).__name__.lower()
    if "softmax" in called and _MAPS & module._modules.keys():
        return "unreachable", "computes attention by hand"
    if "attention" not in name and "attn" not in name and not isinstance(module, Attention):
        return "", ""
    if "softmax" in called or any(isinstance(child, nn.Softmax) for child in module.children()):
        return "unreachable", "computes attention by hand"
    projects = any(not isinstance(child, nn.Embedding) for child in module.children())  # a bias is no attention
    return ("unreachable", "not softmax attention") if projects else ("", "")


def _multihead_state(module: nn.MultiheadAttention) -> tuple[str, str]:
    if type(module).forward is not nn.MultiheadAttention.forward:
        return "unreachable", "computes attention in a forward of its own"
    if module.bias_k is not None or module.add_zero_attn:
        return "unreachable", "appends keys that are no tokens (add_bias_kv, add_zero_attn)"
    return "softmax", ""


def _switched_off(module: Any, called: frozenset[str]) -> str:
    """What has to be switched on so that attention is called where it can be intercepted."""
    if getattr(module, "fused_attn", True) is False:
        return "computes attention by hand: set its fused_attn = True (timm.layers.set_fused_attn)"
    chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if "ALL_ATTENTION_FUNCTIONS" in called and chosen != "sdpa" and not attends_eagerly(module):
        return f"computes attention by {chosen!r}: load the model with attn_implementation='sdpa'"
    return ""


@functools.cache
def _called(kind: Any) -> frozenset[str]:
    """Names that a class's methods, and the functions of its package that they call, refer to."""
    names: set[str] = set()
    for owner in kind.__mro__:
        if not _is_host_code(owner.__module__):
            continue
        for value in vars(owner).values():
            function = inspect.unwrap(value) if callable(value) else value
            if isinstance(function, types.FunctionType):
                names.update(_names(function, _DEPTH))
    return frozenset(names)


def _names(function: types.FunctionType, depth: int) -> Iterator[str]:
    package = function.__module__.partition(".")[0]
    for name in function.__code__.co_names:
        yield name
        helper = function.__globals__.get(name)
        if not isinstance(helper, types.FunctionType) or not _is_host_code(helper.__module__):
            continue
        if depth and helper.__module__.startswith(package):
            yield from _names(helper, depth - 1)


def _is_host_code(name: str) -> bool:
    """Whether a module holds models rather than what libraries build them with."""
    library = name.partition(".")[0]
    return name.startswith("transformers.models.") or library not in ("torch", "builtins", "gpytorch", "transformers")
