"""Whether a function may bring its own backward pass."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

__all__ = ["in_functorch", "may_own_backward"]


def in_functorch() -> bool:
    """Whether a ``torch.func`` transform is active.

    Returns:
        True inside ``vmap``, ``grad``, ``jvp`` and their kin.

    Example:
        >>> in_functorch()
        False
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


def may_own_backward() -> bool:
    """Whether an ``autograd.Function`` is of use here: neither compiled, nor transformed, nor differentiated forwards.

    A compiler fuses and recomputes by itself; ``torch.func`` and forward-mode differentiation need every step in the
    open. The plain formula is taken there.

    Returns:
        True in ordinary eager execution.

    Example:
        >>> may_own_backward(), torch.func.vmap(lambda x: x * may_own_backward())(torch.ones(1))
        (True, tensor([0.]))
    """
    return not (torch.compiler.is_compiling() or in_functorch() or forward_ad._current_level >= 0)
