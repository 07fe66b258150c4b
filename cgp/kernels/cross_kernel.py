"""The covariance between two of the correlated processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpytorch import Module
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor

from .canonical_kernel import scaled_gram

if TYPE_CHECKING:
    from .correlated_kernel import CorrelatedKernel

__all__ = ["CrossKernel"]


class CrossKernel(Module):
    r"""The covariance between two processes, :math:`\sigma_p\sigma_r\,\kappa(xW_p^\top + b_p,\; x'W_r^\top + b_r)`.

    It is not a covariance function (k(x, x') differs from k(x', x)) and therefore no GPyTorch ``Kernel``. The result
    is evaluated at
    once: a lazy kernel matrix is transposed by swapping the inputs, which would leave the processes behind.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.
        left: process of the rows.
        right: process of the columns.
    """

    def __init__(self, correlated: CorrelatedKernel, left: int, right: int) -> None:
        super().__init__()
        self.correlated = correlated
        self.left, self.right = left, right

    @property
    def mT(self) -> CrossKernel:  # noqa: N802
        """The covariance of the same processes the other way round."""
        return CrossKernel(self.correlated, self.right, self.left)

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> LinearOperator:
        """The covariance of one process at ``x1`` with the other at ``x2``.

        Args:
            x1: ``(*batch, n, d)``.
            x2: ``(*batch, m, d)``; None means ``x1``.

        Returns:
            ``(*batch, n, m)``.
        """
        kernel = self.correlated
        left, right = (_select(x, kernel.active_dims) for x in (x1, x1 if x2 is None else x2))
        points = kernel.process_points(self.left, left), kernel.process_points(self.right, right)
        return to_linear_operator(scaled_gram(kernel.base_kernel, *points))


def _select(x: Tensor, active_dims: Tensor | None) -> Tensor:
    return x if active_dims is None else x.index_select(-1, active_dims)
