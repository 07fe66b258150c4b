"""Attention intercepted where a host model computes it.

A converted module keeps its class, parameters and forward. When it draws, that forward runs inside :class:`_Intercept`,
a torch function mode, which passes attention to the module's heads: calls of ``scaled_dot_product_attention``, or
products and a softmax (:mod:`cgp.networks.convert.manual_attention`). All state of a call is on the module or on this
thread's stack of modes, so that threads share nothing.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from cgp.networks.model.blocks import unwrapped

from .heads import ConvertedHeads, HostAttention
from .manual_attention import SOFTMAX_ATTENTION, ManualAttention, Origins, tensors_of

__all__ = ["attach"]

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_MULTIHEAD = F.multi_head_attention_forward
# Torch passes F.multi_head_attention_forward to a mode as one call, so that the mode cannot see the attention in it.
# This copy skips the check for modes, so that the functions it calls reach the mode one by one.
_INSIDE_MULTIHEAD = types.FunctionType(
    _MULTIHEAD.__code__,
    {**_MULTIHEAD.__globals__, "has_torch_function": lambda tensors: False},
    argdefs=_MULTIHEAD.__defaults__,
)


def attach(module: nn.Module, heads: ConvertedHeads) -> None:
    """Let a host's attention module attend through heads, which become its child ``gp``; it is changed in place."""
    module.add_module("gp", heads)
    # On the instance, because its class stays the host's. A forward that is there already (accelerate's) is called.
    vars(module)["forward"] = functools.partial(_run, module, vars(module).get("forward"))


def _run(module: Any, replaced: Callable[..., Any] | None, *args: Any, **options: Any) -> Any:
    """Run the forward that was ``replaced`` on the instance, or that of the class, with the heads' attention."""
    forward = replaced or functools.partial(type(module).forward, module)
    heads = unwrapped(module.gp)
    # The mean is the host's own attention: nothing to intercept, unless a context manager observes heads.attend.
    if heads.sampling == "mean" and "attend" not in vars(heads):
        return forward(*args, **options)
    origins = None if torch.compiler.is_compiling() else Origins(args, options)  # Dynamo cannot trace ids of tensors
    mode = _Intercept(heads, origins)
    with mode:  # not "with ... as mode": Dynamo does not support it
        output = forward(*args, **options)
    if not mode.calls:
        what = f"expected softmax attention ({SOFTMAX_ATTENTION}), got none"
        raise ValueError(f"{heads.path}: {what}: leave this layer out of layers=")
    tokens = _tokens(output, *args, *options.values())
    if mode.queries < tokens:
        what = f"expected softmax attention of every token, got it of {mode.queries} of {tokens}"
        raise ValueError(f"{heads.path}: {what} (the others have no posterior): leave this layer out of layers=")
    return output


def _tokens(output: Any, *arguments: Any) -> int:
    """The number of tokens that a layer takes and returns, as ``(B, N, D)``; 0 where it does anything else."""
    returned, given = (
        next((x for x in pytree.tree_leaves(values) if isinstance(x, Tensor) and x.is_floating_point()), None)
        for values in (output, arguments)
    )
    if returned is None or given is None or returned.dim() != 3 or given.shape[:2] != returned.shape[:2]:
        return 0
    return returned.shape[:2].numel()


class _Intercept(TorchFunctionMode):
    """Passes every attention of a forward pass to the heads."""

    def __init__(self, heads: ConvertedHeads, origins: Origins | None) -> None:
        super().__init__()
        self.heads, self.is_multihead, self.calls, self.queries = heads, False, 0, 0
        self.origins = origins
        self.by_hand = None if origins is None else ManualAttention(self._attend, origins)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _MULTIHEAD:
            self.is_multihead = True
            with self:  # torch disables a mode while it handles a call
                return _INSIDE_MULTIHEAD(*args, **kwargs)
        output = self._call(func, args, kwargs)
        if self.origins is not None:
            changed = args[0] if func is Tensor.__setitem__ else output  # an assignment in place returns None
            self.origins.follow(tensors_of(args, kwargs), changed)
        return output

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call the function, or the heads if it is attention."""
        # Linear maps before the attention are nn.MultiheadAttention's input projections, which draws may share.
        if func is F.linear and self.is_multihead and not self.calls:
            return self.heads.project(_linear, *args)
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs) if self.by_hand is None else self.by_hand(func, args, kwargs)
        given = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        call, masks = functools.partial(func, *args, **kwargs), (given.get("attn_mask"), given.get("is_causal", False))
        is_self = self.origins is not None and self.origins.cover(given["key"], given["query"])
        inputs = HostAttention(call, given["query"], given["key"], *masks, given.get("scale"), is_self)
        return self._attend(inputs)

    def _attend(self, inputs: HostAttention) -> Tensor:
        """One call of attention through the heads, which expect queries ``(*batch, h, Nq, s)``."""
        self.calls += 1
        q, k, mask, h = inputs.q, inputs.k, inputs.mask, self.heads.num_heads
        self.queries += q.shape[:-1].numel() // h
        if h == 1 or (q.dim() > 3 and q.shape[-3] == h):
            return self.heads.attend(inputs)
        if q.dim() == 4 and q.shape[1] * q.shape[2] == h:  # grouped queries of one new token, (B, groups, h/groups, s)
            there, back = lambda x: x.reshape(len(x), h, 1, -1), lambda x: x.reshape(*q.shape[:-1], -1)
            moved, has_heads = k, False
        elif q.dim() == 3 and len(q) % h == 0:  # heads folded into the batch, (B h, Nq, s)
            there, back = lambda x: x.unflatten(0, (-1, h)), lambda x: x.flatten(0, 1)
            moved, has_heads = there(k), mask is not None and mask.dim() == 3 and len(mask) > 1
        elif q.dim() == 5 and q.shape[1] == h:  # heads before windows, (B, h, windows, Nq, s)
            there, back = lambda x: x.movedim(1, -3), lambda x: x.movedim(-3, 1)
            moved, has_heads = there(k), mask is not None and mask.dim() == 5
        else:
            raise ValueError(f"{self.heads.path}: expected queries of {h} heads, got shape {tuple(q.shape)}")
        mask = there(mask) if mask is not None and has_heads else mask
        inputs_by_head = inputs._replace(call=lambda: there(inputs.call()), q=there(q), k=moved, mask=mask)
        return back(self.heads.attend(inputs_by_head))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``, without the copy that it makes of a transposed batch when all three projections are one product."""
    if x.dim() == 3 and len(weight) == 3 * x.shape[-1] and x.stride(0) < x.stride(1):  # the batch comes second
        return F.linear(x.transpose(0, 1), weight, bias).transpose(0, 1)
    return F.linear(x, weight, bias)
