"""A triangular root of a Markov covariance, in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import RootLinearOperator, TriangularLinearOperator
from torch import Tensor

from cgp.functional.linalg import closed, differentiable_once

from .dense_covariance import described

if TYPE_CHECKING:
    from .markov import MarkovLinearOperator

__all__ = ["MarkovRootLinearOperator", "RootedLinearOperator", "TriangularRootLinearOperator"]


class MarkovRootLinearOperator(LinearOperator):
    r"""R of :math:`RR^\top = K`; a column belongs to the innovation of its entry, given the entries of earlier cells.

    It is lower triangular if the entries are in the order of their cells. Products and solutions, also of the
    transposed, take linear time and have gradients.

    Args:
        covariance: K, of n entries with positive variances given those before them.
        transposed: whether it is :math:`R^\top`.
    """

    def __init__(self, covariance: MarkovLinearOperator, transposed: bool = False) -> None:
        super().__init__(covariance, transposed=transposed)
        self.covariance, self.transposed = covariance, transposed

    __repr__ = described

    def _size(self) -> torch.Size:
        return self.covariance.shape

    def _transpose_nonbatch(self) -> MarkovRootLinearOperator:
        return self.__class__(self.covariance, not self.transposed)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self._each(rhs, lambda root, table: root.product(table, transposed=self.transposed))

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        r"""Solution of linear systems, :math:`R^{-1}B` or :math:`CR^{-1}B`, in linear time."""
        solved = _Solve.apply(self.representation_tree(), right_tensor, *self.representation())
        return solved if left_tensor is None else left_tensor @ solved

    def _solve_columns(self, rhs: Tensor) -> Tensor:
        return self._each(rhs, lambda root, table: root.solve(table, transposed=self.transposed))

    def _each(self, rhs: Tensor, apply: Any) -> Tensor:
        columns = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs
        batch = torch.broadcast_shapes(self.batch_shape, columns.shape[:-2])
        columns, parts = columns.expand(*batch, *columns.shape[-2:]), []
        for index, member in self.covariance._members(batch):
            parts.append(member.entries(apply(member.root(), member.table(columns[index].double()))))
        result = torch.stack(parts).reshape(columns.shape).to(rhs)
        result = result.squeeze(-1) if rhs.dim() == 1 else result
        return closed([result], (rhs, *self.representation()))[0]

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        sides = (right_vecs, left_vecs) if self.transposed else (left_vecs, right_vecs)
        return self.covariance.gradients_of(lambda member, left, right: member.root_gradients(left, right), *sides)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> MarkovRootLinearOperator:
        return self.__class__(self.covariance._expand_batch(batch_shape), self.transposed)

    def _unsqueeze_batch(self, dim: int) -> MarkovRootLinearOperator:
        return self.__class__(self.covariance._unsqueeze_batch(dim), self.transposed)

    def _permute_batch(self, *dims: int) -> MarkovRootLinearOperator:
        return self.__class__(self.covariance._permute_batch(*dims), self.transposed)


class TriangularRootLinearOperator(TriangularLinearOperator):
    """A triangular root, whose gradients are the root's own."""

    __repr__ = described

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        return self._tensor._bilinear_derivative(left_vecs, right_vecs)


class RootedLinearOperator(RootLinearOperator):
    r"""The covariance of a root, :math:`RR^\top`, whose gradients are the root's own."""

    __repr__ = described

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        sides = (left_vecs, right_vecs), (right_vecs, left_vecs)
        parts = [self.root._bilinear_derivative(left, self.root._t_matmul(right)) for left, right in sides]
        return tuple(None if one is None else one + other for one, other in zip(*parts, strict=True))


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tree: Any, rhs: Tensor, *representation: Tensor) -> Tensor:
        ctx.root, ctx.like = tree(*representation), (rhs, *representation)
        ctx.solution = ctx.root._solve_columns(rhs.detach())
        return ctx.solution.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        solved, solution = ctx.root.mT._solve_columns(gradient), ctx.solution
        sides = (each.unsqueeze(-1) if each.dim() == 1 else each for each in (-solved, solution))
        return None, solved, *ctx.root._bilinear_derivative(*sides)
