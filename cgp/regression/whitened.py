"""Sums over observations of whitened features, with a gradient that costs one product with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["whitened_sums"]


def whitened_sums(factors: list[Tensor], crosses: list[Tensor], targets: Tensor) -> tuple[Tensor, Tensor]:
    r"""Second moments of features of observations, and their products with the observations.

    .. math:: A = \begin{pmatrix} L_1^{-1}C_1 \\ \vdots \end{pmatrix}, \qquad (AA^\top,\; Aw)

    Autograd would differentiate through the product and the substitution one after the other, which takes two more
    passes of O(n m²) than are needed: the factor's gradient follows from the sums alone.

    Args:
        factors: L, one ``(*batch, m_q, m_q)`` a component.
        crosses: C, one ``(*batch, m_q, n)`` a component.
        targets: w, ``(*batch, n)``.

    Returns:
        ``(*batch, m, m)`` and ``(*batch, m)``.

    Example:
        >>> L, C = torch.tensor([[2.0]]), torch.tensor([[2.0, 4.0]])
        >>> whitened_sums([L], [C], torch.tensor([1.0, 1.0]))
        (tensor([[5.]]), tensor([3.]))
    """
    return _WhitenedSums.apply(targets, len(factors), *factors, *crosses)


class _WhitenedSums(torch.autograd.Function):
    """With G the gradient of the Gram matrix, symmetrised, and g that of the product: dC = L^-T (G A + g w')."""

    @staticmethod
    def forward(ctx: Any, targets: Tensor, number: int, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        factors, crosses = arguments[:number], arguments[number:]
        pairs = zip(factors, crosses, strict=True)
        features = torch.cat([torch.linalg.solve_triangular(L, C, upper=False) for L, C in pairs], dim=-2)
        gram = features @ features.mT
        product = (features @ targets.unsqueeze(-1)).squeeze(-1)
        ctx.save_for_backward(targets, features, gram, product, *factors)
        return gram, product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_gram: Tensor, of_product: Tensor) -> tuple[Tensor | None, ...]:
        targets, features, gram, product, *factors = ctx.saved_tensors
        of_targets = (features.mT @ of_product.unsqueeze(-1)).squeeze(-1)
        inner = torch.cat([of_gram + of_gram.mT, of_product.unsqueeze(-1)], dim=-1)  # (*batch, m, m + 1)
        moments = torch.cat([gram, product.unsqueeze(-2)], dim=-2)  # (*batch, m + 1, m): [A; w'] A'
        of_factors, of_crosses, start = [], [], 0
        for L in factors:
            rows = slice(start, start + L.shape[-1])
            left = torch.linalg.solve_triangular(L.mT, inner[..., rows, :], upper=True)
            of_crosses.append(left[..., :-1] @ features + left[..., -1:] * targets.unsqueeze(-2))
            of_factors.append(-(left @ moments[..., rows]).tril())
            start = rows.stop
        return of_targets.sum_to_size(targets.shape), None, *of_factors, *of_crosses
