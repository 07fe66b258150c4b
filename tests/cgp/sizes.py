"""The sizes of what a computation makes."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Sizes(TorchDispatchMode):
    """Records the shape of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, torch.Tensor):
                self.shapes.add(tuple(one.shape))
        return result

    def largest(self) -> int:
        """Number of elements of the largest one."""
        return max(math.prod(shape) for shape in self.shapes)
