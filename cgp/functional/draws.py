r"""One draw of independent marginals, :math:`\mu + \sqrt v\,\epsilon`, in one step each way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .differentiation import may_own_backward

__all__ = ["marginal_draw", "safe_sqrt"]


def safe_sqrt(variance: Tensor) -> Tensor:
    """Square root whose gradient is zero, not infinite, at zero variance (padded tokens, exactly interpolated ones).

    Args:
        variance: not negative but for rounding.

    Returns:
        The standard deviation.

    Example:
        >>> safe_sqrt(torch.tensor([4.0, 0.0]))
        tensor([2., 0.])
    """
    if not torch.is_grad_enabled():
        return variance.clamp(min=0.0).sqrt()
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def marginal_draw(mean: Tensor, variance: Tensor, epsilon: Tensor) -> Tensor:
    r"""Reparametrised draw, :math:`\mu + \sqrt v\,\epsilon`.

    Args:
        mean: ``(*batch, n, s)``.
        variance: ``(*batch, n, s)`` or broadcastable to it.
        epsilon: standard normal numbers, ``(*sample_shape, *batch, n, s)``.

    Returns:
        ``(*sample_shape, *batch, n, s)``.

    Example:
        >>> marginal_draw(torch.zeros(1, 1), torch.full((1, 1), 4.0), torch.ones(1, 1))
        tensor([[2.]])
    """
    if may_own_backward() and torch.is_grad_enabled():
        return _MarginalDraw.apply(mean, variance, epsilon)
    return torch.addcmul(mean, safe_sqrt(variance), epsilon)


class _MarginalDraw(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, epsilon: Tensor) -> Tensor:
        deviation = variance.clamp(min=0.0).sqrt_()
        ctx.save_for_backward(variance, epsilon, deviation)
        ctx.mean_shape = mean.shape
        return torch.addcmul(mean, deviation, epsilon)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        variance, epsilon, deviation = ctx.saved_tensors
        of_mean = gradients[0].sum_to_size(ctx.mean_shape) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_mean, None, None
        of_deviation = (gradients[0] * epsilon).sum_to_size(variance.shape)
        if torch.is_grad_enabled():  # to be differentiated again
            deviation = safe_sqrt(variance)
        halved = of_deviation / torch.where(deviation > 0, 2.0 * deviation, torch.inf)
        return of_mean, halved, None
