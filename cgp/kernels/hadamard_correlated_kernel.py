"""Correlated processes for data in which each row belongs to one process."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .canonical_kernel import CanonicalKernel, CanonicalPoints, process_numbers, rows_of
from .correlated_kernel import CorrelatedKernel, select

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
        numbers = process_numbers(x, self.correlated.num_processes)
        features = select(x[..., :-1], self.correlated.active_dims)
        every = [mapped(features) for mapped in self.correlated.input_maps]
        stacked = torch.stack(torch.broadcast_tensors(*every), dim=-2)  # (*batch, n, P, s)
        chosen = numbers.expand(stacked.shape[:-2])[..., None, None]  # the kernel may have batch dimensions of its own
        inputs = torch.take_along_dim(stacked, chosen, dim=-2).squeeze(-2)
        return CanonicalPoints(inputs, rows_of(self.correlated.scales.unsqueeze(-1), numbers))
