"""Gaussian-process posteriors put around the attention of a model."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from cgp.networks.model.blocks import unwrapped
from cgp.networks.model.fingerprints import logit_temperature, set_logit_temperature
from cgp.networks.model.inducing import initialize_inducing
from cgp.networks.model.structural_copy import structural_copy
from cgp.spelling import counted, meant

from .heads import ConvertedHeads, HostAttention
from .manual_attention import SOFTMAX_ATTENTION, ManualAttention, Origins, tensors_of
from .sites import Site, attention_sites

__all__ = ["attach", "chosen_indices", "convert", "put_heads"]

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
            moved, has_heads = k, mask is not None and mask.dim() == 4 and mask.shape[1:3].numel() > 1
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


def convert(
    model: nn.Module,
    method: str = "cgp",
    layers: str | Sequence[int] = "last",
    *,
    strict: bool = True,
    amplitude: float = 0.1,
    noise: float = 0.01,
    lengthscale: float = 3.0,
    num_inducing: int | None = None,
    inputs: Any = None,
) -> nn.Module:
    r"""Give attention layers of an existing model a Gaussian-process posterior.

    Attention is intercepted where it is computed: projections, norms, rotary positions, caches and adapters stay the
    host's. The posterior's mean is the host's own attention and its covariance

    .. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]

    so that in eval mode the converted model predicts as the original does, and draws (``cgp.predict``) vary around it.
    This construction is of this package, not from a paper: :mod:`cgp.attention.formulas.masked_softmax`.

    Args:
        model: any module with softmax attention: calls of ``F.scaled_dot_product_attention``,
            ``nn.MultiheadAttention``, or a product of queries and keys, a softmax and a product with values by hand.
        method: "cgp" (exact) or "sparse_cgp" (through inducing inputs, which are chosen from ``inputs``).
        layers: "last", "all", or indices into the model's attention layers as :func:`cgp.describe` numbers them
            (negative ones count from the end).
        strict: whether a layer that cannot be converted is an error; False leaves it as it is.
        amplitude: initial value of :math:`\tau`; learned per head.
        noise: initial value of :math:`\sigma^2`; learned per head.
        lengthscale: initial lengthscale of R; learned per head.
        num_inducing: number of inducing inputs per head of "sparse_cgp"; None is 16.
        inputs: a batch of model inputs (a tensor, a tuple or a dict), from which inducing inputs are chosen.

    Returns:
        The converted model: new modules around the same parameters and buffers. ``model`` is not changed, but training
        one trains the other (``copy.deepcopy`` separates them).

    Raises:
        ValueError: if a layer cannot be converted, or an argument is out of range.

    Example:
        >>> encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> converted = convert(encoder)
        >>> x = torch.randn(3, 5, 8)
        >>> torch.allclose(converted(x), encoder(x), atol=1e-5)
        True
    """
    _check(method, num_inducing, inputs)
    copy = structural_copy(model)
    scales: dict[str, Any] = {"amplitude": amplitude, "noise": noise, "lengthscale": lengthscale}
    size = (num_inducing or 16) if method == "sparse_cgp" else None
    sites = _chosen(attention_sites(copy), layers, strict=strict, model=type(model).__name__)
    heads = [ConvertedHeads(site.num_heads, **scales, num_inducing=size) for site in sites]
    put_heads(copy, sites, heads)
    set_logit_temperature(copy, logit_temperature(model))
    if size is not None:
        initialize_inducing(copy, inputs, heads)
    return copy


def put_heads(model: nn.Module, sites: Sequence[Site], heads: Sequence[ConvertedHeads]) -> None:
    """Convert attention layers of a model in place; the heads take the devices and modes of their layers."""
    for site, layer_heads in zip(sites, heads, strict=True):
        parameter = next(site.module.parameters(), torch.zeros(()))
        dtype = parameter.dtype if parameter.dtype == torch.float64 else torch.float32
        layer_heads.path = site.path or type(site.module).__name__
        layer_heads.layer.fill_(site.number)
        attach(site.module, layer_heads.to(parameter.device, dtype).train(site.module.training))
    # The fused path of nn.TransformerEncoder, and its nested tensors, would bypass the heads: both are switched off.
    for module in model.modules():
        is_fused = isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer)
        if is_fused and any(isinstance(part, ConvertedHeads) for part in module.modules()):
            vars(module).update(use_nested_tensor=False, activation_relu_or_gelu=0)


def _check(method: str, num_inducing: int | None, inputs: Any) -> None:
    if method not in ("cgp", "sparse_cgp"):
        raise ValueError(f"method: expected one of 'cgp', 'sparse_cgp', got {method!r}")
    if num_inducing is not None and (method == "cgp" or num_inducing < 1):
        raise ValueError(f"num_inducing: expected None for 'cgp', at least 1 for 'sparse_cgp', got {num_inducing}")
    if method == "sparse_cgp" and inputs is None:
        raise ValueError("inputs: expected a batch from which 'sparse_cgp' chooses its inducing inputs, got None")


def _chosen(sites: list[Site], layers: str | Sequence[int], *, strict: bool, model: str) -> list[Site]:
    """The sites to convert; raises with the list of those that cannot be."""
    requested = [sites[index] for index in chosen_indices(layers, len(sites))]
    convertible = [site for site in requested if site.state == "softmax"]
    if strict and len(convertible) < len(requested):
        unconvertible = [
            f"  {s.path or 'the model'} ({type(s.module).__name__}): {s.reason}"
            for s in requested
            if s not in convertible
        ]
        raise ValueError(
            f"layers: expected attention that can be converted, got {len(unconvertible)} of {len(requested)} that "
            "cannot (strict=False leaves them as they are):\n" + "\n".join(unconvertible)
        )
    if not convertible:
        raise ValueError(f"model: expected attention that can be converted, got none in {model}: cgp.assess takes any")
    return convertible


def chosen_indices(layers: str | Sequence[int], count: int) -> list[int]:
    """The layers that "last", "all" or indices name, in order."""
    if isinstance(layers, str):
        if layers not in ("last", "all"):
            near = meant([layers], ("last", "all"))
            raise ValueError(f"layers: expected 'last', 'all' or indices, got {layers!r}{near}")
        return list(range(count)) if layers == "all" else list(range(count))[-1:]
    if not isinstance(layers, Iterable):
        raise ValueError(f"layers: expected 'last', 'all' or a list of indices, got {layers!r}: [{layers!r}]")
    chosen = sorted({index + count if index < 0 else index for index in layers})
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < count:
        there = f"{counted(count, 'attention layer')}, {'0' if count == 1 else f'0 to {count - 1}'} or -1 for the last"
        raise ValueError(f"layers: expected indices of the model's {there}, got {layers!r}")
    return chosen
