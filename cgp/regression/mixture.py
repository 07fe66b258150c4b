"""Equal mixtures of Gaussians: the prediction of a posterior that was sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["joint_draw", "log_density", "mixture_covariance", "mixture_moments"]

Array = NDArray[Any]


def mixture_moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    r"""Moments by the law of total variance, :math:`\bar\mu` and :math:`\overline{v} + \overline{(\mu-\bar\mu)^2}`.

    Args:
        mean: ``(S, ...)``.
        variance: ``(S, ...)``.

    Returns:
        Mean and variance, ``(...)``.

    Example:
        >>> [value.item() for value in mixture_moments(np.array([-1.0, 1.0]), np.array([1.0, 1.0]))]
        [0.0, 2.0]
    """
    return mean.mean(0), variance.mean(0) + mean.var(0)


def mixture_covariance(mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Moments of joint predictions by the law of total covariance.

    Args:
        mean: ``(S, t)``.
        covariance: ``(S, t, t)``.

    Returns:
        Mean ``(t,)`` and covariance ``(t, t)``.
    """
    centred = mean - mean.mean(0)
    return mean.mean(0), covariance.mean(0) + centred.T @ centred / len(mean)


def log_density(value: Array, mean: Array, variance: Array) -> Array:
    r"""Log-density of the mixture, :math:`\log \tfrac1S\sum_s N(y; \mu_s, v_s)`.

    Args:
        value: y, ``(...)``.
        mean: ``(S, ...)``.
        variance: ``(S, ...)``.

    Returns:
        ``(...)``, in nats.

    Example:
        >>> float(log_density(np.zeros(1), np.zeros((3, 1)), np.ones((3, 1)))[0])
        -0.918938...
    """
    each = -0.5 * ((value - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))
    return np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def joint_draw(mean: Array, covariance: Array, generator: np.random.RandomState) -> Array:
    """A draw of a Gaussian whose covariance may be singular.

    Args:
        mean: ``(t,)``.
        covariance: ``(t, t)``.
        generator: source of randomness.

    Returns:
        ``(t,)``.
    """
    # By eigenvalues: a posterior covariance is singular wherever the data leave no doubt.
    values, vectors = np.linalg.eigh(covariance)
    return mean + vectors @ (np.sqrt(values.clip(min=0.0)) * generator.standard_normal(len(mean)))
