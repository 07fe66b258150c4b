"""Low rank plus diagonal: the covariance of a sparse posterior, without an n × n matrix."""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    DiagLinearOperator,
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
)
from linear_operator.utils.getitem import IndexType, _noop_index
from linear_operator.utils.memoize import cached
from torch import Tensor

from cgp.functional.gaussians import safe_sqrt
from cgp.functional.linalg import cholesky
from cgp.functional.padding import add_noise

from ._exact import ExactLinearOperator, check_positive

__all__ = ["LowRankPlusDiagonalLinearOperator"]


class LowRankPlusDiagonalLinearOperator(ExactLinearOperator, LowRankRootAddedDiagLinearOperator):
    r"""A covariance of low rank plus a diagonal.

    .. math:: V = R R^\top + \operatorname{diag}(D)

    Draws are :math:`R\epsilon_m + \sqrt D\,\epsilon_n`; solves and determinants use Woodbury's identity and one m × m
    Cholesky factor, whereas linear_operator's operator factorises the n × n matrix to sample. Draws are zero in rows of
    zero variance (padded tokens); a density or solve raises ValueError unless D is positive. Root decompositions,
    Cholesky factors and eigenvalues are dense.

    Args:
        root: R, ``(*batch, n, m)``.
        diagonal: D, ``(*batch, n)``.
        preconditioner_override: None, as nothing is preconditioned; linear_operator passes it when it copies.

    Note:
        Woodbury's identity as in Rasmussen & Williams (2006), appendix A.3.

    Example:
        >>> operator = LowRankPlusDiagonalLinearOperator(torch.ones(3, 1), torch.ones(3))
        >>> operator.zero_mean_mvn_samples(5).shape, operator.logdet()
        (torch.Size([5, 3]), tensor(1.3863))
    """

    def __init__(
        self, root: Tensor | LinearOperator, diagonal: Tensor | LinearOperator, preconditioner_override: None = None
    ) -> None:
        low_rank = root if isinstance(root, LowRankRootLinearOperator) else LowRankRootLinearOperator(root)
        diagonal = diagonal if isinstance(diagonal, DiagLinearOperator) else DiagLinearOperator(diagonal)
        super().__init__(low_rank, diagonal, preconditioner_override=preconditioner_override)

    @property
    def root(self) -> Tensor:
        """R, ``(*batch, n, m)``."""
        return self._linear_op.root.to_dense()

    @property
    @cached(name="chol_cap_mat")  # type: ignore[untyped-decorator]
    def chol_cap_mat(self) -> Tensor:
        r"""Cholesky factor of the capacitance :math:`I + R^\top D^{-1} R`, ``(*batch, m, m)``."""
        diagonal = self._diag_tensor._diagonal()
        check_positive(diagonal)
        scaled = self.root * diagonal.rsqrt().unsqueeze(-1)
        return cholesky(add_noise(scaled.mT @ scaled, 1.0), name="Woodbury capacitance", jitter=0.0)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        r"""Joint draws, :math:`R\epsilon_m + \sqrt D\,\epsilon_n`, ``(S, *batch, n)``."""
        root, deviation = self.root, safe_sqrt(self._diag_tensor._diagonal()).unsqueeze(-1)
        options = {"dtype": self.dtype, "device": self.device}
        low_rank = root @ torch.randn(*self.batch_shape, root.shape[-1], num_samples, **options)
        independent = deviation * torch.randn(*self.shape[:-1], num_samples, **options)
        return (low_rank + independent).movedim(-1, 0)

    def repeat(self, *sizes: int) -> LowRankPlusDiagonalLinearOperator:
        """Repeat along the batch dimensions."""
        batch = sizes[:-2]
        return self.__class__(self.root.repeat(*batch, 1, 1), self._diag_tensor._diagonal().repeat(*batch, 1))

    def _getitem(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> LinearOperator:
        if isinstance(row_index, slice) and row_index == col_index:
            root = self.root[(*batch_indices, row_index, _noop_index)]
            return self.__class__(root, self._diag_tensor._diagonal()[(*batch_indices, row_index)])
        return super()._getitem(row_index, col_index, *batch_indices)
