"""Kernel attention, in O(n) memory where the covariance is large."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from cgp.functional.distances import are_resolved, robust_centre
from cgp.functional.kernels import Canonical, squared_exponential
from cgp.functional.linalg import may_own_backward, open_backward, product

__all__ = ["kernel_attention"]

_KEPT = 2**23  # a covariance of up to this number of bytes is kept for the backward pass


def kernel_attention(kernel: Canonical, x1: Tensor, x2: Tensor, values: Tensor) -> Tensor:
    r"""Kernel attention, :math:`\kappa_o(x_1, x_2)V`; for the squared exponential in O(n) memory.

    With scores :math:`-\tfrac12\|q_i - k_j\|^2` and one more key of score zero, softmax attention is
    :math:`\sum_jK_{ij}v_j / (1 + \sum_jK_{ij})`, and the weight of that key is the inverse of the denominator. So
    PyTorch's attention computes it in O(n) memory.

    Args:
        kernel: the canonical covariance.
        x1: points, ``(*batch, N, D)``.
        x2: points, ``(*batch, M, D)``.
        values: V, ``(*batch, M, s)``.

    Returns:
        ``(*batch, N, s)``.
    """
    same_batch = x1.shape[:-2] == x2.shape[:-2] == values.shape[:-2]
    size = x1.shape[:-2].numel() * x1.shape[-2] * x2.shape[-2] * x1.element_size()
    if kernel.name == "rbf" and same_batch and size > _KEPT and may_own_backward() and are_resolved(x1, x2):
        return _BySoftmax.apply(x1, x2, values)
    return product(kernel.gram(x1, x2), values)


class _BySoftmax(torch.autograd.Function):
    """The product by PyTorch's attention; for a second derivative by the plain formula, as attention's has none."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        ctx.save_for_backward(*operands)
        if not any(ctx.needs_input_grad):
            return _by_softmax(*operands)
        with torch.enable_grad():
            ctx.leaves = [x.detach().requires_grad_() for x in operands]
            ctx.attended = _by_softmax(*ctx.leaves)
        return ctx.attended.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return torch.autograd.grad(ctx.attended, ctx.leaves, gradients[0], retain_graph=True)
        x1, x2, values = ctx.saved_tensors
        attended = product(squared_exponential(x1, x2), values)
        return open_backward([attended], ctx.saved_tensors, gradients, ctx.needs_input_grad)


def _by_softmax(x1: Tensor, x2: Tensor, values: Tensor) -> Tensor:
    """PyTorch's attention with minus half the squared distances as scores, and one more key of score 0."""
    centre, columns = robust_centre(x2), values.shape[-1]
    a, b = x1 - centre, x2 - centre
    half_a, half_b = -0.5 * a.square().sum(-1, keepdim=True), -0.5 * b.square().sum(-1, keepdim=True)
    queries = torch.cat([a, half_a, torch.ones_like(half_a)], -1)
    keys = pad(torch.cat([b, torch.ones_like(half_b), half_b], -1), (0, 0, 0, 1))
    augmented = pad(values, (0, 1, 0, 1))  # the last column, 1 only at the additional key, gives that key's weight
    augmented = augmented + pad(augmented.new_ones(1, 1), (columns, 0, values.shape[-2], 0))
    common = max(queries.shape[-1], columns + 1)  # fused kernels need queries, keys and values of one width
    queries, keys, augmented = (pad(x, (0, common - x.shape[-1])) for x in (queries, keys, augmented))
    attended = scaled_dot_product_attention(queries, keys, augmented, scale=1.0)
    return attended[..., :columns] / attended[..., columns : columns + 1]
