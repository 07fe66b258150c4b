"""What a model says of the targets: a mixture of Gaussians, and its densities."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.gaussians import log_normal
from cgp.functional.linalg import cholesky, log_determinant, solve_lower
from cgp.functional.padding import add_noise
from experiments.studies.in_context.tasks import Tasks

__all__ = ["Predictive", "condition"]


class Predictive(NamedTuple):
    """A mixture of K Gaussians of the noisy targets.

    Attributes:
        log_weights: ``(B, K)``, normalised.
        mean: ``(B, K, m)``.
        variance: ``(B, K, m)``.
        covariance: ``(B, K, m, m)``, or None where there is no joint law.
    """

    log_weights: Tensor
    mean: Tensor
    variance: Tensor
    covariance: Tensor | None = None

    def marginal(self, y: Tensor) -> Tensor:
        """Log-density of each target, ``(B, m)`` in nats."""
        squares = (y[:, None] - self.mean).square() / self.variance
        densities = -0.5 * (squares + self.variance.log() + math.log(2.0 * math.pi))
        return (self.log_weights[..., None] + densities).logsumexp(-2)

    def joint(self, y: Tensor) -> Tensor:
        """Log-density of all targets of a function, ``(B,)`` in nats."""
        assert self.covariance is not None, "the model has no joint law"
        factor = cholesky(self.covariance, name="covariance of the targets", jitter=0.0)
        whitened = solve_lower(factor, (y[:, None] - self.mean)[..., None])
        densities = log_normal(whitened.square().sum((-2, -1)), log_determinant(factor), y.shape[-1], 1)
        return (self.log_weights + densities).logsumexp(-1)

    def cumulative(self, y: Tensor) -> Tensor:
        """Distribution function at each target, ``(B, m)``."""
        values = torch.special.ndtr((y[:, None] - self.mean) / self.variance.sqrt())
        return (self.log_weights.exp()[..., None] * values).sum(-2)


def condition(covariance: Tensor, noise: Tensor, tasks: Tasks, log_prior: Tensor | None = None) -> Predictive:
    r"""Exact conditioning under K parameter sets, weighted by their evidence.

    .. math::
        p(y_* \mid y) = \sum_k w_k\, N(y_*; \mu_k, V_k + \sigma_k^2I), \qquad
        w_k \propto \pi_k\, N(y; 0, K_k + \sigma_k^2I)

    Args:
        covariance: of the function at contexts and targets, ``(B, K, n + m, n + m)``.
        noise: variance of the noise, broadcastable to ``(B, K)``.
        tasks: B functions.
        log_prior: :math:`\log\pi`, broadcastable to ``(B, K)``; None for equal ones.
    """
    n = tasks.x.shape[-1]
    padding = None if tasks.padding is None else tasks.padding[:, None]
    noise = noise[..., None].expand(*covariance.shape[:2], 1)
    values = tasks.y[:, None, :, None].to(covariance)
    keys = ObservedKeys(covariance[..., :n, :n], noise=noise, targets=values, padding=padding)
    of_targets = covariance[..., n:, n:]
    prior_variance = of_targets.diagonal(dim1=-2, dim2=-1)
    posterior = ExactPosterior(covariance[..., n:, :n], keys, prior_variance, K_q=lambda: of_targets)
    noisy = add_noise(posterior.covariance, noise)
    evidence = keys.log_evidence if log_prior is None else keys.log_evidence + log_prior
    variance = noisy.diagonal(dim1=-2, dim2=-1)
    return Predictive(evidence.log_softmax(-1), posterior.mean[..., 0], variance, noisy)
