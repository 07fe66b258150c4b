r"""The squared exponential covariance with a backward pass of its own, which keeps the points and the covariance alone.

.. math:: K_{ij} = \exp(-\tfrac12\|a_i - b_j\|^2), \qquad
    \frac{\partial \ell}{\partial a_i} = \sum_j G_{ij}(b_j - a_i), \quad G = \frac{\partial \ell}{\partial K}\circ K

Written step by step, autograd keeps the shifted points, the same with their norms beside them, and the logarithms as
well. Every gradient here is made of operations that can be differentiated again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["covariance_of_centred", "gram", "self_gram"]


def gram(x1: Tensor, x2: Tensor) -> Tensor:
    r"""Covariance of two sets of points, :math:`\exp(-\tfrac12\|a_i - b_j\|^2)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> gram(torch.tensor([[0.0]]), torch.tensor([[1.0], [0.0]]))
        tensor([[0.6065, 1.0000]])
    """
    return _Gram.apply(x1, x2)


def self_gram(x: Tensor) -> Tensor:
    r"""Covariance of points among themselves; its diagonal is exactly one.

    Args:
        x: ``(*batch, N, D)``.

    Returns:
        ``(*batch, N, N)``, in (0, 1].

    Example:
        >>> self_gram(torch.tensor([[0.0], [1.0]]))
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    return _SelfGram.apply(x)


def covariance_of_centred(a: Tensor, b: Tensor) -> Tensor:
    """The covariance of points near the origin, in place from the first product on.

    Args:
        a: ``(*batch, N, D)``.
        b: ``(*batch, M, D)``.

    Returns:
        ``(*batch, N, M)``; without a gradient of its own.

    Example:
        >>> covariance_of_centred(torch.zeros(2, 1), torch.ones(1, 1))
        tensor([[0.6065],
                [0.6065]])
    """
    half_a = torch.linalg.vector_norm(a, dim=-1, keepdim=True).square_().mul_(-0.5)
    half_b = half_a if b is a else torch.linalg.vector_norm(b, dim=-1, keepdim=True).square_().mul_(-0.5)
    if a.shape[:-2] == b.shape[:-2]:
        logarithms = half_a + half_b.mT
        logarithms.view(-1, *logarithms.shape[-2:]).baddbmm_(*(x.reshape(-1, *x.shape[-2:]) for x in (a, b.mT)))
    else:
        logarithms = (a @ b.mT).add_(half_a).add_(half_b.mT)
    return logarithms.clamp_(max=0.0).exp_()


def _relative(x: Tensor, centre: Tensor) -> Tensor:
    """Points relative to a centre, in the memory's order: heads of one projection would be copied at every product."""
    room = x.new_empty(torch.broadcast_shapes(x.shape, centre.shape))
    return torch.sub(x, centre, out=room)


class _Gram(torch.autograd.Function):
    """Covariance of two sets of points."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor) -> Tensor:
        centre = x2.mean(-2, keepdim=True)  # without it the subtraction loses every digit far from the origin
        covariance = covariance_of_centred(_relative(x1, centre), _relative(x2, centre))
        ctx.save_for_backward(x1, x2, covariance)
        return covariance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x1, x2, covariance = ctx.saved_tensors
        weights, centre = gradients[0] * covariance, x2.mean(-2, keepdim=True)
        again = torch.is_grad_enabled()  # to be differentiated again: nothing in place
        a, b = (x - centre if again else _relative(x, centre) for x in (x1, x2))
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = (weights @ b - weights.sum(-1, keepdim=True) * a).sum_to_size(x1.shape)
        if ctx.needs_input_grad[1]:
            of_b = (weights.mT @ a - weights.sum(-2)[..., None] * b).sum_to_size(x2.shape)
        return of_a, of_b


class _SelfGram(torch.autograd.Function):
    """Covariance of one set of points; both sides' gradients in one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        a = _relative(x, x.mean(-2, keepdim=True))
        covariance = covariance_of_centred(a, a)
        covariance.diagonal(dim1=-2, dim2=-1).fill_(1.0)  # rounding would leave a distance of a point to itself
        ctx.save_for_backward(x, covariance)
        return covariance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, covariance = ctx.saved_tensors
        weights, centre = (gradients[0] + gradients[0].mT) * covariance, x.mean(-2, keepdim=True)
        a = x - centre if torch.is_grad_enabled() else _relative(x, centre)
        return weights @ a - weights.sum(-1, keepdim=True) * a
