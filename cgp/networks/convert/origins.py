"""Which of a module's arguments the tensors of its forward pass are computed from."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["Origins"]


class Origins:
    """Follows a module's floating-point arguments through the functions that its forward pass calls.

    In self-attention, queries and keys are computed from the same argument. Keys computed from another argument (a
    context, whatever its name) or from none (a cache) are other tokens.

    Args:
        arguments: arguments of the call, in tuples, lists and dicts.

    Example:
        >>> import torch
        >>> x, y = torch.ones(2), torch.ones(2)
        >>> origins = Origins(x, {"context": [y]})
        >>> z = x + y
        >>> origins.follow([x, y], z)
        >>> origins.cover(z, x), origins.cover(x, z)
        (True, False)
    """

    def __init__(self, *arguments: Any) -> None:
        self._known = WeakIdKeyDictionary()  # weak, so that intermediate tensors are freed as usual
        for x in pytree.tree_leaves(arguments):
            if isinstance(x, Tensor) and x.is_floating_point():
                self._known[x] = frozenset({id(x)})

    def follow(self, inputs: list[Tensor], output: Any) -> None:
        """Record that a function computed the output, one tensor or several, from the inputs."""
        origins = frozenset().union(*(self._of(x) for x in inputs))
        if origins:
            for x in output if isinstance(output, list | tuple) else (output,):
                if isinstance(x, Tensor):
                    self._known[x] = origins

    def cover(self, tensor: Tensor, other: Tensor) -> bool:
        """Whether a tensor is computed from every argument that the other is computed from, and there is any."""
        return bool(self._of(other)) and self._of(other) <= self._of(tensor)

    def _of(self, x: Tensor) -> frozenset[int]:
        return self._known.get(x, frozenset())
