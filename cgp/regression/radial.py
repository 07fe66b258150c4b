"""Gram matrices of the named canonical covariances in a few passes over memory, and their gradients likewise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.kernels.canonical_kernel import CanonicalPoints, scaled_gram

__all__ = ["points_gram"]

_Profile = Callable[[Tensor], tuple[Tensor, Tensor]]
_NEAREST = 1e-20


def points_gram(base_kernel: Kernel, left: CanonicalPoints, right: CanonicalPoints | None = None) -> Tensor:
    r"""Covariances of scaled canonical points, :math:`\sigma_i \kappa(z_i, z'_j) \sigma'_j`.

    The same as :func:`cgp.kernels.canonical_kernel.scaled_gram`. Squared exponential and Matérn kernels whose single
    lengthscale is fixed take a path of their own: distances from one matrix product, a gradient from two, and
    nothing kept but the matrix itself (and its slope, for Matérn). Other kernels are GPyTorch's affair.

    Args:
        base_kernel: the canonical covariance.
        left: n points.
        right: m points; None means the left ones.

    Returns:
        ``(*batch, n, m)``.

    Example:
        >>> points = CanonicalPoints(torch.tensor([[0.0], [1.0]]), torch.ones(2))
        >>> points_gram(RBFKernel().initialize(lengthscale=1.0).requires_grad_(False), points)
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    profile = _profile(base_kernel)
    if profile is None:
        return scaled_gram(base_kernel, left, right)
    right = left if right is None else right
    unit = base_kernel.lengthscale.reshape(())
    return _RadialGram.apply(left.inputs / unit, right.inputs / unit, left.scales, right.scales, profile)


class _RadialGram(torch.autograd.Function):
    """K = s f(|x - x'|²) s', of which the gradient in x is 2 (x sum W - W x') with W = G s f' s'."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, s1: Tensor, s2: Tensor, profile: _Profile) -> Tensor:
        centre = x2.mean(-2, keepdim=True)
        left, right = x1 - centre, x2 - centre
        squared = torch.matmul(left * -2.0, right.mT)
        squared += left.square().sum(-1, keepdim=True)
        squared += right.square().sum(-1).unsqueeze(-2)
        gram, slope = profile(squared.clamp_(min=0.0))
        if slope is not gram:
            slope.mul_(s1.unsqueeze(-1)).mul_(s2.unsqueeze(-2))
        gram.mul_(s1.unsqueeze(-1)).mul_(s2.unsqueeze(-2))
        ctx.own_slope = slope is gram
        ctx.save_for_backward(left, right, s1, s2, gram, slope)
        return gram

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right, s1, s2, gram, slope = ctx.saved_tensors
        value = gradient * gram
        g1 = _reduced(value.sum(-1) / s1, s1)
        g2 = _reduced(value.sum(-2) / s2, s2)
        # The squared exponential's slope is -1/2 of itself: one product serves both.
        weight = value.mul_(-1.0) if ctx.own_slope else gradient * slope * 2.0
        x1 = left * weight.sum(-1, keepdim=True) - weight @ right
        x2 = right * weight.sum(-2).unsqueeze(-1) - weight.mT @ left
        return _reduced(x1, left), _reduced(x2, right), g1, g2, None


def _reduced(gradient: Tensor, like: Tensor) -> Tensor:
    return gradient.sum_to_size(like.shape)


def _rbf(squared: Tensor) -> tuple[Tensor, Tensor]:
    value = squared.mul_(-0.5).exp_()
    return value, value


def _matern12(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = squared.clamp_(min=_NEAREST).sqrt()
    value = distance.neg().exp_()
    return value, value / distance * -0.5


def _matern32(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = squared.sqrt_().mul_(math.sqrt(3.0))
    decay = distance.neg().exp_()
    return distance.add_(1.0).mul_(decay), decay.mul(-1.5)


def _matern52(squared: Tensor) -> tuple[Tensor, Tensor]:
    distance = squared.sqrt().mul_(math.sqrt(5.0))
    decay = distance.neg().exp_()
    distance.add_(1.0)
    slope = (distance * decay).mul_(-5.0 / 6.0)
    return squared.mul_(5.0 / 3.0).add_(distance).mul_(decay), slope


_MATERN = {0.5: _matern12, 1.5: _matern32, 2.5: _matern52}


def _profile(kernel: Kernel) -> _Profile | None:
    """The covariance as a function of the squared distance, with its slope; None where GPyTorch must do it."""
    if type(kernel) not in (RBFKernel, MaternKernel) or kernel.active_dims is not None or len(kernel.batch_shape):
        return None
    raw = kernel.raw_lengthscale
    if raw.requires_grad or raw.numel() != 1:
        return None
    return _rbf if isinstance(kernel, RBFKernel) else _MATERN[kernel.nu]
