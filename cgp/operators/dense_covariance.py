"""A dense covariance, factorised once by :func:`cgp.functional.linalg.cholesky`."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator, to_dense
from linear_operator.operators import (
    CholLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.getitem import IndexType
from linear_operator.utils.memoize import cached
from torch import Tensor

from cgp.functional.linalg import cholesky

__all__ = ["DenseCovarianceLinearOperator", "ExactLinearOperator", "check_positive", "dense_product", "described"]


def described(operator: LinearOperator) -> str:
    """What an operator's repr says: its class, shape and dtype."""
    return f"{type(operator).__name__}(shape={tuple(operator.shape)}, dtype={operator.dtype})"


def dense_product(operator: LinearOperator, other: Tensor | LinearOperator) -> LinearOperator:
    """The product with another entry by entry, which is dense; GPyTorch would factor both."""
    return DenseLinearOperator(operator.to_dense() * to_dense(other))


class ExactLinearOperator(LinearOperator):
    """A covariance whose solves, determinants, roots and eigenvalues are exact at every size."""

    __repr__ = described

    def _choose_root_method(self) -> str:
        return "cholesky"

    def evaluate_kernel(self) -> LinearOperator:
        """Return the operator itself, with its cached factors: it contains no lazy kernel."""
        return self

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        r"""Quadratic form of the inverse, :math:`\operatorname{diag}(B^\top A^{-1} B)` or its sum."""
        return self.inv_quad_logdet(inv_quad_rhs, logdet=False, reduce_inv_quad=reduce_inv_quad)[0]

    def logdet(self) -> Tensor:
        """Log-determinant, ``(*batch,)``."""
        return self.inv_quad_logdet(None, logdet=True)[1]

    def diagonalization(self, method: str | None = None) -> Any:
        """Eigenvalues and eigenvectors, by a dense decomposition unless ``method`` names another."""
        return super().diagonalization(method or "symeig")


def check_positive(variance: Tensor) -> None:
    """Raise ValueError before inverting a covariance that is singular because a variance is zero."""
    wrong = ~(variance > 0)
    if wrong.any():
        raise ValueError(
            f"covariance: a density or a solve needs positive variances, {int(wrong.sum())} of {wrong.numel()} are not "
            "(padded tokens have none): add noise; the log_prob of a block's posterior leaves padded tokens out"
        )


class DenseCovarianceLinearOperator(ExactLinearOperator, DenseLinearOperator):
    """A dense covariance whose sampling and log-density are exact at every size.

    Draws are zero in rows of zero variance (padded tokens); a density or solve raises ValueError for them.

    Args:
        tsr: covariance, ``(*batch, n, n)``.

    Example:
        >>> DenseCovarianceLinearOperator(torch.eye(3)).logdet()
        tensor(0.)
    """

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        r"""Joint draws, :math:`L\epsilon`, ``(S, *batch, n)``."""
        factor = self._cholesky().to_dense()
        epsilon = torch.randn(*self.shape[:-1], num_samples, dtype=self.dtype, device=self.device)
        return (factor @ epsilon).movedim(-1, 0)

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        r"""Solution of linear systems, :math:`A^{-1}B` or :math:`CA^{-1}B`."""
        check_positive(self._diagonal())
        columns = right_tensor.unsqueeze(-1) if right_tensor.dim() == 1 else right_tensor
        solved = torch.cholesky_solve(columns, self._cholesky().to_dense())
        solved = solved.squeeze(-1) if right_tensor.dim() == 1 else solved
        return solved if left_tensor is None else left_tensor @ solved

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool | None = False, reduce_inv_quad: bool | None = True
    ) -> tuple[Tensor | None, Tensor | None]:
        """Quadratic form of the inverse and log-determinant; None for the part that is not requested."""
        check_positive(self._diagonal())
        return CholLinearOperator(self._cholesky()).inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)

    def repeat(self, *sizes: int) -> DenseCovarianceLinearOperator:
        """Repeat along the batch dimensions."""
        return self.__class__(self.tensor.repeat(*sizes))

    def add_diagonal(self, diag: Tensor) -> DenseCovarianceLinearOperator:
        """The sum with a diagonal, dense; ``diag`` is ``(*batch, n)``, ``(*batch, 1)`` or a number."""
        shape = (*torch.broadcast_shapes(self.batch_shape, diag.shape[:-1]), self.shape[-1])
        return self.__class__(self.tensor + torch.diag_embed(diag.expand(shape)))

    def __add__(self, other: Tensor | LinearOperator | float) -> LinearOperator | Tensor:
        """The sum; with a diagonal it stays an exact covariance."""
        return self.add_diagonal(other._diagonal()) if isinstance(other, DiagLinearOperator) else super().__add__(other)

    def _getitem(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> LinearOperator:
        picked = self.tensor[(*batch_indices, row_index, col_index)]
        same_rows = isinstance(row_index, slice) and row_index == col_index
        return self.__class__(picked) if same_rows else DenseLinearOperator(picked)

    def _transpose_nonbatch(self) -> DenseCovarianceLinearOperator:
        return self.__class__(self.tensor.mT)

    def _mul_constant(self, other: Tensor) -> DenseCovarianceLinearOperator:
        return self.__class__(self.tensor * other[..., None, None])

    @cached(name="cholesky")  # type: ignore[untyped-decorator]
    def _cholesky(self, upper: bool = False) -> TriangularLinearOperator:
        """The factor L with LLᵀ the covariance; zero in rows where the covariance is zero."""
        diagonal = self._diagonal()
        empty = diagonal == 0
        # Zero variances are replaced by the largest one, which does not change the scale of the jitter.
        largest = diagonal.detach().amax(-1, keepdim=True)
        stand_in = torch.where(empty, torch.where(largest > 0, largest, 1.0), 0.0)
        factor = cholesky(self.tensor + torch.diag_embed(stand_in), name="covariance", jitter=0.0)
        factor = factor.masked_fill(empty.unsqueeze(-1), 0.0)
        return TriangularLinearOperator(factor.mT if upper else factor, upper=upper)
