"""Base class of the kernels: points of canonical processes and their loadings; rows (input, process)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from linear_operator import to_dense
from torch import Tensor

from ._batching import BatchSafeKernel
from .base_kernels import base_gram

__all__ = ["CanonicalKernel", "CanonicalPoints", "noise_of_rows", "process_numbers", "rows_of"]


class CanonicalPoints(NamedTuple):
    """Representation of (process, input) pairs: inputs of the canonical process, and weights of R copies of it.

    Attributes:
        inputs: z, ``(*batch, n, s)``.
        loadings: a, ``(*batch, n, R)``; one copy, R = 1, for processes that are views of the same one.
    """

    inputs: Tensor
    loadings: Tensor


class CanonicalKernel(BatchSafeKernel):
    r"""A kernel that maps its inputs into R independent copies of one canonical process.

    .. math:: k(x, x') = a(x)^\top a(x')\,\kappa(z(x), z(x'))

    It is positive semi-definite by Schur's product theorem, because the canonical covariance is. Subclasses define
    ``points`` and ``base_kernel``.
    """

    @property
    def base_kernel(self) -> Kernel:
        """κ, the canonical covariance."""
        return self.covar_module

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of inputs ``(*batch, n, d)``: one for each row of the kernel matrix."""
        raise NotImplementedError

    def inducing(self, points: Tensor) -> CanonicalPoints:
        """Inducing inputs ``(m, s)`` of the canonical process itself, which serve every process."""
        return CanonicalPoints(points, torch.ones_like(points[..., :1]))

    def gram(self, left: CanonicalPoints, right: CanonicalPoints | None = None) -> Tensor:
        """Covariances ``(*batch, n, m)`` of n canonical points with m others, or each other, with gradients."""
        right = left if right is None else right
        return base_gram(self.base_kernel, left.inputs, right.inputs) * (left.loadings @ right.loadings.mT)

    def variances(self, left: CanonicalPoints, right: CanonicalPoints | None = None) -> Tensor:
        """Covariances ``(*batch, n)`` of pairs of canonical points, or their variances."""
        right = left if right is None else right
        canonical = to_dense(self.base_kernel(left.inputs, right.inputs, diag=True))
        return canonical * (left.loadings * right.loadings).sum(-1)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        if last_dim_is_batch or params:
            raise ValueError(
                f"{type(self).__name__}: unknown arguments last_dim_is_batch={last_dim_is_batch}, {params}"
            )
        left = self.points(x1)
        right = None if x2 is x1 else self.points(x2)
        return self.variances(left, right) if diag else self.gram(left, right)


def process_numbers(x: Tensor, num_processes: int) -> Tensor:
    """The process of each row, the last column 0 … P-1 of ``(*batch, n, d + 1)``: ``(*batch, n)`` of int64."""
    column = x[..., -1]
    numbers = column.long()
    wrong = (numbers != column) | (numbers < 0) | (numbers >= num_processes)
    if wrong.any():
        last = num_processes - 1
        raise ValueError(f"x: expected processes 0 to {last} in the last column, got {float(column[wrong][0]):g}")
    return numbers


def rows_of(table: Tensor, numbers: Tensor) -> Tensor:
    """The row ``(*batch, n, k)`` of each process in ``(*batch, P, k)``; both may have batch dimensions of their own."""
    batch = torch.broadcast_shapes(table.shape[:-2], numbers.shape[:-1])
    numbers = numbers.expand(*batch, -1).unsqueeze(-1).expand(*batch, numbers.shape[-1], table.shape[-1])
    return table.expand(*batch, *table.shape[-2:]).gather(-2, numbers)


def noise_of_rows(likelihood: _GaussianLikelihoodBase, x: Tensor) -> Tensor:
    """The noise variance ``(*batch, n)`` of each row, for any Gaussian likelihood of GPyTorch."""
    if not isinstance(likelihood, _GaussianLikelihoodBase):
        raise ValueError(f"likelihood: expected Gaussian noise, got {type(likelihood).__name__}")
    return likelihood._shaped_noise_covar(x.shape[:-1], x).diagonal(dim1=-2, dim2=-1)
