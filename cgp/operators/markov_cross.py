"""The covariance between two sets of entries of one state space."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from linear_operator.utils.getitem import IndexType
from torch import Tensor

from .dense_covariance import dense_product, described
from .markov import MarkovLinearOperator
from .markov_promised import PromisedMarkovLinearOperator

__all__ = ["MarkovCrossLinearOperator"]


class MarkovCrossLinearOperator(LinearOperator):
    """The covariance of the first entries of a Markov operator with the others, in linear time.

    Args:
        joint: of all m + n entries, without noise; may be promised.
        rows: m.
    """

    def __init__(self, joint: MarkovLinearOperator | PromisedMarkovLinearOperator, rows: int) -> None:
        super().__init__(joint, rows=rows)
        self.given, self.rows = joint, rows

    __repr__ = described

    @property
    def joint(self) -> MarkovLinearOperator:
        """The covariance of all entries."""
        return self.given.made

    def _size(self) -> torch.Size:
        return torch.Size([*self.given.batch_shape, self.rows, self.given.shape[-1] - self.rows])

    def _matmul(self, rhs: Tensor) -> Tensor:
        columns = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs
        product = self.joint._matmul(_padded(columns, self.rows, 0))[..., : self.rows, :]
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        count = self.shape[-1]
        return self.joint._bilinear_derivative(_padded(left_vecs, 0, count), _padded(right_vecs, self.rows, 0))

    def _transpose_nonbatch(self) -> MarkovCrossLinearOperator:
        count = self.joint.shape[-1]
        order = torch.arange(count).roll(-self.rows)
        return self.__class__(self.joint.select(order), count - self.rows)

    def _mul_constant(self, other: Tensor) -> MarkovCrossLinearOperator:
        return self.__class__(self.joint._mul_constant(other), self.rows)

    def __add__(self, other: Any) -> Any:
        """The sum; of covariances of the same entries it is again one."""
        if isinstance(other, MarkovCrossLinearOperator) and self.shape == other.shape:
            joint = self.joint + other.joint
            if isinstance(joint, MarkovLinearOperator):
                return self.__class__(joint, self.rows)
        return super().__add__(other)

    _mul_matrix = dense_product

    def _getitem(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> LinearOperator:
        if any(isinstance(index, Tensor) for index in batch_indices):  # which are paired with those of rows
            return DenseLinearOperator(self.to_dense())._getitem(row_index, col_index, *batch_indices)
        joint = self.joint._getitem(slice(None), slice(None), *batch_indices) if batch_indices else self.joint
        rows, columns = torch.arange(self.rows)[row_index], torch.arange(self.rows, self.joint.shape[-1])[col_index]
        return self.__class__(joint.select(torch.cat([rows, columns])), len(rows))

    def _get_indices(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> Tensor:
        return self.to_dense()[(*batch_indices, row_index, col_index)]


def _padded(columns: Tensor, before: int, after: int) -> Tensor:
    """Columns ``(*batch, n, S)`` with rows of zeros around them."""
    return torch.nn.functional.pad(columns, (0, 0, before, after))
