r"""Log marginal likelihoods of observations with noise, :math:`\log N(r; 0, K + \Sigma)`, gradients in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.functional.gaussians import log_normal
from cgp.functional.linalg import cholesky, log_determinant, solve_lower

__all__ = ["dense_log_evidence", "mixed_log_evidence", "mixed_places"]


def dense_log_evidence(covariance: Tensor, residual: Tensor) -> Tensor:
    r"""Log marginal likelihood from :math:`K + \Sigma` and r, with its gradient in closed form.

    .. math:: \frac{\partial}{\partial K} = \tfrac12\big(\alpha\alpha^\top - (K+\Sigma)^{-1}\big), \qquad
        \alpha = (K+\Sigma)^{-1}r

    Differentiating through the factor instead costs several times more.

    Args:
        covariance: of the observations, noise included, ``(*batch, n, n)``.
        residual: the observations less their mean, ``(*batch, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Raises:
        NotPositiveDefiniteError: if the covariance cannot be factored.

    Source:
        Rasmussen & Williams (2006), equation (5.9).

    Example:
        >>> dense_log_evidence(torch.eye(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return _Dense.apply(covariance, residual)


def mixed_places(inputs: Tensor, outputs: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Where the covariances of observations are among those of all pairs of outputs and of inputs.

    Args:
        inputs: which of T inputs each observation is at, ``(n,)``.
        outputs: which of P outputs it is of, ``(n,)``; no two are of one output at one input.
        sizes: (P, T).

    Returns:
        ``(n, n)``, places in a tensor ``(P, P, T, T)`` that is laid out in one row.
    """
    count, length = sizes
    return (outputs[:, None] * count + outputs) * length**2 + inputs[:, None] * length + inputs


def mixed_log_evidence(grams: Tensor, mixing: Tensor, noise: Tensor, residual: Tensor, places: Tensor) -> Tensor:
    r"""Log marginal likelihood of some outputs of a mixing model at some inputs, with its gradient in closed form.

    .. math:: K_{(p,t),(r,s)} = \sum_c M^{(c)}_{pr}\,\kappa^{(c)}_{ts}, \qquad
        \frac{\partial}{\partial M^{(c)}_{pr}} = \sum_{ts} G_{(p,t),(r,s)}\,\kappa^{(c)}_{ts}, \qquad
        \frac{\partial}{\partial \kappa^{(c)}_{ts}} = \sum_{pr} G_{(p,t),(r,s)}\,M^{(c)}_{pr}

    G is the gradient by K, zero where nothing was observed. A canonical covariance is computed once for all pairs of
    outputs; time O(n³ + C P² T²).

    Args:
        grams: :math:`\kappa^{(c)}` of T inputs, ``(*batch, C, T, T)``.
        mixing: M, covariances of P outputs, ``(*batch, C, P, P)``.
        noise: variances, ``(*batch, n)``.
        residual: the observations less their mean, ``(*batch, n)``.
        places: of :func:`mixed_places`, ``(n, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Raises:
        NotPositiveDefiniteError: if the covariance cannot be factored.

    Source:
        Álvarez, Rosasco & Lawrence (2012), Kernels for vector-valued functions, section 4, on the model.

    Example:
        >>> one = torch.ones(1, 1, 1)
        >>> mixed_log_evidence(one, one, torch.ones(1), torch.zeros(1), torch.zeros(1, 1).long())
        tensor(-1.2655)
    """
    return _Mixed.apply(grams, mixing, noise, residual, places)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, covariance: Tensor, residual: Tensor) -> Tensor:
        value, *kept = _evidence(covariance, residual)
        ctx.save_for_backward(*kept)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        slope, weights = _slope(*ctx.saved_tensors)
        return slope.mul_(0.5 * gradient[..., None, None]), -gradient.unsqueeze(-1) * weights


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grams: Tensor, mixing: Tensor, noise: Tensor, residual: Tensor, places: Tensor) -> Tensor:
        every = (mixing.flatten(-2).mT @ grams.flatten(-2)).flatten(-2)
        covariance = every.index_select(-1, places.flatten()).unflatten(-1, places.shape)
        covariance.diagonal(dim1=-2, dim2=-1).add_(noise)
        value, *kept = _evidence(covariance, residual)
        ctx.save_for_backward(grams, mixing, places, *kept)
        ctx.shapes = noise.shape, residual.shape
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        grams, mixing, places, *kept = ctx.saved_tensors
        slope, weights = _slope(*kept)
        half, batch = 0.5 * gradient, slope.shape[:-2]
        every = slope.new_zeros(*batch, (mixing.shape[-1] * grams.shape[-1]) ** 2)
        every.index_copy_(-1, places.flatten(), slope.flatten(-2))
        pairs = every.unflatten(-1, (mixing.shape[-1] ** 2, -1))
        of_grams = (mixing.flatten(-2) @ pairs).unflatten(-1, grams.shape[-2:]) * half[..., None, None, None]
        of_mixing = (grams.flatten(-2) @ pairs.mT).unflatten(-1, mixing.shape[-2:]) * half[..., None, None, None]
        of_noise = slope.diagonal(dim1=-2, dim2=-1) * half.unsqueeze(-1)
        of_residual = -gradient.unsqueeze(-1) * weights
        shapes = grams.shape, mixing.shape, *ctx.shapes
        slopes = of_grams, of_mixing, of_noise, of_residual
        return *(value.sum_to_size(shape) for value, shape in zip(slopes, shapes, strict=True)), None


def _evidence(covariance: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log marginal likelihood, the factor of the covariance, and the whitened residual ``(*batch, n, 1)``."""
    factor = cholesky(covariance, name="K_k + noise", jitter=0.0)
    whitened = solve_lower(factor, residual.unsqueeze(-1))
    value = log_normal(whitened.square().sum((-2, -1)), log_determinant(factor), residual.shape[-1], 1)
    return value, factor, whitened


def _slope(factor: Tensor, whitened: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`\alpha\alpha^\top - (K+\Sigma)^{-1}` and :math:`\alpha`, ``(*batch, n, n)`` and ``(*batch, n)``."""
    weights = torch.linalg.solve_triangular(factor.mT, whitened, upper=True)
    return torch.cholesky_inverse(factor).neg_().addcmul_(weights, weights.mT), weights.squeeze(-1)
