"""The adapters that are known, and the attention modules of a model that they recognise."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from cgp.attention import Attention

from .adapter import Adapter, ConvertedAttention
from .native import NativeAdapter
from .timm_attention import TimmAdapter
from .torch_attention import TorchAdapter
from .transformers_attention import TextAdapter, VisionAdapter

__all__ = ["Site", "adapters", "attention_sites", "register_adapter"]

_ADAPTERS: list[Adapter] = [NativeAdapter(), TorchAdapter(), TimmAdapter(), VisionAdapter(), TextAdapter()]


class Site(NamedTuple):
    """A place in a model where there is attention.

    Attributes:
        path: its name in ``named_modules``.
        module: what stands there.
        adapter: of its family; None if it is converted already.
    """

    path: str
    module: nn.Module
    adapter: Adapter | None


def register_adapter(adapter: Adapter) -> None:
    """Make a family of models convertible; the newest adapter is asked first.

    Args:
        adapter: of the family.

    Raises:
        ValueError: if it is no adapter.
    """
    if not isinstance(adapter, Adapter):
        raise ValueError(f"adapter: expected an instance of cgp.conversion.Adapter, got {adapter!r}")
    _ADAPTERS.insert(0, adapter)


def adapters() -> tuple[Adapter, ...]:
    """The adapters that are known, in the order in which they are asked.

    Returns:
        The adapters.
    """
    return tuple(_ADAPTERS)


def attention_sites(model: nn.Module) -> list[Site]:
    """The attention modules of a model, converted or convertible, in the order in which they are registered.

    Args:
        model: any module.

    Returns:
        The sites; what lies inside one is none.

    Example:
        >>> [site.path for site in attention_sites(nn.TransformerEncoderLayer(8, 2))]
        ['self_attn']
    """
    sites: list[Site] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{site.path}.") or site.path == "" for site in sites):
            continue
        site = _site(path, module)
        if site is not None:
            sites.append(site)
    return sites


def _site(path: str, module: nn.Module) -> Site | None:
    if isinstance(module, ConvertedAttention) or (isinstance(module, Attention) and module.stochastic):
        return Site(path, module, None)
    found = next((adapter for adapter in _ADAPTERS if adapter.recognises(module)), None)
    return None if found is None else Site(path, module, found)
