"""One of the correlated processes on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpytorch.kernels import Kernel
from torch import Tensor

from .canonical_kernel import CanonicalKernel, CanonicalPoints

if TYPE_CHECKING:
    from .correlated_kernel import CorrelatedKernel

__all__ = ["ProcessKernel"]


class ProcessKernel(CanonicalKernel):
    r"""The covariance of one process, :math:`\sigma_p^2\,\kappa(xW_p^\top + b_p,\; x'W_p^\top + b_p)`.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.
        number: which process.
    """

    def __init__(self, correlated: CorrelatedKernel, number: int) -> None:
        super().__init__(active_dims=correlated.active_dims)
        self.correlated = correlated
        self.number = number

    @property
    def base_kernel(self) -> Kernel:
        """The canonical covariance."""
        return self.correlated.base_kernel

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of the process.

        Args:
            x: ``(*batch, n, d)``.

        Returns:
            n points.
        """
        return self.correlated.process_points(self.number, x)
