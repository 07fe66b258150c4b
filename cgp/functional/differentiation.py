"""Whether a function may bring its own backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["in_functorch", "may_own_backward", "open_backward"]


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


def open_backward(
    outputs: Sequence[Tensor | None],
    arguments: Sequence[Any],
    gradients: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients by the plain formula, with a graph: those of a backward pass that is differentiated again.

    Args:
        outputs: of the plain formula of the arguments; None where there is none.
        arguments: what it was computed of.
        gradients: of the outputs.
        needed: which arguments need a gradient.

    Returns:
        One for each argument, None where it is not needed.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> open_backward([x * x], [x, 1.0], [torch.tensor(1.0)], [True, False])[0]
        tensor(6., grad_fn=<AddBackward0>)
    """
    wanted = [x for x, needs in zip(arguments, needed, strict=True) if needs]
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y is not None]
    found = iter(torch.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=True))
    return tuple(next(found) if needs else None for needs in needed)
