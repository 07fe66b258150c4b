"""One covariance for several channels, factorised once."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    BatchRepeatLinearOperator,
    DiagLinearOperator,
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
)
from linear_operator.utils.getitem import IndexType, _noop_index
from linear_operator.utils.memoize import cached
from torch import Tensor

from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.gaussians import DenseGaussian, Gaussian, LowRankGaussian, safe_sqrt
from cgp.functional.linalg import cholesky
from cgp.functional.padding import add_noise

from .dense_covariance import DenseCovarianceLinearOperator, ExactLinearOperator, check_positive

__all__ = ["LowRankPlusDiagonalLinearOperator", "SharedCovarianceLinearOperator", "shared_covariance"]


class LowRankPlusDiagonalLinearOperator(ExactLinearOperator, LowRankRootAddedDiagLinearOperator):
    r"""A covariance of low rank plus a diagonal.

    .. math:: V = R R^\top + \operatorname{diag}(D)

    Draws are :math:`R\epsilon_m + \sqrt D\,\epsilon_n`; solves and determinants use Woodbury's identity and one m × m
    Cholesky factor, whereas linear_operator's operator factorises the n × n matrix to sample. Draws are zero in rows of
    zero variance (padded tokens). Where D is not positive, solves and determinants are dense, and raise ValueError if
    the rank is below n. Root decompositions, Cholesky factors and eigenvalues are dense.

    Args:
        root: R, ``(*batch, n, m)``.
        diagonal: D, ``(*batch, n)``.
        preconditioner_override: None, as nothing is preconditioned; linear_operator passes it when it copies.

    Raises:
        ValueError: if n differs.

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
        if low_rank.shape[-1] != diagonal.shape[-1]:
            shapes = f"{tuple(low_rank.root.shape)} and {tuple(diagonal.shape[:-1])}"
            raise ValueError(f"root, diagonal: expected (*batch, n, m) and (*batch, n), got {shapes}")
        super().__init__(low_rank, diagonal, preconditioner_override=preconditioner_override)

    @property
    def root(self) -> Tensor:
        """R, ``(*batch, n, m)``."""
        return self._linear_op.root.to_dense()

    @property
    @cached(name="chol_cap_mat")  # type: ignore[untyped-decorator]
    def chol_cap_mat(self) -> Tensor:
        r"""Cholesky factor of the capacitance :math:`I + R^\top D^{-1} R`, ``(*batch, m, m)``."""
        scaled = self.root * self._diag_tensor._diagonal().rsqrt().unsqueeze(-1)
        return cholesky(add_noise(scaled.mT @ scaled, 1.0), name="Woodbury capacitance", jitter=0.0)

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Tensor:
        dense = self._dense_unless_positive()
        return super()._solve(rhs) if dense is None else dense.solve(rhs)

    def _logdet(self) -> Tensor:
        dense = self._dense_unless_positive()
        return super()._logdet() if dense is None else dense.logdet()

    @cached(name="dense_unless_positive")  # type: ignore[untyped-decorator]
    def _dense_unless_positive(self) -> DenseCovarianceLinearOperator | None:
        """The dense covariance of full rank where D is not positive, which Woodbury's identity divides by."""
        positive = self._diag_tensor._diagonal() > 0
        if bool(positive.all()):
            return None
        dense = DenseCovarianceLinearOperator(self.to_dense())
        check_positive(dense._diagonal())
        rank, size = int(positive.sum(-1).min()) + self._linear_op.root.shape[-1], self.shape[-1]
        if rank < size:
            raise ValueError(
                f"covariance: a density or a solve needs full rank, got rank {rank} of {size}: add noise, as by "
                "add_diagonal, or take fewer tokens"
            )
        return dense

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


