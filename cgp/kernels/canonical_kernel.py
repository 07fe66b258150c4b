"""Base class of the kernels: points of canonical processes and their loadings."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from ._batching import BatchSafeKernel
from .base_kernels import base_gram

__all__ = ["CanonicalKernel", "CanonicalPoints"]


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
