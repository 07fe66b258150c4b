"""Samples of the parameters: by Laplace's approximation, a Gaussian around the most probable ones, or by slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.kernels.canonical_kernel import PriorModule
from cgp.regression.covariances.structure import check_count, count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.model import RegressionModel

from .fitting import Progress
from .maximum import MAP, closed_form_cost
from .setting import Fits, Setting

__all__ = [
    "Laplace",
    "LaplaceApproximation",
    "Slices",
    "potential_of",
    "sample_laplace",
    "sample_slices",
    "sampled_parameters",
    "with_parameters",
]

Samples = dict[str, Tensor]

_STEP = 1e-4
_LEAST_CURVATURE = 0.25  # of the widest prior, that of log scales and log noises
_FARTHEST = 4.0  # largest distance of an initial state from its prior's mean, in standard deviations
_NARROWEST = 1e-6  # smallest bracket, in radians; it always contains the current state
_SECONDS = 1.5  # of the chains of a model


@dataclass(frozen=True, kw_only=True)
class Laplace(MAP):
    """Predictions are averaged over samples of a Gaussian around the most probable parameters.

    Args:
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each.
        num_mixture: largest number of samples, of all structures together.
    """

    name = "laplace"
    num_mixture: int = count(50)

    def cost(self, setting: Setting) -> Cost:
        """The cost of the most probable parameters, and of their curvature."""
        return closed_form_cost(setting.solvers, self.num_starts, self.max_steps, is_sampled=True)

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Fit, and sample the parameters of each model."""
        fits = super().fit(setting, seed, progress)
        count = -(-self.num_mixture // len(fits.models))
        batches = [model.batches(self.samples(model, count, seed)) for model in fits.models]
        pairs = zip(fits.structures, batches, strict=True)
        structures = [structure for structure, models in pairs for _ in models]
        return fits._replace(models=[model for models in batches for model in models], structures=structures)

    def samples(self, model: RegressionModel, count: int, seed: int) -> Samples:
        """Samples of the parameters of a fitted model, ``count`` of them."""
        return sample_laplace(model, num_samples=count, seed=seed)


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


def sample_laplace(model: RegressionModel, *, num_samples: int = 50, seed: int = 0) -> Samples:
    r"""Draw the parameters from a Gaussian around the most probable ones, in antithetic pairs.

    .. math:: \theta \sim N(\hat\theta, H^{-1}), \qquad
        H = -\nabla^2\big[\log p(y \mid \theta) + \log p(\theta)\big]_{\hat\theta}

    H is computed by differences of gradients, 2k evaluations for k parameters. In a direction about which neither the
    observations nor the priors are informative, the width is that of the widest prior.

    Args:
        model: exact or sparse, fitted; it is not changed. Parameters without a prior are fixed.
        num_samples: number of draws.
        seed: seed of the draws.

    Returns:
        By name of prior, ``(S, ...)``.

    Raises:
        ValueError: if the number is too small.

    Source:
        MacKay (1992), A practical Bayesian framework for backpropagation networks.
    """
    check_count("num_samples", num_samples, 1)
    laplace = LaplaceApproximation.of(model)
    generator = torch.Generator().manual_seed(seed)
    shape = -(-num_samples // 2), len(laplace.centre)
    half = torch.randn(shape, generator=generator, dtype=laplace.centre.dtype).to(laplace.centre.device)
    return laplace.parameters(torch.cat([half, -half])[:num_samples])


class LaplaceApproximation(NamedTuple):
    """A Gaussian around the most probable parameters, and the linear map to them from its standard coordinates.

    Attributes:
        centre: ``(k,)``.
        root: root of the covariance, ``(k, k)``.
        shapes: shapes of the parameters, by name of prior.
    """

    centre: Tensor
    root: Tensor
    shapes: dict[str, torch.Size]

    @classmethod
    def of(cls, model: RegressionModel) -> Self:
        """The approximation of a fitted model."""
        potential, values = potential_of(model), sampled_parameters(model)
        centre = torch.cat([value.flatten() for value in values.values()])
        laplace = cls(centre, torch.eye(len(centre)).to(centre), {name: value.shape for name, value in values.items()})

        def slope(offset: Tensor) -> Tensor:
            offset = offset.clone().requires_grad_()
            return torch.autograd.grad(potential(laplace.parameters(offset)), offset)[0]

        steps = _STEP * laplace.root
        hessian = torch.stack([slope(step) - slope(-step) for step in steps]) / (2.0 * _STEP)
        curvature, directions = torch.linalg.eigh(0.5 * (hessian + hessian.mT))
        return laplace._replace(root=directions * curvature.clamp(min=_LEAST_CURVATURE).rsqrt())

    def parameters(self, white: Tensor) -> dict[str, Tensor]:
        """The parameters of standard coordinates ``(*batch, k)``, by name of prior."""
        parts = (self.centre + white @ self.root.mT).split([size.numel() for size in self.shapes.values()], dim=-1)
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: part.reshape(*white.shape[:-1], *size) for (name, size), part in pairs}


def sample_slices(model: RegressionModel, *, num_samples: int = 50, num_steps: int = 80, seed: int = 0) -> Samples:
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
        parts = [((start[name] - mean) / sd).clamp(-_FARTHEST, _FARTHEST) for name, (mean, sd) in prior.items()]
        state = torch.cat([part.flatten(1) for part in parts], dim=-1)
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


def _unwhitened(state: Tensor, prior: Mapping[str, tuple[Tensor, Tensor]]) -> Samples:
    """Parameters by name of prior from their standard coordinates ``(S, k)``."""
    parts = state.split([mean.numel() for mean, _ in prior.values()], dim=-1)
    pairs = zip(prior.items(), parts, strict=True)
    return {name: mean + sd * part.reshape(-1, *mean.shape) for (name, (mean, sd)), part in pairs}


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


def _likelihood(batch: RegressionModel, prior: Mapping[str, tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    """The log-likelihood of standard coordinates ``(S, k)``, minus infinity where a covariance cannot be factored."""
    evidence = with_parameters(batch, lambda model: model.log_evidence())
    # Where the covariance of one chain cannot be factored, all chains try another angle.
    return lambda state: evidence(_unwhitened(state, prior)).expand(len(state))


def potential_of(model: RegressionModel) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """The negative log posterior in nats as a function of the values of :func:`sampled_parameters`."""
    posterior = with_parameters(model, lambda model: model.log_evidence() + model.log_prior())
    return lambda values: -posterior(values)


def with_parameters(
    model: RegressionModel, ask: Callable[[RegressionModel], Tensor]
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """What is asked of a model as a function of its parameters, minus infinity where a covariance has no factor."""
    target = _Asked(model, ask)

    def evaluate(values: Mapping[str, Tensor]) -> Tensor:
        parameters = {f"model.{name.removesuffix('_prior')}": value for name, value in values.items()}
        try:
            return functional_call(target, parameters, ())
        except NotPositiveDefiniteError:  # a trial step of the sampler is far out of range
            return model.train_targets.new_full((), -math.inf)

    return evaluate


class _Asked(nn.Module):
    def __init__(self, model: RegressionModel, ask: Callable[[RegressionModel], Tensor]) -> None:
        super().__init__()
        self.model, self.ask = model, ask

    def forward(self) -> Tensor:
        return self.ask(self.model)


def sampled_parameters(model: RegressionModel) -> Samples:
    """The values of the unconstrained parameters with priors, by name of the prior."""
    return {
        name: closure(module).detach().clone()
        for name, module, _, closure, _ in model.named_priors()
        if isinstance(module, PriorModule)
    }
