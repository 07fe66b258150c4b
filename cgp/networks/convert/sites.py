"""The attention layers of a model: which can be converted, which are converted, which cannot be and why.

A layer is recognised by its source, not by running it: the names that its ``forward``, and the functions of the same
package that it calls, refer to. The model need not be given inputs for this, and layers that a particular call skips
are listed, too.
"""

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
from cgp.networks.model.blocks import REPLACED, unwrapped
from cgp.networks.model.structural_copy import check_module

from .heads import ConvertedHeads
from .manual_attention import PRODUCTS, SOFTMAX_ATTENTION

__all__ = ["Site", "attention_sites", "describe", "num_parameters"]

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "num_head", "num_attn_heads")
_CALLS = {"scaled_dot_product_attention", "multi_head_attention_forward"}
_BY_HAND = re.compile("p.*s.*p")  # a product, a softmax, a product, in the order of evaluation
_DEPTH = 3  # levels of calls that are read below forward: hosts put attention into helper functions


class Site(NamedTuple):
    """An attention layer of a model.

    Attributes:
        path: its name in ``named_modules``.
        module: the attention module.
        state: "softmax" (can be converted), "converted", "native" (a stochastic block of this package) or
            "unreachable".
        reason: why it cannot be converted, with the remedy if there is one.
        number: index among the sites of the model.
    """

    path: str
    module: nn.Module
    state: str
    reason: str = ""
    number: int = 0

    @property
    def num_heads(self) -> int:
        """Number of heads by the module or its configuration; 1 if unknown, or if each head is a module of its own."""
        owners = (self.module, getattr(self.module, "config", None))
        numbers = (getattr(owner, name, None) for owner in owners if owner is not None for name in _HEADS)
        number = next((number for number in numbers if isinstance(number, int) and number > 0), 1)
        lists = {len(child) for child in self.module.children() if isinstance(child, nn.ModuleList)}
        return 1 if number in lists else number  # a list with a module per head: each attends with one head

    def is_inside(self, outer: Site) -> bool:
        """Whether its module is a submodule of another site's."""
        return self.path != outer.path and (not outer.path or self.path.startswith(f"{outer.path}."))


def attention_sites(model: nn.Module) -> list[Site]:
    """The attention modules of a model, in the order in which they are registered.

    Args:
        model: any module.

    Returns:
        The sites. A module called attention that only contains attention modules is not listed.

    Example:
        >>> [(site.path, site.state) for site in attention_sites(nn.TransformerEncoderLayer(8, 2))]
        [('self_attn', 'softmax')]
    """
    check_module(model)
    sites: list[Site] = []
    for path, module in model.named_modules():
        site = Site(path, module, *_state(module))
        if site.state and not any(site.is_inside(outer) for outer in sites if outer.state == "native"):
            sites.append(site)
    # Modules are nested, and one attention must be counted once. Products and a softmax in a module that contains
    # reachable attention are those of its parts, read through the functions that it calls.
    reached = [site for site in sites if site.state != "unreachable"]
    sites = [s for s in sites if s.state != "by hand" or not any(other.is_inside(s) for other in reached)]
    # Unreachable modules are suspected by their names only: around or inside of other sites they are wrappers or parts.
    reached = [site for site in sites if site.state != "unreachable"]
    parts = [s for s in sites if any(s.is_inside(r) for r in reached) or any(other.is_inside(s) for other in sites)]
    kept = [site for site in sites if site.state != "unreachable" or site not in parts]
    return [s._replace(state={"by hand": "softmax"}.get(s.state, s.state), number=i) for i, s in enumerate(kept)]


def describe(model: nn.Module) -> str:
    """Every attention layer of a model: converted, convertible, or unreachable and why.

    Args:
        model: any module, converted or not.

    Returns:
        A table as text. The layers are numbered as :func:`cgp.convert` counts them. What a block has more than the
        attention that it replaced is shown after :func:`cgp.replace_attention`, else "–": it is not known.

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
        raise ValueError(f"model: expected attention layers, got none in {type(model).__name__}: cgp.assess takes any")
    descriptions = [_what(site) for site in sites]
    rows = [("layer", "module", "attention", "heads", "parameters added")]
    rows += [
        (str(s.number), s.path, w, str(s.num_heads), _count(n)) for s, (w, n) in zip(sites, descriptions, strict=True)
    ]
    known = [added for _, added in descriptions if added is not None]
    rows += [("total", "", "", "", _count(sum(known) if known else None))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[f"{cell:{side}{w}}" for cell, side, w in zip(row, "><<>>", widths, strict=True)] for row in rows]
    return "\n".join("  ".join(row) for row in cells)


def num_parameters(module: nn.Module) -> int:
    """The number of a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _what(site: Site) -> tuple[str, int | None]:
    """Description of a site, and the number of parameters added to it: None of a block that replaced nothing known."""
    name, heads = type(site.module).__name__, unwrapped(dict(site.module.named_children()).get("gp"))
    if isinstance(heads, ConvertedHeads):
        how = f"sparse_cgp, {heads.num_inducing} inducing inputs" if heads.num_inducing else "cgp"
        return f"{name}, {how}", num_parameters(heads)
    replaced = getattr(site.module, REPLACED, None)
    added = 0 if replaced is None else num_parameters(site.module) - replaced
    if site.state == "unreachable":
        return f"{name}, cannot be converted: {site.reason}", added
    if site.state == "native":
        return name, None if replaced is None else added
    return f"{name}, as it was" if replaced is None else name, added


def _state(module: Any) -> tuple[str, str]:
    """State and reason of a site; both empty if the module is no attention."""
    if isinstance(module, Attention) and module.stochastic:
        return "native", "a Gaussian-process block already"
    if isinstance(unwrapped(dict(module.named_children()).get("gp")), ConvertedHeads):
        return "converted", "converted already"
    kind: Any = type(module)
    called = _called(kind, frozenset(n for n, child in module.named_children() if isinstance(child, nn.Softmax)))
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
    # A module with "attention" in its name but no projections is a bias or a mask.
    projects = any(not isinstance(child, nn.Embedding) for child in module.children())
    if not named or not projects or kind.forward is nn.Module.forward:
        return "", ""
    return "unreachable", f"not softmax attention ({SOFTMAX_ATTENTION})"


@functools.cache
def _called(kind: Any, softmaxes: frozenset[str]) -> tuple[str, ...]:
    """Names that a class' forward, and the functions of its package that it calls, refer to, in order of evaluation."""
    read: set[Any] = set()  # each function once: calls may be recursive
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
    except (OSError, SyntaxError):  # no source: defined interactively, or compiled; the order is then unknown
        names = [*function.__code__.co_names]
    for name in names:
        yield name
        helper = getattr(kind, name, function.__globals__.get(name))
        if depth and str(getattr(helper, "__module__", "")).startswith(function.__module__.partition(".")[0]):
            yield from _names(helper, kind, depth - 1, read)


def _in_order(node: ast.AST) -> Iterator[str]:
    """Names in the order of evaluation: that of a function after those of its arguments."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        parts = [*parts[1:], parts[0]]
    for part in sorted(parts, key=lambda part: isinstance(part, ast.operator)):
        yield from _in_order(part)
    name = "matmul" if isinstance(node, ast.MatMult) else getattr(node, "attr", None) or getattr(node, "id", None)
    if name:
        yield name


def _is_host_code(name: str) -> bool:
    """Whether a Python module defines models, rather than the building blocks of a library."""
    library = name.partition(".")[0]
    return name.startswith("transformers.models.") or library not in ("torch", "builtins", "gpytorch", "transformers")
