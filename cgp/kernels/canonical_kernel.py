"""Base classes of the kernels: points of canonical processes and their loadings, rows (input, process), priors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from gpytorch import Module
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.priors import NormalPrior, Prior
from linear_operator import LinearOperator, to_dense
from torch import Tensor, nn

from .base_kernels import base_gram

__all__ = [
    "CanonicalKernel",
    "CanonicalPoints",
    "PriorModule",
    "log_prior",
    "make_priors_picklable",
    "noise_of_rows",
    "process_numbers",
    "rows_of",
]


_Change = Callable[[Tensor, torch.Size], Tensor]


class BatchSafeKernel(Kernel):
    """A kernel whose batch members keep their gradients, evaluated at once when it has a batch shape.

    Unsqueezing or repeating a lazy kernel matrix moves the inputs' batch dimensions but not the kernel's.
    """

    def __getitem__(self, index: Any) -> Kernel:
        """The kernel of the chosen batch members, its parameters still attached to this kernel's."""
        return _index_batch(self, index if isinstance(index, tuple) else (index,))

    def expand_batch(self, *sizes: Any) -> Kernel:
        """The kernel with a larger batch shape, its parameters still attached to this kernel's."""
        shape = torch.Size(sizes[0] if len(sizes) == 1 and hasattr(sizes[0], "__iter__") else sizes)
        return _rebuilt(self, lambda t, event: t.expand(*shape, *event), shape)

    def __call__(
        self, x1: Tensor, x2: Tensor | None = None, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> LinearOperator | Tensor:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        result = super().__call__(x1, x2, diag=diag, last_dim_is_batch=last_dim_is_batch, **params)
        if len(self.batch_shape) and isinstance(result, LazyEvaluatedKernelTensor):
            return result.evaluate_kernel()
        return result


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

    @property
    def canonical_dim(self) -> int | None:
        """s, dimensions of the canonical space; None if it has no size of its own."""
        return None

    def points(self, x: Tensor) -> CanonicalPoints:
        """The canonical points of inputs ``(*batch, n, d)``: one for each row of the kernel matrix."""
        raise NotImplementedError

    def inducing(self, points: Tensor) -> CanonicalPoints:
        """Inducing inputs ``(m, s)`` of the canonical process itself, which serve every process."""
        if self.canonical_dim not in (None, points.shape[-1]):
            raise ValueError(
                f"inducing_points: expected points of the canonical space, (m, {self.canonical_dim}), without the "
                f"process, got {tuple(points.shape)}"
            )
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


def _index_batch(kernel: Kernel, index: tuple[Any, ...]) -> Kernel:
    """Index the batch dimensions of every parameter below a kernel."""
    batch = kernel.batch_shape
    if not batch:
        return kernel
    if sum(entry is not Ellipsis for entry in index) > len(batch):
        raise IndexError(f"too many indices for a kernel of batch shape {tuple(batch)}: {index}")
    picked = torch.empty(batch, device="meta")[index]
    if not picked.numel():
        # GPyTorch answers an IndexError by expanding the kernel to the inputs' batch shape and trying again.
        raise IndexError(f"index {index} selects nothing from a kernel of batch shape {tuple(batch)}")
    return _rebuilt(kernel, lambda t, event: t.expand(*batch, *event)[index], picked.shape)


def _rebuilt(kernel: Kernel, change: _Change, new_batch: torch.Size) -> Kernel:
    """A copy of the module tree, its tensors shared, with ``change`` applied to each."""
    tensors = chain(kernel.parameters(), kernel.buffers())
    new = copy.deepcopy(kernel, {id(tensor): tensor for tensor in tensors})
    _change_tensors(new, change, kernel.batch_shape)
    for module in new.modules():
        if hasattr(module, "_batch_shape"):
            module._batch_shape = new_batch
    return new


def _change_tensors(module: nn.Module, change: _Change, inherited: torch.Size) -> None:
    if isinstance(module, Interval | Prior):
        return
    batches = (getattr(module, "batch_shape", inherited), getattr(module, "_batch_shape", inherited))
    stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    for store in stores:
        for name, tensor in store.items():
            if tensor is not None and name != "active_dims":
                store[name] = change(tensor, _event_shape(tensor, batches))
    for child in module.children():
        _change_tensors(child, change, batches[0])


def _event_shape(tensor: Tensor, batches: tuple[torch.Size, ...]) -> torch.Size:
    """A parameter's shape without its batch shape; without batch dimensions it is the whole shape."""
    for batch in batches:
        if tensor.shape[: len(batch)] == batch:
            return tensor.shape[len(batch) :]
    return tensor.shape


def process_numbers(x: Tensor, num_processes: int, name: str = "x", input_dim: int | None = None) -> Tensor:
    """The process of each row, the last column 0 … P-1 of ``(*batch, n, d + 1)``: ``(*batch, n)`` of int64."""
    if input_dim is not None and x.shape[-1] != input_dim + 1:
        raise ValueError(
            f"{name}: expected rows of {input_dim + 1} columns, the last one the number of the process, got "
            f"{x.shape[-1]}"
        )
    column = x[..., -1]
    numbers = column.long()
    wrong = (numbers != column) | (numbers < 0) | (numbers >= num_processes)
    if wrong.any():
        last = num_processes - 1
        raise ValueError(f"{name}: expected processes 0 to {last} in the last column, got {float(column[wrong][0]):g}")
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


class PriorModule(Module):
    """A module whose parameters are unconstrained and have normal priors, so that samples of them can be loaded."""

    def register_normal(self, name: str, initial: Tensor, mean: float, sd: float) -> None:
        """Add a parameter with the normal prior ``NAME_prior``; an empty one is no parameter."""
        self.register_parameter(name, nn.Parameter(initial) if initial.numel() else None)
        if initial.numel():
            loc, scale = (torch.tensor(value, dtype=torch.float64) for value in (mean, sd))
            # The closures that GPyTorch would use cannot be pickled.
            self.register_prior(
                f"{name}_prior", NormalPrior(loc, scale), partial(_value, name=name), partial(_assign, name=name)
            )


def log_prior(module: Module) -> Tensor:
    """Log-density of a module's parameters under their priors, in nats, a scalar."""
    return torch.stack([prior.log_prob(of(part)).sum() for _, part, prior, of, _ in module.named_priors()]).sum()


def _value(module: Module, name: str) -> Tensor:
    return getattr(module, name)


def _assign(module: Module, value: Tensor, name: str) -> None:
    module.initialize(**{name: value})


def make_priors_picklable(kernel: Module) -> None:
    """Let GPyTorch's priors of a kernel, ``NAME_prior``, access the parameter NAME without unpicklable functions."""
    for module in kernel.modules():
        for key, (prior, *_) in getattr(module, "_priors", {}).items():
            name = key.removesuffix("_prior")
            if hasattr(module, name):
                module._priors[key] = (prior, partial(_value, name=name), partial(_assign, name=name))
