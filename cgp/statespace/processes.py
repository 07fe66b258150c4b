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
    "integrated_wiener_process",
    "matern_process",
    "oscillator_process",
    "periodic_weights",
    "product_process",
    "trend_process",
]


class MarkovProcess(NamedTuple):
    """A process at some lags, of unit variance unless stated otherwise.

    Attributes:
        transition: A, ``(*batch, U, d, d)`` for U lags.
        noise: Q, ``(*batch, U, d, d)``.
        stationary: P, ``(*batch, d, d)``; of a process that is not stationary, the covariance of its first states.
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
        lags: lags in lengthscales, at least 0, ``(*batch, U)``.
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
    power, transition = torch.eye(size).to(lags), x.new_zeros(*x.shape, size, size)
    for order in range(size):
        transition = transition + x[..., None, None] ** order / math.factorial(order) * power
        power = power @ nilpotent
    integrals, limits = _integrals(x, 2 * degree)
    weights = torch.as_tensor(_noise_weights(degree)).to(lags)  # (size, size, 2p + 1)
    return MarkovProcess(
        torch.exp(-x)[..., None, None] * transition,
        torch.einsum("ijm,...m->...ij", weights, integrals),
        torch.einsum("ijm,m->ij", weights, limits),
    )


def harmonic_process(lags: Tensor, number: int, weight: Tensor | float = 1.0) -> MarkovProcess:
    r"""A cosine of random amplitude and phase, :math:`q\cos(2\pi j\tau)`: a rotation without noise.

    Args:
        lags: lags in periods, ``(*batch, U)``.
        number: j, the number of the harmonic.
        weight: q, its variance, ``(*batch,)`` or a number.

    Returns:
        A process of two states.

    Source:
        Solin & Särkkä (2014), Explicit link between periodic covariance functions and state space models.
    """
    angle = 2.0 * math.pi * number * lags
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).unflatten(-1, (2, 2))
    return MarkovProcess(rotation, torch.zeros_like(rotation), _times(weight, torch.eye(2).to(lags)))


def constant_process(lags: Tensor, weight: Tensor | float = 1.0) -> MarkovProcess:
    """A random constant of this variance, of one state."""
    ones = torch.ones_like(lags)[..., None, None]
    return MarkovProcess(ones, torch.zeros_like(ones), _times(weight, torch.ones(1, 1).to(lags)))


def trend_process(lags: Tensor, start: Tensor, weight: Tensor | float = 1.0) -> MarkovProcess:
    r"""A straight line through the origin of random slope, of covariance :math:`q\,t\,t'`; it is not stationary.

    Its states are value and slope, its :attr:`~MarkovProcess.stationary` their covariance at the first input. A random
    constant beside it (:func:`constant_process`) moves the line off the origin.

    .. math:: A = \begin{pmatrix}1 & \tau\\ 0 & 1\end{pmatrix}, \qquad Q = 0, \qquad
        P_1 = q\begin{pmatrix}t_1^2 & t_1\\ t_1 & 1\end{pmatrix}

    Args:
        lags: lags in units of the inputs, ``(U,)``.
        start: the first input :math:`t_1`, ``(*batch,)``.
        weight: q, the variance of the slope.

    Returns:
        A process of two states.
    """
    ones, zeros = torch.ones_like(lags), torch.zeros_like(lags)
    transition = torch.stack([ones, lags, zeros, ones], dim=-1).unflatten(-1, (2, 2))
    direction = torch.stack([start.to(lags), torch.ones_like(start).to(lags)], dim=-1)
    covariance = direction[..., :, None] * direction[..., None, :]
    return MarkovProcess(transition, torch.zeros_like(transition), _times(weight, covariance))


def integrated_wiener_process(lags: Tensor, start: Tensor) -> MarkovProcess:
    r"""The integral of a Wiener process that starts at zero: the prior of a cubic spline; it is not stationary.

    .. math:: A = \begin{pmatrix}1 & \tau\\ 0 & 1\end{pmatrix}, \qquad
        Q = \begin{pmatrix}\tau^3/3 & \tau^2/2\\ \tau^2/2 & \tau\end{pmatrix}, \qquad P_1 = Q(t_1)

    Args:
        lags: lags in units of the inputs, ``(*batch, U)``.
        start: the first input :math:`t_1`, at least 0, ``(*batch,)``.

    Returns:
        A process of two states, value and slope.

    Source:
        Wahba (1978), Improper priors, spline smoothing and the problem of guarding against model errors in regression.
    """
    ones, zeros = torch.ones_like(lags), torch.zeros_like(lags)
    transition = torch.stack([ones, lags, zeros, ones], dim=-1).unflatten(-1, (2, 2))
    return MarkovProcess(transition, _spline_noise(lags), _spline_noise(start.to(lags)))


def oscillator_process(lags: Tensor, frequency: Tensor, quality: Tensor) -> MarkovProcess:
    r"""A damped harmonic oscillator driven by white noise, its states the deviation and its rate over the frequency.

    .. math:: \ddot f + \frac{\omega}{Q_o}\dot f + \omega^2 f = w, \qquad
        \kappa(\tau) = e^{-a\tau}\Big(\cos b\tau + \frac ab \sin b\tau\Big), \quad
        a = \frac{\omega}{2Q_o},\; b^2 = \omega^2 - a^2

    Where it is damped beyond oscillation, :math:`b^2 < 0`, these are hyperbolic functions. The noise is integrated
    numerically at lags below two radians or decay times, where :math:`P - APA^\top` loses its digits.

    Args:
        lags: lags in units of the inputs, at least 0, ``(*batch, U)``.
        frequency: :math:`\omega` in radians, ``(*batch,)``.
        quality: the quality factor :math:`Q_o`, ``(*batch,)``.

    Returns:
        A process of two states and unit variance.

    Source:
        Foreman-Mackey, Agol, Ambikasaran & Angus (2017), Fast and scalable Gaussian process modeling with applications
        to astronomical time series, equation (23).
    """
    x, damping = lags * frequency[..., None], 0.5 / quality[..., None]  # in units of the frequency
    transition, P = _oscillation(x, damping), torch.eye(2).to(lags)
    fast = torch.maximum(damping, torch.ones_like(damping))
    nodes, weights = (torch.as_tensor(each).to(lags) for each in np.polynomial.legendre.leggauss(20))
    near = x.clamp(max=2.0 / fast.detach())
    points = near[..., None] * (0.5 + 0.5 * nodes)
    response = _oscillation(points, damping[..., None])[..., 1]  # (*batch, U, nodes, 2)
    inner = (response * (2.0 * damping[..., None] * near[..., None] * weights)[..., None]).mT @ response
    noise = torch.where((x * fast < 2.0)[..., None, None], inner, P - transition @ transition.mT)
    return MarkovProcess(transition, noise, P)


def _oscillation(x: Tensor, damping: Tensor) -> Tensor:
    r"""The transition :math:`e^{Fx}`, ``(..., 2, 2)``, of :math:`F = \begin{pmatrix}0 & 1\\ -1 & -2a\end{pmatrix}`."""
    z = (1.0 - damping.square()) * x.square()
    small = z.abs() < 1e-3
    root = torch.where(small, 1.0, z).abs().sqrt()
    # Of exponentials only, as a hyperbolic cosine overflows.
    rising, falling = torch.exp((root - damping * x).clamp(max=0.0)), torch.exp(-root - damping * x)
    decay = torch.exp(-damping * x)
    cosine = torch.where(z > 0, decay * root.cos(), 0.5 * (rising + falling))
    sine = torch.where(z > 0, decay * root.sin() / root, 0.5 * (rising - falling) / root)
    near = torch.where(small, z, 0.0)
    cosine = torch.where(small, decay * (1 - near / 2 * (1 - near / 12 * (1 - near / 30 * (1 - near / 56)))), cosine)
    sine = x * torch.where(small, decay * (1 - near / 6 * (1 - near / 20 * (1 - near / 42 * (1 - near / 72)))), sine)
    entries = [cosine + damping * sine, sine, -sine, cosine - damping * sine]
    return torch.stack(entries, dim=-1).unflatten(-1, (2, 2))


def _spline_noise(x: Tensor) -> Tensor:
    """Covariance of an integrated Wiener process and its slope after a time, ``(..., 2, 2)``."""
    return torch.stack([x**3 / 3.0, x**2 / 2.0, x**2 / 2.0, x], dim=-1).unflatten(-1, (2, 2))


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
    moved = A @ P[..., None, :, :] @ A.mT
    return MarkovProcess(
        _kron(A, other.transition),
        _kron(Q, other.stationary[..., None, :, :]) + _kron(moved, other.noise),
        _kron(P, other.stationary),
    )


def periodic_weights(lengthscale: Tensor, count: int) -> Tensor:
    r"""Variances of the constant and of the harmonics of a periodic covariance.

    .. math:: e^{-2\sin^2(\pi\tau)/\ell^2} = \sum_j q_j\cos(2\pi j\tau), \qquad
        q_0 = e^{-z}I_0(z),\; q_j = 2e^{-z}I_j(z),\; z = \ell^{-2}

    With seven harmonics 2e-6 of the variance are missing at a lengthscale of 0.8, and 5e-4 at 0.5.

    Args:
        lengthscale: :math:`\ell`, ``(*batch,)``.
        count: number of weights, including the constant's.

    Returns:
        ``(*batch, count)``; their sum is at most 1.

    Source:
        Solin & Särkkä (2014), equation (16).
    """
    # Cosine coefficients of a smooth periodic function by a discrete transform: exact to rounding, with all gradients.
    points = max(128, 4 * count)
    phase = torch.arange(points).to(lengthscale) / points
    values = torch.exp(-2.0 * torch.sin(math.pi * phase).square() / lengthscale.square()[..., None])
    cosines = torch.cos(2.0 * math.pi * torch.arange(count).to(lengthscale)[:, None] * phase)
    scale = torch.full((count,), 2.0).to(lengthscale)
    scale[0] = 1.0
    return scale * (cosines @ values[..., None])[..., 0] / points


def _kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker products of matrices, batch by batch."""
    return (a[..., :, None, :, None] * b[..., None, :, None, :]).flatten(-4, -3).flatten(-2, -1)


def _times(weight: Tensor | float, matrix: Tensor) -> Tensor:
    """Matrices ``(*batch, d, d)`` times a weight of each member of a batch."""
    return (weight[..., None, None] if isinstance(weight, Tensor) else weight) * matrix


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
