"""Gaussian-process posteriors put around the attention of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from cgp.networks.model.fingerprints import logit_temperature, set_logit_temperature
from cgp.networks.model.inducing import initialize_inducing
from cgp.networks.model.structural_copy import structural_copy

from .heads import ConvertedHeads
from .hooks import attach
from .sites import Site, attention_sites

__all__ = ["chosen_indices", "convert", "put_heads"]


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
        raise ValueError(f"model: expected attention that can be converted, got none in {model}")
    return convertible


def chosen_indices(layers: str | Sequence[int], count: int) -> list[int]:
    """The layers that "last", "all" or indices name, in order."""
    if isinstance(layers, str):
        if layers not in ("last", "all"):
            raise ValueError(f"layers: expected 'last', 'all' or indices, got {layers!r}")
        return list(range(count)) if layers == "all" else list(range(count))[-1:]
    chosen = sorted({index + count if index < 0 else index for index in layers})
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < count:
        raise ValueError(f"layers: expected indices of the model's {count} attention layers, got {layers!r}")
    return chosen
