"""The common ground of the kernels: points of the canonical process and their scales."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from ._batching import BatchSafeKernel

__all__ = ["CanonicalKernel", "CanonicalPoints", "scaled_diagonal", "scaled_gram"]


class CanonicalPoints(NamedTuple):
    """What every (process, input) pair is: an input of the canonical process, and a factor.

    Attributes:
        inputs: ``(*batch, n, s)``.
        scales: ``(*batch, n)``.
    """

    inputs: Tensor
    scales: Tensor


def scaled_gram(base_kernel: Kernel, left: CanonicalPoints, right: CanonicalPoints | None = None) -> Tensor:
    r"""Covariances of scaled canonical points, :math:`\sigma_i \kappa(z_i, z'_j) \sigma'_j`, ``(*batch, n, m)``."""
    right = left if right is None else right
    gram = to_dense(base_kernel(left.inputs, right.inputs))
    return left.scales.unsqueeze(-1) * gram * right.scales.unsqueeze(-2)


def scaled_diagonal(base_kernel: Kernel, left: CanonicalPoints, right: CanonicalPoints | None = None) -> Tensor:
    r"""Covariances of pairs of scaled points, :math:`\sigma_i \kappa(z_i, z'_i) \sigma'_i`, ``(*batch, n)``."""
    right = left if right is None else right
    return left.scales * to_dense(base_kernel(left.inputs, right.inputs, diag=True)) * right.scales


class CanonicalKernel(BatchSafeKernel):
    r"""A kernel that scales and maps its inputs into one canonical process.

    .. math:: k(x, x') = \sigma(x)\,\kappa(z(x), z(x'))\,\sigma(x')

    It is positive semi-definite because the canonical covariance is. Subclasses say what ``points`` and
    ``base_kernel`` are.
    """

    @property
    def base_kernel(self) -> Kernel:
        """The canonical covariance."""
        raise NotImplementedError

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of inputs ``(*batch, n, d)``: one for each row of the kernel matrix."""
        raise NotImplementedError

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        if last_dim_is_batch or params:
            raise ValueError(
                f"{type(self).__name__}: unknown arguments last_dim_is_batch={last_dim_is_batch}, {params}"
            )
        left = self.points(x1)
        right = left if x2 is x1 else self.points(x2)
        return scaled_diagonal(self.base_kernel, left, right) if diag else scaled_gram(self.base_kernel, left, right)