def shared_covariance(posterior: Gaussian) -> LinearOperator:
    """The covariance of a posterior's s columns, factorised once if the columns share it.

    A covariance of low rank plus a diagonal is never formed. Padded tokens have zero variance: draws there equal the
    mean, and a density raises ValueError (``posterior.log_prob`` leaves them out) unless noise was added.

    Args:
        posterior: mean ``(*batch, n, s)`` and a covariance over the n tokens.

    Returns:
        ``(*batch, s, n, n)``.

    Example:
        >>> from cgp.functional.gaussians import LowRankGaussian
        >>> shared_covariance(LowRankGaussian(torch.zeros(6, 2), torch.ones(6, 3), torch.ones(6))).shape
        torch.Size([2, 6, 6])
    """
    joint = posterior.joint()
    if isinstance(joint, ColumnGaussian):
        return _covariance_of_columns(joint)
    covariance: LinearOperator
    if isinstance(joint, DenseGaussian):
        covariance = DenseCovarianceLinearOperator(joint.covariance)
    else:
        assert isinstance(joint, LowRankGaussian)
        covariance = LowRankPlusDiagonalLinearOperator(joint.root, joint.diagonal)
    shape = posterior.mean.mT.shape  # (*batch, s, n)
    covariance = covariance.unsqueeze(-3)  # (*batch, 1, n, n)
    batch = (1,) * (len(shape) + 1 - covariance.dim()) + covariance.batch_shape
    repeats = (size // max(present, 1) for size, present in zip(shape[:-1], batch, strict=True))
    return SharedCovarianceLinearOperator(covariance, torch.Size(repeats))


def _covariance_of_columns(posterior: ColumnGaussian) -> LinearOperator:
    if posterior.residual_root is not None:
        return DenseCovarianceLinearOperator(posterior.covariance)
    root = posterior.features[..., None, :, :] @ posterior.roots  # (*batch, s, n, m)
    diagonal = root.new_zeros(()) if posterior.diagonal is None else posterior.diagonal.mT
    return LowRankPlusDiagonalLinearOperator(root, diagonal.expand(root.shape[:-1]))


class SharedCovarianceLinearOperator(ExactLinearOperator, BatchRepeatLinearOperator):
    """A covariance repeated along batch dimensions, factorised once for all repeats.

    Draws of different batch members are independent; solves and log-densities treat the repeats as columns of one
    right-hand side. Unlike linear_operator's ``BatchRepeatLinearOperator``, sampling and solves keep the structure of
    the repeated operator.

    Args:
        base_linear_op: the covariance, ``(*base, n, n)``.
        batch_repeat: number of repeats of each batch dimension (a ``torch.Size``; leading entries are new dimensions).

    Example:
        >>> from cgp.operators import LowRankPlusDiagonalLinearOperator
        >>> covariance = LowRankPlusDiagonalLinearOperator(torch.ones(5, 1, 3, 2), torch.ones(5, 1, 3))
        >>> SharedCovarianceLinearOperator(covariance, torch.Size([1, 4])).shape
        torch.Size([5, 4, 3, 3])
    """

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Joint draws, ``(S, *batch, n)``, independent between batch members."""
        repeats, base = self.batch_repeat, self.base_linear_op
        draws = base.zero_mean_mvn_samples(num_samples * repeats.numel())
        draws = draws.reshape(num_samples, *repeats, *base.shape[:-1])
        depth = len(repeats)
        interleaved = chain.from_iterable((1 + i, 1 + depth + i) for i in range(depth))  # repeat, then base
        return draws.permute(0, *interleaved, -1).reshape(num_samples, *self.shape[:-1])

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        r"""Solution of linear systems, :math:`A^{-1}B` or :math:`CA^{-1}B`; repeats become columns of B."""
        columns = right_tensor.unsqueeze(-1) if right_tensor.dim() == 1 else right_tensor
        shape = torch.Size((*torch.broadcast_shapes(self.batch_shape, columns.shape[:-2]), *columns.shape[-2:]))
        solved = self.base_linear_op.solve(self._move_repeat_batches_to_columns(columns.expand(shape), shape))
        solved = self._move_repeat_batches_back(solved, shape)
        solved = solved.squeeze(-1) if right_tensor.dim() == 1 else solved
        return solved if left_tensor is None else left_tensor @ solved

    def add_diagonal(self, diag: Tensor) -> LinearOperator:
        """The sum with a diagonal; it stays shared if ``diag`` is one number, or has the shape of what is shared."""
        if diag.numel() == 1:
            return self.__class__(self.base_linear_op.add_diagonal(diag.reshape(())), self.batch_repeat)
        base = self.base_linear_op
        pairs = zip(diag.shape, base.shape[:-1], strict=False)
        if diag.dim() == base.dim() - 1 and all(size in (1, whole) for size, whole in pairs):
            return self.__class__(base.add_diagonal(diag), self.batch_repeat)
        return self._unshared() + DiagLinearOperator(diag.expand(self.shape[:-1]))

    def __add__(self, other: Tensor | LinearOperator | float) -> LinearOperator | Tensor:
        """The sum; with a diagonal it stays exact and keeps the structure of the repeated operator."""
        return self._unshared() + other if isinstance(other, DiagLinearOperator) else super().__add__(other)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if other.dim():
            return super()._mul_constant(other)
        return self.__class__(self.base_linear_op._mul_constant(other), self.batch_repeat)

    def _getitem(self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType) -> LinearOperator:
        same_rows = isinstance(row_index, slice) and row_index == col_index
        if same_rows and all(isinstance(index, slice) and index == _noop_index for index in batch_indices):
            base = self.base_linear_op._getitem(row_index, col_index, *batch_indices)
            return self.__class__(base, self.batch_repeat)
        return self._unshared()._getitem(row_index, col_index, *batch_indices)

    def _unshared(self) -> LinearOperator:
        """The same covariance as an operator that is not shared: one factor per repeat."""
        return self.base_linear_op.repeat(*self.batch_repeat, 1, 1)
