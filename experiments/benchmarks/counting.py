"""What is exact and repeatable: bytes kept for the backward pass, operations, floating-point operations."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_flops", "count_kernels", "matmul_rate", "saved_bytes"]


def saved_bytes(block: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for its backward pass, each storage once, the weights left out.

    Args:
        block: the block.
        x: tokens that take a gradient.

    Example:
        >>> saved_bytes(nn.Linear(4, 4), torch.zeros(2, 4, requires_grad=True))
        32
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = block(x)
    total = sum(kept.values())
    del result  # until here, lest a storage be freed and its address taken again
    return total


def count_kernels(call: Callable[[], object]) -> int:
    """Operations that a call runs, those left out that only change how a tensor is seen.

    On an accelerator each is one launch or more; on the CPU it is what the framework's overhead is paid for.

    Args:
        call: what to run.

    Example:
        >>> count_kernels(lambda: torch.zeros(2, 3).mT + 1)
        2
    """
    with _Counter() as counter:
        call()
    return counter.count


class _Counter(TorchDispatchMode):
    """Counts operations below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def count_flops(call: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products, factorisations and triangular solves of a call.

    Args:
        call: what to run.

    Example:
        >>> count_flops(lambda: torch.zeros(2, 3) @ torch.zeros(3, 4))
        48
    """
    custom = {torch.ops.aten.linalg_cholesky_ex: _cholesky_flops, torch.ops.aten.linalg_solve_triangular: _solve_flops}
    with FlopCounterMode(display=False, custom_mapping=custom) as counter:
        call()
    return counter.get_total_flops()


def _cholesky_flops(shape: torch.Size, *args: Any, **kwargs: Any) -> int:
    return math.prod(shape[:-2]) * shape[-1] ** 3 // 3


def _solve_flops(shape: torch.Size, rhs_shape: torch.Size, *args: Any, **kwargs: Any) -> int:
    return math.prod(rhs_shape) * shape[-1]


def matmul_rate(size: int = 1024, rounds: int = 5) -> float:
    """Floating-point operations a second of a large float32 matrix product, the best of some rounds.

    Args:
        size: of the square matrices.
        rounds: how many.
    """
    a, best = torch.randn(size, size), math.inf
    for _ in range(rounds):
        before = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - before)
    return 2.0 * size**3 / best
