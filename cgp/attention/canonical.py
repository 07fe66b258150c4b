"""The canonical covariance of a block, by name or as a kernel of GPyTorch."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.functional.kernels import CANONICAL, Canonical, canonical

__all__ = ["use_kernel"]


def use_kernel(block: nn.Module, kernel: str | Kernel) -> Canonical:
    """A covariance for a block; a kernel becomes its ``covar_module``, whose parameters are trained with it.

    Returns:
        The covariance of points.

    Raises:
        TypeError: if it is neither a name nor a kernel.
    """
    if isinstance(kernel, str):
        return canonical(kernel)
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel: expected one of {sorted(CANONICAL)} or a gpytorch.kernels.Kernel, got {kernel!r}")
    block.covar_module = kernel
    return Canonical(type(kernel).__name__, _Gram(kernel), _LogDiagonal(kernel), bool(kernel.is_stationary))


class _Gram:
    """Objects, not functions, so that a copy of the block has a copy of the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.kernel(x1, x1 if x2 is None else x2).to_dense()


class _LogDiagonal:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel(x, diag=True).log()
