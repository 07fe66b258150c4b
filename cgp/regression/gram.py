"""Gram matrices of canonical covariances of which every derivative that exists can be taken."""

from __future__ import annotations

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from linear_operator import to_dense
from torch import Tensor

from cgp.functional.kernels import canonical

__all__ = ["stationary_gram"]

_MATERN = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}


def stationary_gram(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """The covariance of two sets of points, by the package's own functions where there is one.

    GPyTorch's Matérn covariance has no second derivative and keeps the differences of all pairs.

    Args:
        kernel: the canonical covariance.
        x1: ``(*batch, n, d)``.
        x2: ``(*batch, m, d)``.

    Returns:
        ``(*batch, n, m)``.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> stationary_gram(RBFKernel().initialize(lengthscale=1.0).requires_grad_(False), x, x)
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    fixed = type(kernel) in (RBFKernel, MaternKernel) and not kernel.raw_lengthscale.requires_grad
    if not fixed or kernel.lengthscale.numel() != 1 or kernel.active_dims is not None:
        return to_dense(kernel(x1, x2))
    name = "rbf" if isinstance(kernel, RBFKernel) else _MATERN[kernel.nu]
    unit = kernel.lengthscale.reshape(())
    return canonical(name).gram(x1 / unit, x2 / unit)
