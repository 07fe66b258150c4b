"""Every attention of a model: what can be converted, what is converted, what cannot be reached and why."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from cgp.attention import Attention
from cgp.model.blocks import unwrapped

from .by_hand import PRODUCTS, SOFTMAX_ATTENTION
from .heads import ConvertedHeads

__all__ = ["Site", "attention_sites", "describe"]

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "num_head", "num_attn_heads")
_CALLS = {"scaled_dot_product_attention", "multi_head_attention_forward"}
_BY_HAND = re.compile("p.*s.*p")  # products and a softmax, in the order of the source
_DEPTH = 3  # of functions that are read for the call


class Site(NamedTuple):
    """A place in a model where there is attention.

    Attributes:
        path: its name in ``named_modules``.
        module: what stands there.
        state: "softmax" (can be converted), "converted", "native" (a stochastic block of this package) or
            "unreachable".
        reason: why it cannot be converted, with the remedy if there is one.
        number: among the sites of the model.
    """

    path: str
    module: nn.Module
    state: str
    reason: str = ""
    number: int = 0

    @property
    def num_heads(self) -> int:
        """Heads, as far as the module or its configuration says; 1: unknown, or one after another by modules."""
        owners = (self.module, getattr(self.module, "config", None))
        found = (getattr(owner, name, None) for owner in owners if owner is not None for name in _HEADS)
        number = next((number for number in found if isinstance(number, int) and number > 0), 1)
        lists = {len(child) for child in self.module.children() if isinstance(child, nn.ModuleList)}
        return 1 if number in lists else number

    def is_inside(self, outer: Site) -> bool:
        """Whether it is part of the module of another site."""
        return self.path != outer.path and (not outer.path or self.path.startswith(f"{outer.path}."))


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
    for path, module in model.named_modules():
        site = Site(path, module, *_state(module))
        if site.state and not any(site.is_inside(outer) for outer in found if outer.state == "native"):
            found.append(site)
    reached = [site for site in found if site.state != "unreachable"]
    found = [s for s in found if s.state != "by hand" or not any(other.is_inside(s) for other in reached)]
    reached = [site for site in found if site.state != "unreachable"]
    parts = [s for s in found if any(s.is_inside(r) for r in reached) or any(other.is_inside(s) for other in found)]
    kept = [site for site in found if site.state != "unreachable" or site not in parts]
    return [s._replace(state={"by hand": "softmax"}.get(s.state, s.state), number=i) for i, s in enumerate(kept)]


def describe(model: nn.Module) -> str:
    """Every attention layer of a model: converted, convertible, or unreachable and why.

    Args:
        model: any module, converted or not.

    Returns:
        A table as text. The layers are numbered as :func:`cgp.convert` counts them.

    Raises:
        ValueError: if there is no attention.

    Example:
        >>> print(describe(nn.TransformerEncoderLayer(8, 2)))
        layer  module     attention                        heads  parameters added
            0  self_attn  MultiheadAttention, as it was        2                 0
        total                                                                    0
    """
    sites = attention_sites(model)
    if not sites:
        raise ValueError(f"model: expected attention layers, got none in {type(model).__name__}")
    found = [_what(site) for site in sites]
    rows = [("layer", "module", "attention", "heads", "parameters added")]
    rows += [(str(s.number), s.path, w, str(s.num_heads), f"{n:,}") for s, (w, n) in zip(sites, found, strict=True)]
    rows += [("total", "", "", "", f"{sum(added for _, added in found):,}")]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{cell:{side}{w}}" for cell, side, w in zip(row, "><<>>", widths, strict=True)] for row in rows]
    return "\n".join("  ".join(row) for row in cells)


def _what(site: Site) -> tuple[str, int]:
    """What stands at a site, and how many parameters conversion has added to it."""
    name, heads = type(site.module).__name__, unwrapped(site.module._modules.get("gp"))
    if isinstance(heads, ConvertedHeads):
        how = f"sparse_cgp, {heads.num_inducing} inducing inputs" if heads.num_inducing else "cgp"
        return f"{name}, {how}", sum(parameter.numel() for parameter in heads.parameters())
    if site.state == "unreachable":
        return f"{name}, cannot be converted: {site.reason}", 0
    return name if site.state == "native" else f"{name}, as it was", 0


def _state(module: Any) -> tuple[str, str]:
    """State and reason of a site; nothing where there is no attention."""
    if isinstance(module, Attention) and module.stochastic:
        return "native", "a Gaussian-process block already"
    if isinstance(unwrapped(module._modules.get("gp")), ConvertedHeads):
        return "converted", "converted already"
    kind: Any = type(module)
    called = _called(kind, frozenset(n for n, child in module._modules.items() if isinstance(child, nn.Softmax)))
    if "ALL_ATTENTION_FUNCTIONS" in called:
        chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if chosen in ("sdpa", "eager", None):
            return "softmax", ""
        return "unreachable", f"computes attention by {chosen!r}: load the model with attn_implementation='sdpa'"
    if isinstance(module, nn.MultiheadAttention) or not _CALLS.isdisjoint(called):
        return "softmax", ""
    order = "".join("p" if name.startswith(PRODUCTS) else "s" if name == "softmax" else "" for name in called)
    if _BY_HAND.search(order):
        return "by hand", ""
    name = type(module).__name__.lower()
    named = "attention" in name or "attn" in name or isinstance(module, Attention)
    projects = any(not isinstance(child, nn.Embedding) for child in module.children())  # a bias is no attention
    if not named or not projects or kind.forward is nn.Module.forward:
        return "", ""
    return "unreachable", f"not softmax attention ({SOFTMAX_ATTENTION})"


@functools.cache
def _called(kind: Any, softmaxes: frozenset[str]) -> tuple[str, ...]:
    """Names that the forward of a class, and the functions of its package that it calls, refer to, in their order."""
    read: set[Any] = set()
    forwards = [vars(c)["forward"] for c in kind.__mro__ if "forward" in vars(c) and _is_host_code(c.__module__)]
    names = (name for forward in forwards for name in _names(forward, kind, _DEPTH, read))
    return tuple("softmax" if name in softmaxes or name == "Softmax" else name for name in names)


def _names(function: Any, kind: Any, depth: int, read: set[Any]) -> Iterator[str]:
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType) or function in read or not _is_host_code(function.__module__):
        return
    read.add(function)
    try:
        names = [*_in_order(ast.parse(textwrap.dedent(inspect.getsource(function))))]
    except (OSError, SyntaxError):  # no source
        names = [*function.__code__.co_names]
    for name in names:
        yield name
        helper = getattr(kind, name, function.__globals__.get(name))
        if depth and str(getattr(helper, "__module__", "")).startswith(function.__module__.partition(".")[0]):
            yield from _names(helper, kind, depth - 1, read)


def _in_order(node: ast.AST) -> Iterator[str]:
    """Names in the order of evaluation: a function's behind its arguments."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        parts = [*parts[1:], parts[0]]
    for part in sorted(parts, key=lambda part: isinstance(part, ast.operator)):
        yield from _in_order(part)
    name = "matmul" if isinstance(node, ast.MatMult) else getattr(node, "attr", None) or getattr(node, "id", None)
    if name:
        yield name


def _is_host_code(name: str) -> bool:
    """Whether a module holds models rather than what libraries build them with."""
    library = name.partition(".")[0]
    return name.startswith("transformers.models.") or library not in ("torch", "builtins", "gpytorch", "transformers")
