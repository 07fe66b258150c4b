"""A table of the attention of a model."""

from __future__ import annotations

from torch import nn

from .heads import ConvertedHeads
from .sites import Site, attention_sites

__all__ = ["describe"]

_HEADER = ("layer", "module", "attention", "heads", "parameters added")


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
    added = [_added(site) for site in sites]
    body = [
        (str(index), site.path, _what(site), str(site.num_heads), f"{number:,}")
        for index, (site, number) in enumerate(zip(sites, added, strict=True))
    ]
    return _table([_HEADER, *body, ("total", "", "", "", f"{sum(added):,}")])


def _what(site: Site) -> str:
    name = type(site.module).__name__
    heads = site.module._modules.get("gp")
    if isinstance(heads, ConvertedHeads):
        method = "cgp" if heads.inducing is None else f"sparse_cgp, {heads.inducing.shape[-2]} inducing inputs"
        return f"{name}, {method}"
    if site.state == "unreachable":
        return f"{name}, cannot be converted: {site.reason}"
    return name if site.state == "native" else f"{name}, as it was"


def _added(site: Site) -> int:
    heads = site.module._modules.get("gp")
    return sum(p.numel() for p in heads.parameters()) if isinstance(heads, ConvertedHeads) else 0


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    left = {1, 2}  # words; numbers stand to the right
    lines = (
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
