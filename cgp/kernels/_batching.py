"""Batch indexing of kernels that keeps gradients: GPyTorch's copies the parameters and detaches them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.priors import Prior
from linear_operator import LinearOperator
from torch import Tensor, nn

__all__ = ["BatchSafeKernel"]

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
