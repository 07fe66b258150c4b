r"""Stationary Gaussian processes over one ordered input that are linear functions of a Markov chain of small states.

.. math:: s_{i+1} = A_i s_i + w_i, \qquad w_i \sim N(0, Q_i), \qquad s_0 \sim N(0, P), \qquad f_i = [s_i]_0

A and Q depend on the lag between the two inputs; :math:`P = APA^\top + Q` at every lag. Lags come in units of the
lengthscale (Matérn) or of the period (harmonics). Everything is differentiable with respect to the lags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

__all__ = [
    "MarkovProcess",
    "constant_process",
    "harmonic_process",
    "matern_process",
    "periodic_weights",
    "product_process",
    "trend_process",
]


class MarkovProcess(NamedTuple):
    """A process at some lags, of unit variance unless stated otherwise.

    Attributes:
        transition: A, ``(U, d, d)`` for U lags.
        noise: Q, ``(U, d, d)``.
        stationary: P, ``(d, d)``; of a process that is not stationary, the covariance of its first states.
    """

    transition: Tensor
    noise: Tensor
    stationary: Tensor


def matern_process(lags: Tensor, degree: int) -> MarkovProcess:
    r"""Matérn process of smoothness degree + 1/2, its state the process and its derivatives.

    .. math::
        A = e^{-x}\sum_{k \le p} \frac{(x M)^k}{k!}, \qquad
        Q = q\int_0^x b(u)b(u)^\top du, \qquad b_0 = \frac{u^p e^{-u}}{p!},\; b_{j+1} = b_j', \qquad
        x = \tau\sqrt{2p + 1}

    Derivatives are in units of :math:`\sqrt{2p+1}` over the lengthscale, and M is the nilpotent part of the generator.
    Q is a sum of incomplete gamma functions: nothing cancels at small lags, where :math:`P - APA^\top` does.

    Args:
        lags: lags in lengthscales, at least 0, ``(U,)``.
        degree: p: 0, 1 or 2 (or more).

    Returns:
        A process of p + 1 states.

    Source:
        Hartikainen & Särkkä (2010), Kalman filtering and smoothing solutions to temporal Gaussian process regression.

    Example:
        >>> process = matern_process(torch.tensor([0.0, 2.0], dtype=torch.float64), 1)
        >>> process.transition[:, 0, 0]  # the covariance at these lags, as states are uncorrelated
        tensor([1.0000, 0.1397], dtype=torch.float64)
    """
    size, x = degree + 1, math.sqrt(2 * degree + 1) * lags
    nilpotent = torch.as_tensor(_generator(size) + np.eye(size)).to(lags)
    power, transition = torch.eye(size).to(lags), torch.zeros(len(lags), size, size).to(lags)
    for order in range(size):
        transition = transition + x[:, None, None] ** order / math.factorial(order) * power
        power = power @ nilpotent
    integrals, limits = _integrals(x, 2 * degree)
    weights = torch.as_tensor(_noise_weights(degree)).to(lags)  # (size, size, 2p + 1)
    return MarkovProcess(
        torch.exp(-x)[:, None, None] * transition,
        torch.einsum("ijm,um->uij", weights, integrals),
        torch.einsum("ijm,m->ij", weights, limits),
    )


def harmonic_process(lags: Tensor, number: int, weight: Tensor | float = 1.0) -> MarkovProcess:
    r"""A cosine of random amplitude and phase, :math:`q\cos(2\pi j\tau)`: a rotation without noise.

    Args:
        lags: lags in periods, ``(U,)``.
        number: j, the number of the harmonic.
        weight: q, its variance.

    Returns:
        A process of two states.

    Source:
        Solin & Särkkä (2014), Explicit link between periodic covariance functions and state space models.
    """
    angle = 2.0 * math.pi * number * lags
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(-1, 2, 2)
    return MarkovProcess(rotation, torch.zeros_like(rotation), weight * torch.eye(2).to(lags))


def constant_process(lags: Tensor, weight: Tensor | float = 1.0) -> MarkovProcess:
    """A random constant of this variance, of one state."""
    ones = torch.ones(len(lags), 1, 1).to(lags)
    return MarkovProcess(ones, torch.zeros_like(ones), weight * torch.ones(1, 1).to(lags))


def trend_process(lags: Tensor, start: Tensor, weight: Tensor | float = 1.0) -> MarkovProcess:
    r"""A straight line through the origin of random slope, of covariance :math:`q\,t\,t'`; it is not stationary.

    Its states are value and slope, its :attr:`~MarkovProcess.stationary` their covariance at the first input. A random
    constant beside it (:func:`constant_process`) moves the line off the origin.

    .. math:: A = \begin{pmatrix}1 & \tau\\ 0 & 1\end{pmatrix}, \qquad Q = 0, \qquad
        P_1 = q\begin{pmatrix}t_1^2 & t_1\\ t_1 & 1\end{pmatrix}

    Args:
        lags: lags in units of the inputs, ``(U,)``.
        start: the first input :math:`t_1`, a scalar.
        weight: q, the variance of the slope.

    Returns:
        A process of two states.
    """
    ones, zeros = torch.ones_like(lags), torch.zeros_like(lags)
    transition = torch.stack([ones, lags, zeros, ones], dim=-1).reshape(-1, 2, 2)
    direction = torch.stack([start.to(lags), start.new_ones(()).to(lags)])
    return MarkovProcess(transition, torch.zeros_like(transition), weight * torch.outer(direction, direction))


def product_process(process: MarkovProcess, other: MarkovProcess) -> MarkovProcess:
    r"""The process whose covariance is the product of those of two stationary ones, such as a cycle that drifts.

    .. math:: A \otimes A', \qquad Q \otimes P' + APA^\top \otimes Q', \qquad P \otimes P'

    Args:
        process: process of d states.
        other: process of d' states.

    Returns:
        A process of d d' states.

    Source:
        Solin & Särkkä (2014), section 3.3.
    """
    A, Q, P = process
    moved = A @ P @ A.mT
    return MarkovProcess(
        _kron(A, other.transition),
        _kron(Q, other.stationary[None]) + _kron(moved, other.noise),
        _kron(P[None], other.stationary[None])[0],
    )


def periodic_weights(lengthscale: Tensor, count: int) -> Tensor:
    r"""Variances of the constant and of the harmonics of a periodic covariance.

    .. math:: e^{-2\sin^2(\pi\tau)/\ell^2} = \sum_j q_j\cos(2\pi j\tau), \qquad
        q_0 = e^{-z}I_0(z),\; q_j = 2e^{-z}I_j(z),\; z = \ell^{-2}

    With seven harmonics 2e-6 of the variance are missing at a lengthscale of 0.8, and 5e-4 at 0.5.

    Args:
        lengthscale: :math:`\ell`, a scalar.
        count: number of weights, including the constant's.

    Returns:
        ``(count,)``; their sum is at most 1.

    Source:
        Solin & Särkkä (2014), equation (16).
    """
    # Cosine coefficients of a smooth periodic function by a discrete transform: exact to rounding, with all gradients.
    points = max(128, 4 * count)
    phase = torch.arange(points).to(lengthscale) / points
    values = torch.exp(-2.0 * torch.sin(math.pi * phase).square() / lengthscale.square())
    cosines = torch.cos(2.0 * math.pi * torch.arange(count).to(lengthscale)[:, None] * phase)
    scale = torch.full((count,), 2.0).to(lengthscale)
    scale[0] = 1.0
    return scale * (cosines @ values) / points


def _kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker products of matrices, batch by batch."""
    size = a.shape[-1] * b.shape[-1]
    return (a[:, :, None, :, None] * b[:, None, :, None, :]).reshape(-1, size, size)


