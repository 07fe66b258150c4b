"""Correlated processes for data in which each row belongs to one process."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .canonical_kernel import CanonicalKernel, CanonicalPoints
from .correlated_kernel import CorrelatedKernel

__all__ = ["HadamardCorrelatedKernel"]


class HadamardCorrelatedKernel(CanonicalKernel):
    r"""The covariance of (input, process) rows, the number of the process in the last column.

    .. math:: k((x, p), (x', r)) = \sigma_p \sigma_r\, \kappa(xW_p^\top + b_p,\; x'W_r^\top + b_r)

    For an ``ExactGP`` whose processes are observed at different inputs. Because the process is part of the input,
    slices and transposes of the lazy kernel matrix are right.

    Args:
        correlated: the kernel of all the processes, whose parameters are shared.

    Example:
        >>> kernel = HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 1))
        >>> kernel(torch.tensor([[0.3, 0.0], [0.5, 1.0], [0.9, 1.0]])).shape
        torch.Size([3, 3])
    """

    def __init__(self, correlated: CorrelatedKernel) -> None:
        super().__init__()
        self.correlated = correlated

    @property
    def base_kernel(self) -> Kernel:
        """The canonical covariance."""
        return self.correlated.base_kernel

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of rows ``(*batch, n, d + 1)``, the last column 0 … P-1."""
        numbers = self._numbers(x[..., -1])
        features = x[..., :-1]
        if self.correlated.active_dims is not None:
            features = features.index_select(-1, self.correlated.active_dims)
        every = self.correlated.points(features)  # (*batch, n·P, s)
        shape = (x.shape[-2], self.correlated.num_processes)
        inputs, scales = every.inputs.unflatten(-2, shape), every.scales.unflatten(-1, shape)
        # The kernel may have batch dimensions that the rows have not.
        of_inputs, of_scales = numbers.expand(inputs.shape[:-2]), numbers.expand(scales.shape[:-1])
        return CanonicalPoints(
            torch.take_along_dim(inputs, of_inputs[..., None, None], dim=-2).squeeze(-2),
            torch.take_along_dim(scales, of_scales[..., None], dim=-1).squeeze(-1),
        )

    def _numbers(self, column: Tensor) -> Tensor:
        numbers = column.long()
        if not ((numbers == column) & (numbers >= 0) & (numbers < self.correlated.num_processes)).all():
            wrong = column[(numbers != column) | (numbers < 0) | (numbers >= self.correlated.num_processes)][0]
            last = self.correlated.num_processes - 1
            raise ValueError(f"x: expected processes 0 to {last} in the last column, got {float(wrong):g}")
        return numbers
