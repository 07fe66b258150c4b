"""Attention intercepted where a host model computes it.

A converted module keeps its class, parameters and forward; its class is exchanged for a subclass whose forward runs
with :class:`_Intercept` around it, which hands every call of ``scaled_dot_product_attention`` to the module's heads.
What a call needs is on the module and on this thread's stack of modes: nothing is shared between threads.
``nn.MultiheadAttention`` hides that call, and gets a forward of its own; modules of transformers that attend eagerly
look up an attention function, and find :func:`_eager_attention`.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from .heads import ConvertedHeads, HostAttention

__all__ = ["attach", "attends_eagerly", "is_attached"]

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_EAGER = "cgp_eager"
_OTHER_TOKENS = ("encoder_hidden_states", "key_value_states", "memory", "context", "cross_attention_states")


def attach(module: nn.Module, heads: ConvertedHeads) -> None:
    """Let a host's attention module attend through heads, which become its child ``gp``; it is changed in place."""
    module.add_module("gp", heads)
    kind: Any = type(module)
    module.__class__ = _hooked(kind)
    if attends_eagerly(module):
        config: Any = copy.copy(module.config)  # this module's only: others, and masks, read theirs
        config._attn_implementation_internal = _EAGER
        vars(module)["config"] = config
    if "forward" in vars(module):  # accelerate's hooks
        vars(module)["forward"] = functools.partial(_run, module, vars(module)["forward"])
    if isinstance(module, nn.MultiheadAttention):
        heads.register_forward_pre_hook(_leave_fused_path)


def is_attached(module: nn.Module) -> bool:
    """Whether :func:`attach` was called on a module."""
    return isinstance(module._modules.get("gp"), ConvertedHeads)


def attends_eagerly(module: Any) -> bool:
    """Whether a module of transformers has been told to attend without ``scaled_dot_product_attention``."""
    chosen = getattr(getattr(module, "config", None), "_attn_implementation", "")
    return chosen in ("eager", None) and "eager_attention_forward" in _globals(module)


@functools.cache
def _hooked(kind: Any) -> Any:
    """The subclass with the hook; pickled as its host."""
    if kind.__module__.startswith("transformers."):
        library = importlib.import_module("transformers.modeling_utils")
        library.ALL_ATTENTION_FUNCTIONS.register(_EAGER, _eager_attention)
    if kind.forward is nn.MultiheadAttention.forward:
        forward: Callable[..., Any] = _multihead_forward
    else:

        def forward(self: nn.Module, *args: Any, **options: Any) -> Any:
            return _run(self, functools.partial(kind.forward, self), *args, **options)

    namespace = {
        "forward": functools.wraps(kind.forward)(forward),
        "__reduce_ex__": lambda self, protocol: (_rebuild, (kind,), self.__getstate__()),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), namespace)


def _rebuild(kind: Any) -> Any:
    return object.__new__(_hooked(kind))


def _leave_fused_path(module: nn.Module, args: Any) -> None:
    """Does nothing: where a module has a hook, ``nn.TransformerEncoderLayer`` calls its parts."""