def _generator(size: int) -> np.ndarray:
    """The companion matrix of (1 + s)^size: derivatives in units of the rate."""
    generator = np.eye(size, k=1)
    generator[-1] = [-math.comb(size, k) for k in range(size)]
    return generator


def _responses(degree: int) -> Sequence[Polynomial]:
    """The polynomials of the impulse responses b, each times exp(-u)."""
    response = Polynomial([0.0] * degree + [1.0 / math.factorial(degree)])
    responses = [response]
    for _ in range(degree):
        responses.append(responses[-1].deriv() - responses[-1])
    return responses


def _noise_weights(degree: int) -> np.ndarray:
    """Coefficients of u^m exp(-2u) in q b b', ``(p + 1, p + 1, 2p + 1)``, for a process of unit variance."""
    responses = _responses(degree)
    weights = np.zeros((degree + 1, degree + 1, 2 * degree + 1))
    for i, left in enumerate(responses):
        for j, right in enumerate(responses):
            coefficients = (left * right).coef
            weights[i, j, : len(coefficients)] = coefficients
    # The variance of the process is its weights times the integrals from zero to infinity, m!/2^(m + 1).
    limits = [math.factorial(m) / 2.0 ** (m + 1) for m in range(2 * degree + 1)]
    return weights / (weights[0, 0] @ limits)


def _integrals(x: Tensor, highest: int) -> tuple[Tensor, Tensor]:
    """Integrals of u^m exp(-2u) up to x, ``(U, highest + 1)``, and up to infinity, ``(highest + 1,)``."""
    limits = torch.tensor([math.factorial(m) / 2.0 ** (m + 1) for m in range(highest + 1)]).to(x)
    shares = [-torch.expm1(-2.0 * x)]  # of m = 0, where the gradient of the incomplete gamma function is NaN at 0
    shares += [torch.special.gammainc(torch.tensor(m + 1.0).to(x), 2.0 * x) for m in range(1, highest + 1)]
    return torch.stack(shares, dim=-1) * limits, limits
