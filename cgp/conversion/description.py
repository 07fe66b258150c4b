"""A table of the attention of a model."""

from __future__ import annotations

from torch import nn

from cgp.attention import Attention
from cgp.model.blocks import attention_blocks

from .blocks import added_parameters, has_softmax_mean
from .registry import attention_sites

__all__ = ["describe"]

_HEADER = ("layer", "module", "method", "heads", "inducing", "parameters added")


def describe(model: nn.Module) -> str:
    """The attention layers of a model: what stands where, and what it adds.

    Args:
        model: any module, converted or not.

    Returns:
        A table as text. The layers are numbered as :func:`cgp.convert` counts them; "parameters added" are those beyond
        the four projections.

    Raises:
        ValueError: if there is no attention that this package knows.

    Example:
        >>> from cgp import CGPAttention
        >>> print(describe(nn.Sequential(CGPAttention(8, 2, mean="softmax"))))
        layer  module  method                       heads   inducing  parameters added
            0  0       CGPAttention, softmax mean   2 × 4          -                 4
        total                                                                        4
    """
    sites = attention_sites(model)
    if not sites:
        raise ValueError(f"model: expected attention layers, got none in {type(model).__name__}")
    rows: list[tuple[str, ...]] = [_HEADER]
    total = 0
    for index, site in enumerate(sites):
        block = next(iter(attention_blocks(site.module)), None)
        if block is None:
            rows.append((str(index), site.path, type(site.module).__name__, "", "-", "0"))
            continue
        added = added_parameters(block)
        total += added
        heads = f"{block.num_heads} × {block.head_dim}"
        rows.append((str(index), site.path, _method(block), heads, _inducing(block), f"{added:,}"))
    rows.append(("total", "", "", "", "", f"{total:,}"))
    return _table(rows)


def _method(block: Attention) -> str:
    return type(block).__name__ + (", softmax mean" if has_softmax_mean(block) else "")


def _inducing(block: Attention) -> str:
    for owner, name in ((block, "num_inducing"), (getattr(block, "ksvd", None), "rank")):
        number = getattr(owner, name, None)
        if isinstance(number, int):
            return str(number)
    return "-"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    left = {1, 2, 3}  # words; numbers stand to the right
    lines = (
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
