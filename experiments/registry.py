"""The attention blocks and their names, used by rows, benchmarks, studies and tests.

Classes are imported on first use, so that the command line can check a name without importing torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cgp.attention import Attention

__all__ = ["BLOCKS", "Block", "Form", "block_class", "forms"]


class Block(NamedTuple):
    """An attention block: its class in `cgp.attention`, its title in tables, and its forms beside the default one."""

    class_name: str
    title: str
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """Keyword arguments by the name of the form."""


class Form(NamedTuple):
    """A block with the options of one of its forms, called with the width and the number of heads."""

    title: str
    make: Callable[..., Attention]


_CORRELATED = MappingProxyType(
    {
        "latent": {"coupling": "latent"},
        "weights": {"mean": "kernel"},  # the paper's: values as weights
        "latent weights": {"mean": "kernel", "coupling": "latent"},
        "softmax's mean": {"mean": "softmax"},
    }
)

BLOCKS: Mapping[str, Block] = MappingProxyType(
    {
        "softmax": Block("SoftmaxAttention", "softmax attention"),  # the reference comes first
        "kernel": Block("KernelAttention", "kernel attention"),
        "sparse_cgp": Block("SparseCGPAttention", "sparse correlated GP", _CORRELATED),
        "cgp": Block("CGPAttention", "exact correlated GP", _CORRELATED),
        "sgpa": Block("SGPAttention", "SGPA"),
        "sgpa_standard": Block("StandardSGPAttention", "standard SGPA"),
        "kep_svgp": Block("KEPSVGPAttention", "KEP-SVGP"),
        "primal": Block("PrimalAttention", "primal attention"),
    }
)


def block_class(name: str) -> Callable[..., Attention]:
    """Return the class of a block.

    Example:
        >>> block_class("kernel").__name__
        'KernelAttention'
    """
    if name not in BLOCKS:
        raise ValueError(f"attention: expected one of {', '.join(BLOCKS)}, got {name!r}")
    block: Callable[..., Attention] = getattr(import_module("cgp.attention"), BLOCKS[name].class_name)
    return block


def forms() -> dict[str, Form]:
    """Return every form of every block, by the name of the block and of the form.

    Example:
        >>> list(forms())[:5]
        ['softmax', 'kernel', 'sparse_cgp', 'sparse_cgp latent', 'sparse_cgp weights']
    """
    result = {}
    for name, block in BLOCKS.items():
        result[name] = Form(block.title, block_class(name))
        for variant, options in block.variants.items():
            result[f"{name} {variant}"] = Form(f"{block.title}, {variant}", partial(block_class(name), **options))
    return result
