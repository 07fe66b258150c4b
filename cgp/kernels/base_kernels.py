"""Canonical covariances: GPyTorch kernels by name, their values, and the check of positive semi-definiteness."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel
from linear_operator import to_dense
from torch import Tensor
from torch.quasirandom import SobolEngine

from cgp.functional.kernels import canonical
from cgp.spelling import meant

__all__ = ["BASE_KERNELS", "base_gram", "base_kernel_from", "check_positive_semidefinite"]

BASE_KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": RBFKernel,
    "matern12": partial(MaternKernel, nu=0.5),
    "matern32": partial(MaternKernel, nu=1.5),
    "matern52": partial(MaternKernel, nu=2.5),
    "rq": RQKernel,
}
"""Kernels by name. One of your own has a name from when it is entered here, in files of regressors too."""

_CHECKED = (RBFKernel, MaternKernel, RQKernel)
_MATERN = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
_PROBES = 64
_SPREADS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def base_kernel_from(kernel: Kernel | str, input_dim: int) -> Kernel:
    """A canonical covariance by name, with lengthscale fixed at 1, or a given kernel with its parameters.

    It need not be stationary, but must be positive semi-definite in this dimension.

    Returns:
        The kernel.

    Raises:
        ValueError: if the name is unknown or the kernel is not positive semi-definite.

    Example:
        >>> base_kernel_from("matern32", 2).lengthscale
        tensor([[1.]])
    """
    if isinstance(kernel, str):
        if kernel not in BASE_KERNELS:
            near = meant([kernel], BASE_KERNELS)
            raise ValueError(f"base_kernel: expected a kernel or one of {tuple(BASE_KERNELS)}, got {kernel!r}{near}")
        named = BASE_KERNELS[kernel]()
        if named.has_lengthscale:
            named.lengthscale = 1.0
            named.raw_lengthscale.requires_grad_(False)
        if isinstance(named, RQKernel):
            named.alpha = 1.0
        if type(named) not in _CHECKED:
            check_positive_semidefinite(named, input_dim)
        return named
    if not isinstance(kernel, Kernel):
        raise ValueError(f"base_kernel: expected a gpytorch Kernel or a name, got {type(kernel).__name__}")
    check_positive_semidefinite(kernel, input_dim)
    return kernel


def base_gram(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """The covariance ``(*batch, n, m)`` of points, by the package's own functions where there is one."""
    # GPyTorch's Matérn covariance has no second derivative and keeps the differences of all pairs.
    fixed = type(kernel) in (RBFKernel, MaternKernel) and not kernel.raw_lengthscale.requires_grad
    if not fixed or kernel.lengthscale.numel() != 1 or kernel.active_dims is not None:
        return to_dense(kernel(x1, x2))
    name = "rbf" if isinstance(kernel, RBFKernel) else _MATERN[kernel.nu]
    unit = kernel.lengthscale.reshape(())
    points = x1 / unit
    return canonical(name).gram(points, None if x2 is x1 else x2 / unit)


def check_positive_semidefinite(kernel: Kernel, input_dim: int) -> None:
    r"""Raise ValueError for a kernel if a Gram matrix with a negative eigenvalue is found.

    The Gram matrices of 64 quasi-random points at seven spreads (0.03 to 30 times the unit) are searched, in float64. A
    violation found is a proof; none found is evidence. ``CosineKernel`` beyond one dimension is caught.

    Args:
        kernel: the kernel to check.
        input_dim: dimensions of its inputs.

    Raises:
        ValueError: if it gives several outputs for each input, cannot be evaluated in this dimension, or is not
            positive semi-definite.

    Example:
        >>> from gpytorch.kernels import CosineKernel
        >>> check_positive_semidefinite(CosineKernel(), 1)
        >>> check_positive_semidefinite(CosineKernel(), 2)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: base_kernel: CosineKernel is not positive semi-definite in 2 dimensions...
    """
    name = type(kernel).__name__
    probe = copy.deepcopy(kernel).double()
    device = kernel.device or torch.device("cpu")
    points = SobolEngine(input_dim, scramble=True, seed=0).draw(_PROBES, dtype=torch.float64).to(device)
    worst = 0.0
    with torch.no_grad():
        for spread in _SPREADS:
            worst = min(worst, _smallest_eigenvalue(probe, points * (spread * input_dim**-0.5), name))
    if worst < -1e-8:
        raise ValueError(
            f"base_kernel: {name} is not positive semi-definite in {input_dim} dimensions: "
            f"a Gram matrix has the relative eigenvalue {worst:.2g}"
        )


def _smallest_eigenvalue(kernel: Kernel, points: Tensor, name: str) -> float:
    """Smallest eigenvalue of a symmetrised Gram matrix over the largest entry of its diagonal."""
    if kernel.num_outputs_per_input(points, points) != 1:
        raise ValueError(f"base_kernel: expected one output an input, {name} gives several")
    try:
        gram = to_dense(kernel(points))
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"base_kernel: {name} cannot be evaluated in {points.shape[-1]} dimensions: {error}"
        ) from error
    gram = 0.5 * (gram + gram.mT)
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1)
    return float((torch.linalg.eigvalsh(gram)[..., 0] / largest).min())
