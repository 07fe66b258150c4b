"""Laplace's approximation: a Gaussian around the most probable parameters, and models with samples of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.kernels.priors import PriorModule
from cgp.regression.covariances.structure import check_count, count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.model import RegressionModel

from .fitting import Progress
from .maximum import MAP, closed_form_cost
from .setting import Fits, Setting

__all__ = [
    "Laplace",
    "LaplaceApproximation",
    "potential_of",
    "sample_laplace",
    "sampled_parameters",
]

_STEP = 1e-4
_LEAST_CURVATURE = 0.25  # of the widest prior, that of log scales and log noises


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

    def samples(self, model: RegressionModel, count: int, seed: int) -> dict[str, Tensor]:
        """Samples of the parameters of a fitted model, ``count`` of them."""
        return sample_laplace(model, num_samples=count, seed=seed)


def sample_laplace(model: RegressionModel, *, num_samples: int = 50, seed: int = 0) -> dict[str, Tensor]:
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


class _Potential(nn.Module):
    """The negative log posterior of the parameters in nats."""

    def __init__(self, model: RegressionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        try:
            evidence = self.model.log_evidence()
        except NotPositiveDefiniteError:  # a trial step of the sampler is far out of range
            evidence = self.model.train_targets.new_full((), -math.inf)
        return -evidence - self.model.log_prior()


def sampled_parameters(model: RegressionModel) -> dict[str, Tensor]:
    """The values of the unconstrained parameters with priors, by name of the prior."""
    priors = {name: (module, closure) for name, module, _, closure, _ in model.named_priors()}
    return {
        name: closure(owner).detach().clone()
        for name, (owner, closure) in priors.items()
        if isinstance(owner, PriorModule)
    }


def potential_of(model: RegressionModel) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """The negative log posterior as a function of those values."""
    target = _Potential(model)

    def evaluate(values: Mapping[str, Tensor]) -> Tensor:
        parameters = {f"model.{name.removesuffix('_prior')}": value for name, value in values.items()}
        return functional_call(target, parameters, ())

    return evaluate
