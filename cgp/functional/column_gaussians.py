r"""Gaussian posteriors over tokens with one covariance per column.

The columns c of ``mean`` (\*batch, n, s) are independent Gaussian vectors over the n tokens; they share features and a
residual, and differ in a small root:

.. math:: \Sigma_c = A\,L_cL_c^\top A^\top + \Sigma_{\text{residual}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .gaussians import Gaussian, safe_sqrt
from .linalg import may_own_backward, open_backward
from .noise import standard_normal

__all__ = ["ColumnGaussian", "column_quadratic_forms"]

_CACHED = 2**18  # products of two features formed at a time on a CPU, where they fit the cache


@dataclass(eq=False)
class ColumnGaussian(Gaussian):
    r"""One covariance per column: features times a root per column, plus a residual shared by all columns.

    Attributes:
        mean: ``(*batch, n, s)``.
        features: A, ``(*batch, n, m)``, zero at padded tokens.
        roots: :math:`L_c`, lower triangular, ``(*batch, s, m, m)`` or broadcastable.
        diagonal: diagonal of the residual, ``(*batch, n, 1)`` or ``(*batch, n, s)``, zero at padded tokens, or None.
        residual_root: computes the Cholesky factor of a dense residual, ``(*batch, n, n)``; None if it is diagonal.
        loss: computes the loss term of training, ``(*batch,)``; None if there is none.

    Example:
        >>> gaussian = ColumnGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(2, 1, 1), torch.ones(3, 1))
        >>> gaussian.rsample("joint").shape, gaussian.column_variances[0]
        (torch.Size([3, 2]), tensor([2., 2.]))
    """

    mean: Tensor
    features: Tensor
    roots: Tensor
    diagonal: Tensor | None = None
    residual_root: Callable[[], Tensor] | None = None
    loss: Callable[[], Tensor] | None = None

    @property
    def column_variances(self) -> Tensor:
        """Variance of each token and column, ``(*batch, n, s)``."""
        if self.roots.dim() == 4 and self.features.dim() >= 3:  # one set of roots per head, shared by the batch
            explained = column_quadratic_forms(self.features, self.roots @ self.roots.mT).clamp(min=0.0)
        else:
            side_by_side = self.features @ self.roots.transpose(-3, -2).flatten(-2)  # (*batch, n, s m)
            explained = side_by_side.unflatten(-1, self.roots.shape[-3::2]).square().sum(-1)
        return explained if self.diagonal is None else explained + self.diagonal

    @property
    def variance(self) -> Tensor:
        """Variance of each token, averaged over its columns, ``(*batch, n)``."""
        return self.column_variances.mean(-1)

    @property
    def covariance(self) -> Tensor:
        """Dense covariance of each column, ``(*batch, s, n, n)``."""
        projected = self.features[..., None, :, :] @ self.roots
        covariance = projected @ projected.mT
        if self.residual_root is not None:
            root = self.residual_root()
            return covariance + (root @ root.mT)[..., None, :, :]
        return covariance if self.diagonal is None else covariance + torch.diag_embed(self.diagonal.mT)

    def joint(self) -> Self:
        """This Gaussian."""
        return self

    def _joint_draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        r"""Draws :math:`\mu_c + AL_c\epsilon_c + \Sigma_{\text{residual}}^{1/2}\epsilon'_c`."""
        draw = self.mean + self.features @ self.coefficients(sample_shape, generator)
        if self.residual_root is None and self.diagonal is None:
            return draw
        epsilon = standard_normal(self.mean, sample_shape, generator)
        if self.residual_root is not None:
            return draw + self.residual_root() @ epsilon
        assert self.diagonal is not None
        return torch.addcmul(draw, safe_sqrt(self.diagonal), epsilon)

    def coefficients(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        r"""Draws of the coefficients of the features, :math:`L_c\epsilon_c`, ``(*sample_shape, *batch, m, s)``."""
        batch, (*root_batch, columns, rank, _), like = (
            self.features.shape[:-2],
            self.roots.shape,
            self.features.new_empty(()),
        )
        if len(root_batch) == 1 and batch:  # one product per head and column for the whole batch
            leading = torch.Size((*sample_shape, *batch[:-1]))
            epsilon = standard_normal(like.expand(*root_batch, columns, rank, leading.numel()), (), generator)
            return (self.roots @ epsilon).movedim(-1, 0).reshape(*leading, *root_batch, columns, rank).mT
        epsilon = standard_normal(like.expand(*batch, columns, rank, 1), sample_shape, generator)
        return (self.roots @ epsilon)[..., 0].mT


def column_quadratic_forms(rows: Tensor, matrices: Tensor) -> Tensor:
    r"""Quadratic forms :math:`a_i^\top M_c a_i`, of symmetric matrices.

    Args:
        rows: :math:`a_i`, ``(*batch, h, n, m)``.
        matrices: :math:`M_c`, ``(h, c, m, m)``.

    Returns:
        ``(*batch, h, n, c)``.
    """
    # The matrices are symmetric: each pair of features is multiplied once, and weighted twice off the diagonal.
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
    """Heads and slices of tokens for which the pairs, (m + 1) / 2 times the features, fit the cache."""
    heads, size, count = columns.shape
    most = _CACHED if columns.device.type == "cpu" else 2**26  # larger on a GPU, for fewer launches
    length = max(most // (size * (size + 1) // 2), 1)
    for head in range(heads):
        for start in range(0, count, length):
            yield head, slice(start, start + length)


class _PairForms(torch.autograd.Function):
    """Quadratic forms by pairs of features, a slice at a time; the backward pass computes the pairs again."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
        ctx.save_for_backward(columns, weights, first, second)
        forms = columns.new_empty(*weights.shape[:2], columns.shape[2])
        for head, part in _pieces(columns):
            pairs = _pairs(columns[head, :, part].contiguous(), first, second)
            torch.mm(weights[head], pairs, out=forms[head, :, part])
        return forms.mT.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        columns, weights, first, second = ctx.saved_tensors
        if torch.is_grad_enabled():  # differentiated twice: by the plain formula, whose steps autograd records
            forms = _pairs(columns, first, second).mT @ weights.mT
            return open_backward([forms], ctx.saved_tensors, gradients, ctx.needs_input_grad)
        size = columns.shape[1]
        place = torch.empty(size, size, dtype=torch.long, device=columns.device)
        place[first, second] = place[second, first] = torch.arange(len(first), device=columns.device)
        doubled = (weights * (1.0 + (first == second).to(weights.dtype)))[..., place].permute(0, 2, 3, 1)
        of_columns, of_weights = columns.new_empty(columns.shape), torch.zeros_like(weights)
        for head, part in _pieces(columns):
            features, gradient = columns[head, :, part].contiguous(), gradients[0][head, part]
            of_weights[head].addmm_(gradient.mT, _pairs(features, first, second).mT)
            slopes = doubled[head].reshape(size * size, -1) @ gradient.mT
            torch.sum(slopes.unflatten(0, (size, size)).mul_(features), 1, out=of_columns[head, :, part])
        return of_columns, of_weights, None, None
