"""Statistics over the real tokens of a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from .padding import mask_tokens

__all__ = ["masked_median", "token_centre"]


def token_centre(x: Tensor, padding: Tensor | None) -> Tensor:
    """Mean over the real tokens.

    Args:
        x: ``(*batch, n, s)``.
        padding: ``(*batch, n)`` or None.

    Returns:
        ``(*batch, 1, s)``; zero where there is no real token.

    Example:
        >>> token_centre(torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([False, False, True]))
        tensor([[2.]])
    """
    if padding is None:
        return x.mean(-2, keepdim=True)
    count = (~padding).sum(-1, keepdim=True)[..., None].clamp(min=1)
    return mask_tokens(x, padding).sum(-2, keepdim=True) / count


def masked_median(values: Tensor, padding: Tensor | None) -> Tensor:
    """Median over the real tokens, cut from the graph.

    Args:
        values: ``(*batch, n)``.
        padding: ``(*batch, n)`` or None.

    Returns:
        ``(*batch, 1)``; zero where there is no real token.

    Example:
        >>> masked_median(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([False, False, True]))
        tensor([1.])
    """
    values = values.detach()
    if padding is None:
        return values.median(-1, keepdim=True).values
    ordered = values.masked_fill(padding, torch.inf).sort(-1).values
    count = (~padding).sum(-1, keepdim=True)
    middle = ordered.gather(-1, ((count - 1) // 2).clamp(min=0).expand(*values.shape[:-1], 1))
    return torch.where(count > 0, middle, 0.0)
