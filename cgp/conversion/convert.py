"""Gaussian-process attention in place of a model's own."""

from __future__ import annotations

import copy as copying
from collections.abc import Sequence
from typing import Any

from torch import nn

from .adapter import ConvertedAttention
from .blocks import AttentionChoice, build_block
from .inducing import initialize_inducing
from .registry import Site, attention_sites

__all__ = ["RECORD", "convert"]

RECORD = "cgp_conversions"
"""Attribute of a converted model: a list of what was done to it, as JSON has it."""


def convert(
    model: nn.Module,
    attention: AttentionChoice = "cgp",
    layers: str | Sequence[int] = "last",
    *,
    copy: bool = True,
    inputs: Any = None,
    **options: Any,
) -> nn.Module:
    r"""Give attention layers of an existing model a Gaussian-process posterior.

    The projections are kept. With "cgp" and "scgp" the posterior's mean is softmax attention exactly,

    .. math:: \operatorname{softmax}(QK^\top/\sqrt s)\,V, \qquad
        \tau^2\,b\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]\,b

    so that in eval mode the converted model predicts as the original does, and draws (``cgp.predict``) vary around it.
    The host's dropout of attention weights is left out: thinned weights are not the posterior's mean.

    Args:
        model: torchvision, timm or transformers encoders, anything with ``nn.MultiheadAttention``, a model with this
            package's deterministic blocks, or one whose family was registered.
        attention: "cgp", "scgp", "sgpa", "kep_svgp", or a factory ``(embed_dim, num_heads, **options) -> block``.
        layers: "last", "all", or indices into the model's attention layers (negative ones count from the end).
        copy: whether to leave ``model`` as it is and convert a copy.
        inputs: what the model takes (a tensor, a tuple or a dict), a batch from which inducing inputs are chosen; None
            leaves them random.
        **options: of the block: ``statistics``, ``num_inducing``, ``noise``, ``amplitude``, ``mean``, ...

    Returns:
        The converted model.

    Raises:
        ValueError: if there is no attention that can be converted, it is converted already, or an argument is off.

    Note:
        The posterior around softmax attention is this package's own; see :mod:`cgp.functional.softmax`.

    Example:
        >>> import torch
        >>> encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> converted = convert(encoder, "scgp", num_inducing=4)
        >>> x = torch.randn(3, 5, 8)
        >>> torch.allclose(converted(x), encoder(x), atol=1e-5)
        True
    """
    chosen = _chosen(model, layers)  # refuse before copying
    host = f"{type(model).__module__}.{type(model).__qualname__}"
    if copy:
        model = copying.deepcopy(model)
    sites = attention_sites(model)
    replacements = {index: _replacement(sites[index], attention, options) for index in chosen}
    for index, new in replacements.items():
        model = _replace(model, sites[index].module, new)
    for adapter in {id(sites[i].adapter): sites[i].adapter for i in chosen}.values():
        if adapter is not None:
            adapter.finish(model)
    record = {
        "host": host,
        "attention": attention if isinstance(attention, str) else None,
        "layers": chosen,
        "options": options,
    }
    setattr(model, RECORD, [*getattr(model, RECORD, []), record])
    if inputs is not None:
        initialize_inducing(model, inputs)
    return model


def _chosen(model: nn.Module, layers: str | Sequence[int]) -> list[int]:
    """Indices of the layers to convert, in order."""
    sites = attention_sites(model)
    if not sites:
        raise ValueError(
            f"model: expected attention that can be converted, got none in {type(model).__name__}{_found(model)}"
        )
    count = len(sites)
    if isinstance(layers, str):
        if layers not in ("last", "all"):
            raise ValueError(f"layers: expected 'last', 'all' or indices, got {layers!r}")
        chosen = [count - 1] if layers == "last" else list(range(count))
    else:
        chosen = sorted({index + count if index < 0 else index for index in layers})
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < count:
        raise ValueError(f"layers: expected indices of the model's {count} attention layers, got {layers!r}")
    converted = [sites[index].path or "the model" for index in chosen if sites[index].adapter is None]
    if converted:
        raise ValueError(f"model: expected deterministic attention, but {', '.join(converted)} is converted already")
    return chosen


def _found(model: nn.Module) -> str:
    """What looks like attention in a model that has none we know."""
    names = [
        f"{path or 'the model'} ({type(module).__module__}.{type(module).__qualname__}{_feature(module)})"
        for path, module in model.named_modules()
        if any("attention" in kind.__name__.lower() for kind in type(module).__mro__)
    ]
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"; not supported: {shown}; register_adapter makes a family of one's own convertible"


def _feature(module: nn.Module) -> str:
    """Why such attention has no Gaussian process here, as far as its attributes say."""
    names = {name.lower() for name in (*vars(module), *module._parameters, *module._buffers, *module._modules)}
    if any("rel_pos" in name or "relative_position" in name or "relative_attention" in name for name in names):
        return ", with a relative position bias"
    return ", in windows" if any("window" in name for name in names) else ""


def _replacement(site: Site, attention: AttentionChoice, options: dict[str, Any]) -> nn.Module:
    """The module that takes a site's place."""
    host, adapter = site.module, site.adapter
    assert adapter is not None
    try:
        block = build_block(
            attention, adapter.read(host), defaults=adapter.defaults(host), plain=adapter.plain(host), options=options
        )
    except ValueError as error:
        raise ValueError(f"{site.path or type(host).__name__}: {error}") from error
    new = adapter.wrap(host, block)
    if isinstance(new, ConvertedAttention):
        new.path = site.path
    return new.train(host.training)


def _replace(model: nn.Module, host: nn.Module, new: nn.Module) -> nn.Module:
    """Put a module wherever another stands: shared layers stay shared."""
    if model is host:
        return new
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is host:
                setattr(parent, name, new)
    return model