def _run(module: Any, forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    is_self = not any(isinstance(options.get(name), Tensor) for name in _OTHER_TOKENS)
    mode = _Intercept(module.gp, is_self)
    with mode:
        output = forward(*args, **options)
    if module.gp.sampling != "mean" and not mode.calls:
        raise ValueError(f"{module.gp.path}: expected a call of scaled_dot_product_attention, got none: {REMEDY}")
    return output


REMEDY = "it computes attention by hand (transformers: attn_implementation='sdpa'; timm: fused_attn = True)"


def _eager_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
    """An attention function of transformers: the module's own eager one, through the module's heads."""
    weights: list[Any] = [None]

    def call() -> Tensor:
        out, weights[0] = _globals(module)["eager_attention_forward"](module, query, key, value, mask, **options)
        return out.transpose(1, 2)

    is_self = True
    if module.gp.sampling != "mean":
        mode: Any = _get_current_function_mode()  # of this thread and module
        mode.calls, is_self = mode.calls + 1, mode.is_self
    inputs = HostAttention(call, query, key, mask, scale=options.get("scaling"), is_self=is_self)
    return module.gp.attend(inputs).transpose(1, 2), weights[0]


def _globals(module: Any) -> dict[str, Any]:
    return getattr(inspect.unwrap(type(module).forward), "__globals__", {})


class _Intercept(TorchFunctionMode):
    """Hands calls of ``scaled_dot_product_attention`` to heads."""

    def __init__(self, heads: ConvertedHeads, is_self: bool) -> None:
        super().__init__()
        self.heads, self.is_self, self.calls = heads, is_self, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        self.calls += 1
        given = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        return _attend(self.heads, functools.partial(func, *args, **kwargs), given, self.is_self)


def _attend(heads: ConvertedHeads, call: Callable[[], Tensor], given: dict[str, Any], is_self: bool) -> Tensor:
    """One call of attention through heads, whatever shape the host gives its heads."""
    q, k, mask = given["query"], given["key"], given.get("attn_mask")
    h, shape = heads.num_heads, q.shape
    common = given.get("is_causal", False), given.get("scale"), is_self
    if h == 1 or (q.dim() > 3 and shape[-3] == h):
        return heads.attend(HostAttention(call, q, k, mask, *common))
    if q.dim() == 4 and shape[1] * shape[2] == h:  # one new token: its grouped heads side by side as queries

        def unpack(x: Tensor) -> Tensor:
            return x.reshape(x.shape[0], h, 1, x.shape[-1])

        mask = unpack(mask) if mask is not None and mask.dim() == 4 and mask.shape[1] > 1 else mask
        inputs = HostAttention(lambda: unpack(call()), unpack(q), k, mask, *common)
        return heads.attend(inputs).reshape(*shape[:-1], -1)
    if q.dim() == 3 and shape[0] % h == 0:  # heads folded into the batch
        q, k = q.unflatten(0, (-1, h)), k.unflatten(0, (-1, h))
        mask = mask.unflatten(0, (-1, h)) if mask is not None and mask.dim() == 3 and len(mask) > 1 else mask
        return heads.attend(HostAttention(lambda: call().unflatten(0, (-1, h)), q, k, mask, *common)).flatten(0, 1)
    if q.dim() == 5 and shape[1] == h:  # heads before windows
        q, k = q.movedim(1, -3), k.movedim(1, -3)
        mask = mask.movedim(1, -3) if mask is not None and mask.dim() == 5 else mask
        return heads.attend(HostAttention(lambda: call().movedim(1, -3), q, k, mask, *common)).movedim(-3, 1)
    raise ValueError(f"{heads.path}: expected queries of {h} heads, got shape {tuple(shape)}")


def _multihead_forward(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What ``nn.MultiheadAttention`` computes, its attention by ``scaled_dot_product_attention``."""
    weights = None
    if need_weights:
        masks = key_padding_mask, True, attn_mask, average_attn_weights, is_causal
        weights = nn.MultiheadAttention.forward(self, query, key, value, *masks)[1]
    turned, single, is_self = not self.batch_first and query.dim() == 3, query.dim() == 2, key is query
    q, k, v = (x.transpose(0, 1) if turned else x[None] if single else x for x in (query, key, value))
    q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in _projected(self, q, k, v))
    if key_padding_mask is not None and single:
        key_padding_mask = key_padding_mask[None]
    given = {"query": q, "key": k, "attn_mask": _merged_mask(key_padding_mask, attn_mask, self.num_heads, q.dtype)}
    dropout = self.dropout if self.training else 0.0
    call = functools.partial(F.scaled_dot_product_attention, q, k, v, given["attn_mask"], dropout)
    out = self.out_proj(_attend(self.gp, call, given, is_self).transpose(1, 2).flatten(-2))
    return (out.transpose(0, 1) if turned else out[0] if single else out), weights


def _projected(host: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    if host._qkv_same_embed_dim:
        weights = host.in_proj_weight.chunk(3)
    else:
        weights = host.q_proj_weight, host.k_proj_weight, host.v_proj_weight
    biases = (None, None, None) if host.in_proj_bias is None else host.in_proj_bias.chunk(3)
    return tuple(F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True))


def _merged_mask(padding: Tensor | None, pairs: Tensor | None, num_heads: int, dtype: torch.dtype) -> Tensor | None:
    """Both masks of a call in the convention of ``scaled_dot_product_attention``."""
    if pairs is not None and pairs.dim() == 3:
        pairs = pairs.unflatten(0, (-1, num_heads))
    given = [m for m in (None if padding is None else padding[:, None, None, :], pairs) if m is not None]
    if not given:
        return None
    if all(m.dtype == torch.bool for m in given):
        return ~functools.reduce(torch.logical_or, given)
    biases = (
        m.new_zeros(m.shape, dtype=dtype).masked_fill(m, -torch.inf) if m.dtype == torch.bool else m for m in given
    )
    return functools.reduce(torch.add, biases).to(dtype)
