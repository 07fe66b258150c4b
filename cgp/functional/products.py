"""Quadratic forms of each row in several matrices, by products of pairs of features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .linalg import may_own_backward, open_backward

__all__ = ["column_quadratic_forms"]

_CACHED = 2**18  # products of two features at a time on a CPU; elsewhere more, for fewer launches


def column_quadratic_forms(rows: Tensor, matrices: Tensor) -> Tensor:
    r"""Quadratic forms of each row in several symmetric matrices, :math:`a_i^\top M_c a_i`, each pair of features once.

    Args:
        rows: ``(*batch, h, n, m)``.
        matrices: :math:`M_c`, ``(h, c, m, m)``.

    Returns:
        ``(*batch, h, n, c)``.
    """
    first, second = torch.tril_indices(rows.shape[-1], rows.shape[-1], device=rows.device)
    weights = matrices[..., first, second] * (2.0 - (first == second).to(matrices.dtype))  # (h, c, m (m + 1) / 2)
    columns = rows.movedim(-3, 0).flatten(1, -2).mT  # (h, m, batch n)
    if may_own_backward():
        forms = _PairForms.apply(columns, weights, first, second)
    else:
        forms = (columns[:, first] * columns[:, second]).mT @ weights.mT
    return forms.unflatten(1, (*rows.shape[:-3], rows.shape[-2])).movedim(0, -3)


def _pairs(columns: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Products of two features, ``(..., m (m + 1) / 2, n)``."""
    return columns.index_select(-2, first) * columns.index_select(-2, second)


def _pieces(columns: Tensor) -> Iterator[tuple[int, slice]]:
    """Heads and stretches of tokens whose pairs fit the cache: pairs are many times what they are made of."""
    heads, size, count = columns.shape
    most = _CACHED if columns.device.type == "cpu" else 2**26
    length = max(most // (size * (size + 1) // 2), 1)
    for head in range(heads):
        for start in range(0, count, length):
            yield head, slice(start, start + length)


class _PairForms(torch.autograd.Function):
    """Quadratic forms by pairs of features, a piece at a time; the pairs are formed again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
        ctx.save_for_backward(columns, weights, first, second)
        forms = columns.new_empty(columns.shape[0], columns.shape[2], weights.shape[1])
        for head, part in _pieces(columns):
            pairs = _pairs(columns[head, :, part].contiguous(), first, second)
            torch.mm(pairs.mT, weights[head].mT, out=forms[head, part])
        return forms

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        columns, weights, first, second = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: every step in the open
            forms = _pairs(columns, first, second).mT @ weights.mT
            return open_backward([forms], ctx.saved_tensors, gradients, ctx.needs_input_grad)
        size = columns.shape[1]
        place = torch.empty(size, size, dtype=torch.long, device=columns.device)
        place[first, second] = place[second, first] = torch.arange(len(first), device=columns.device)
        doubled = (weights * (1.0 + (first == second).to(weights.dtype)))[..., place].permute(0, 2, 3, 1)
        of_columns, of_weights = columns.new_empty(columns.shape), torch.zeros_like(weights)
        for head, part in _pieces(columns):
            own, given = columns[head, :, part].contiguous(), gradients[0][head, part]
            of_weights[head].addmm_(given.mT, _pairs(own, first, second).mT)
            slopes = doubled[head].reshape(size * size, -1) @ given.mT
            torch.sum(slopes.unflatten(0, (size, size)).mul_(own), 1, out=of_columns[head, :, part])
        return of_columns, of_weights, None, None
