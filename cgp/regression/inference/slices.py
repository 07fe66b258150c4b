"""Elliptical slice sampling of the parameters, many short chains in parallel: for few observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.kernels.priors import PriorModule
from cgp.regression.covariances.structure import check_count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.model import RegressionModel

from .laplace import Laplace, sample_laplace
from .setting import Setting

__all__ = ["Slices", "sample_slices"]

_FARTHEST = 4.0  # largest distance of an initial state from its prior's mean, in standard deviations
_NARROWEST = 1e-6  # smallest bracket, in radians; it always contains the current state

_SECONDS = 1.5  # of the chains of a model

Samples = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Slices(Laplace):
    """Predictions are averaged over samples of the parameters by elliptical slices: for some tens of observations.

    Args:
        num_starts: number of starts of the fit before, which are optimised to the end.
        max_steps: largest number of steps of each.
        num_mixture: largest number of samples, of all structures together.
    """

    name = "slice"

    def cost(self, setting: Setting) -> Cost:
        """The cost of Laplace's approximation, and of the chains."""
        cost = super().cost(setting)
        return cost._replace(seconds=cost.seconds + len(setting.solvers) * _SECONDS)

    def samples(self, model: RegressionModel, count: int, seed: int) -> Samples:
        """Samples of the parameters of a fitted model, ``count`` of them."""
        return sample_slices(model, num_samples=count, seed=seed)


def sample_slices(
    model: RegressionModel, *, num_samples: int = 50, num_steps: int = 80, seed: int = 0
) -> dict[str, Tensor]:
    r"""Draw the parameters from their posterior, each draw the last state of a separate chain.

    .. math:: \theta' = \mu + (\theta - \mu)\cos\phi + (\nu - \mu)\sin\phi, \qquad \nu \sim N(\mu, \Sigma), \qquad
        \log p(y \mid \theta') > \log p(y \mid \theta) + \log u

    The prior must be normal. There is no step size and no gradient; all chains take a step in one batch of small
    factorisations. The bracket of :math:`\phi` shrinks towards the current state until the likelihood is above its
    level. Chains start at
    draws from Laplace's approximation. Time O(S n³) per trial: for some tens of observations, where the prior is
    influential and a Gaussian around the most probable parameters is too narrow.

    Args:
        model: exact or sparse, fitted; it is not changed. Parameters without a normal prior are fixed.
        num_samples: number S of draws.
        num_steps: number of steps of each chain.
        seed: seed of all random numbers.

    Returns:
        By name of prior, ``(S, ...)``.

    Raises:
        ValueError: if a count is below one.

    Source:
        Murray, Adams & MacKay (2010), Elliptical slice sampling.
    """
    check_count("num_samples", num_samples, 1)
    check_count("num_steps", num_steps, 1)
    generator = torch.Generator().manual_seed(seed)
    prior, start = _prior(model), sample_laplace(model, num_samples=num_samples, seed=seed)
    with torch.no_grad():
        log_likelihood = _likelihood(model.with_samples(start), prior)
        state = torch.cat([_white(start[name], *prior[name]).flatten(1) for name in prior], dim=-1)
        value = log_likelihood(state)
        if not value.isfinite().all():
            state = torch.zeros_like(state)
            value = log_likelihood(state)
        for _ in range(num_steps):
            state, value = _step(state, value, log_likelihood, generator)
    return _unwhitened(state, prior)


def _prior(model: RegressionModel) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of every parameter with a normal prior, in its shape."""
    return {
        name: tuple(part.to(value).expand_as(value) for part in (prior.loc, prior.scale))
        for name, module, prior, closure, _ in model.named_priors()
        if isinstance(module, PriorModule)
        for value in [closure(module).detach()]
    }


def _white(value: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    return ((value - mean) / sd).clamp(-_FARTHEST, _FARTHEST)


def _unwhitened(state: Tensor, prior: Mapping[str, tuple[Tensor, Tensor]]) -> Samples:
    """Parameters by name of prior from their standard coordinates ``(S, k)``."""
    parts = state.split([mean.numel() for mean, _ in prior.values()], dim=-1)
    pairs = zip(prior.items(), parts, strict=True)
    return {name: mean + sd * part.reshape(-1, *mean.shape) for (name, (mean, sd)), part in pairs}


class _Evidence(nn.Module):
    """Log-likelihoods ``(S,)`` of a batch of parameters."""

    def __init__(self, model: RegressionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        return self.model.log_evidence()


def _likelihood(batch: RegressionModel, prior: Mapping[str, tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    """The log-likelihood of standard coordinates ``(S, k)``, minus infinity where a covariance cannot be factored."""
    target = _Evidence(batch)

    def evaluate(state: Tensor) -> Tensor:
        values = _unwhitened(state, prior)
        parameters = {f"model.{name.removesuffix('_prior')}": value for name, value in values.items()}
        try:
            return functional_call(target, parameters, ())
        except NotPositiveDefiniteError:  # in one chain; all chains try another angle
            return state.new_full(state.shape[:1], -math.inf)

    return evaluate


def _step(
    state: Tensor, value: Tensor, log_likelihood: Callable[[Tensor], Tensor], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """One step of every chain, ``(S, k)``, and the log-likelihoods there."""

    def uniform() -> Tensor:
        return torch.rand(len(state), generator=generator, dtype=state.dtype).to(state)

    other = torch.randn(state.shape, generator=generator, dtype=state.dtype).to(state)
    level, angle = value + uniform().log(), 2.0 * math.pi * uniform()
    lower, upper, waiting = angle - 2.0 * math.pi, angle.clone(), torch.ones_like(angle).bool()
    while waiting.any():
        angle = torch.where(waiting & (upper - lower < _NARROWEST), 0.0, angle)
        trial = state * angle.cos().unsqueeze(-1) + other * angle.sin().unsqueeze(-1)
        reached = log_likelihood(trial)
        ends = waiting & ((reached > level) | (angle == 0.0))
        state, value = torch.where(ends.unsqueeze(-1), trial, state), torch.where(ends & (angle != 0.0), reached, value)
        waiting = waiting & ~ends
        lower, upper = torch.where(angle < 0.0, angle, lower), torch.where(angle < 0.0, upper, angle)
        angle = torch.where(waiting, lower + (upper - lower) * uniform(), angle)
    return state, value
