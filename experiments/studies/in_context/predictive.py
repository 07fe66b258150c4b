"""What a model says of the targets, a mixture of Gaussians, and its scores by test function, to compare in pairs."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.gaussians import log_normal
from cgp.functional.linalg import cholesky, log_determinant, solve_lower
from cgp.functional.padding import add_noise
from experiments.studies.in_context.tasks import Drawn, Tasks

__all__ = ["Predictive", "chained", "condition", "function_scores", "scores"]

_CHUNK = 32
_TAIL = 0.025


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


@torch.no_grad()
def scores(predict: Callable[[Tasks], Predictive], sets: Mapping[str, Drawn], *, chain: int) -> dict[str, NDArray[Any]]:
    """Per function and set: log-density of the targets one by one and together, and how many 95 % intervals hold them.

    Args:
        predict: the model.
        sets: F functions each.
        chain: number of functions on which a model without a joint law is asked for it by the chain rule.

    Returns:
        "SET.marginal" ``(F,)``, "SET.joint" ``(F,)`` or ``(chain,)``, both in nats a target, "SET.inside" ``(F,)``.
    """
    table: dict[str, NDArray[Any]] = {}
    for name, drawn in sets.items():
        parts = [function_scores(predict(part), part.y_targets) for part in _chunks(drawn.tasks)]
        of_set = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        if "joint" not in of_set and chain:
            factors = [chained(predict, part) for part in _chunks(drawn.tasks.part(0, chain))]
            of_set["joint"] = torch.cat(factors).mean(-1)
        table |= {f"{name}.{key}": values.numpy() for key, values in of_set.items()}
    return table


def function_scores(predictive: Predictive, y_targets: Tensor) -> dict[str, Tensor]:
    """Scores of each function, ``(B,)``: "marginal", "inside" and, where there is a joint law, "joint"."""
    y = y_targets.to(predictive.mean)
    place = predictive.cumulative(y)
    inside = ((place > _TAIL) & (place < 1.0 - _TAIL)).double().mean(-1)
    table = {"marginal": predictive.marginal(y).mean(-1), "inside": inside}
    return table if predictive.covariance is None else {**table, "joint": predictive.joint(y) / y.shape[-1]}


def chained(predict: Callable[[Tasks], Predictive], tasks: Tasks) -> Tensor:
    r"""Autoregressive log-density, :math:`\log p(y_i \mid \text{contexts}, y_{<i})`, ``(B, m)``: one pass a target."""
    steps = [tasks.asking(i) for i in range(tasks.x_targets.shape[-1])]
    return torch.cat([predict(step).marginal(step.y_targets) for step in steps], -1)


def _chunks(tasks: Tasks) -> list[Tasks]:
    return [tasks.part(start, start + _CHUNK) for start in range(0, len(tasks.x), _CHUNK)]
