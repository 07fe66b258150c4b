"""Fully Bayesian regression: samples of the parameters by Pyro, predictions are the mixture over them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, TypeVar

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.func import functional_call

from cgp.extras import needs_extra
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression.checks import check_count
from cgp.regression.likelihood import PriorModule
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.model import RegressionModel

__all__ = [
    "MOST_ENTRIES",
    "Diagnostics",
    "Samples",
    "batch_model",
    "batch_models",
    "diagnose",
    "held_entries",
    "sample_laplace",
    "sample_nuts",
]

Model = TypeVar("Model", bound=RegressionModel)

MOST_ENTRIES = 2**23  # of the matrices of all samples that are computed or kept together

_STEP = 1e-4
_LEAST_CURVATURE = 0.25  # of the widest prior, that of log scales and log noises
_MAX_R_HAT = 1.05
_MIN_ESS = 100.0


class Diagnostics(NamedTuple):
    """Convergence diagnostics of the chains.

    Attributes:
        r_hat: split r-hat, the worst entry of each parameter; 1 is perfect.
        effective_size: effective sample size, the smallest entry of each parameter.
        divergences: transitions that diverged.
        message: a summary in words.
    """

    r_hat: dict[str, float]
    effective_size: dict[str, float]
    divergences: int
    message: str


class Samples(NamedTuple):
    """Samples of the parameters that have priors, all of them unconstrained: scales and noises by their logarithm.

    Attributes:
        chains: samples by name of prior, ``(C, S, ...)``.
        diagnostics: diagnostics of the chains.
    """

    chains: dict[str, Tensor]
    diagnostics: Diagnostics

    @property
    def flat(self) -> dict[str, Tensor]:
        """The samples of all chains, ``(C·S, ...)``."""
        return {name: value.flatten(0, 1) for name, value in self.chains.items()}

    def thinned(self, number: int) -> dict[str, Tensor]:
        """At most this many evenly spaced samples of all chains, by name of prior, ``(min(number, C·S), ...)``."""
        flat = self.flat
        total = len(next(iter(flat.values())))
        kept = torch.linspace(0, total - 1, min(number, total)).round().long()
        return {name: value[kept] for name, value in flat.items()}


def sample_nuts(
    model: RegressionModel,
    *,
    num_samples: int = 200,
    num_warmup: int = 150,
    num_chains: int = 2,
    max_tree_depth: int = 6,
    seed: int = 0,
    progress: bool = True,
) -> Samples:
    """Sample the parameters by the no-U-turn sampler, every chain from a draw of Laplace's approximation.

    The sampler moves in coordinates in which that approximation is a standard normal, so that its step size suits all
    parameters from the first step. The parameters are identifiable (different values give different covariances), so
    that chains can agree. Parameters without a prior, such as inducing inputs, and those of a kernel object are not
    changed.

    Args:
        model: exact or sparse, best after a fit; it is not changed.
        num_samples: number of kept samples of each chain.
        num_warmup: number of steps before them.
        num_chains: number of chains, run one after the other.
        max_tree_depth: at most 2 to this power evaluations a step.
        seed: seed of the first chain; the next ones have the following numbers.
        progress: whether a bar is shown.

    Returns:
        The samples, with their diagnostics.

    Raises:
        ValueError: if a count is too small.
        ImportError: if Pyro is not installed.

    Warns:
        ConvergenceWarning: if r-hat or the effective sample size is bad, or transitions diverged.

    Source:
        Hoffman & Gelman (2014), The No-U-Turn Sampler; Vehtari et al. (2021), Rank-normalization, folding, and
        localization, on the diagnostics.
    """
    with needs_extra("bayesian", "sample_nuts"):
        from pyro.infer import MCMC, NUTS

    if num_samples < 4 or num_warmup < 1 or num_chains < 1:
        got = f"{num_samples}, {num_warmup}, {num_chains}"
        raise ValueError(f"num_samples, num_warmup, num_chains: expected at least 4, 1 and 1, got {got}")
    potential, laplace, chains, divergences = _potential(model), _Laplace.of(model), [], 0

    def energy(values: Mapping[str, Tensor]) -> Tensor:
        return potential(laplace.parameters(values["white"]))

    for chain in range(num_chains):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + chain)
            start = {"white": torch.randn_like(laplace.centre)}
            while not energy(start).isfinite():  # the covariance has no Cholesky factor; at the centre it has
                start["white"] *= 0.5
            mcmc = MCMC(
                NUTS(potential_fn=energy, max_tree_depth=max_tree_depth),
                num_samples=num_samples,
                warmup_steps=num_warmup,
                initial_params=start,
                disable_progbar=not progress,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # by Pyro, about tensors constructed from tensors
                mcmc.run()
        chains.append(laplace.parameters(mcmc.get_samples()["white"].detach()))
        divergences += sum(len(diverged) for diverged in mcmc.diagnostics()["divergences"].values())
    stacked = {name: torch.stack([chain[name] for chain in chains]) for name in chains[0]}
    return Samples(stacked, diagnose(stacked, divergences))


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
    laplace = _Laplace.of(model)
    generator = torch.Generator().manual_seed(seed)
    shape = -(-num_samples // 2), len(laplace.centre)
    half = torch.randn(shape, generator=generator, dtype=laplace.centre.dtype).to(laplace.centre.device)
    return laplace.parameters(torch.cat([half, -half])[:num_samples])


def batch_models(model: Model, samples: Mapping[str, Tensor]) -> list[Model]:
    """Copies of the model as in :func:`batch_model`, each with as many of the samples as fit into the memory limit."""
    size = max(1, MOST_ENTRIES // max(held_entries(model), 1))
    total = len(next(iter(samples.values())))
    parts = [{name: value[start : start + size] for name, value in samples.items()} for start in range(0, total, size)]
    return [batch_model(model, part) for part in parts]


def held_entries(model: RegressionModel) -> int:
    """Entries of the largest matrix that the posterior of a model holds."""
    count, members = model.train_targets.shape[-1], math.prod(model.train_targets.shape[:-1])
    return members * count**2 if isinstance(model, CorrelatedGPRegression) else 0


def batch_model(model: Model, samples: Mapping[str, Tensor]) -> Model:
    """A copy of the model in eval mode, one batch member per sample ``(S, ...)``: its moments are ``(S, t)``."""
    batch = copy.deepcopy(model)
    for module in batch.modules():
        if not isinstance(module, PriorModule):
            getattr(module, "_priors", {}).clear()  # fixed parameters need no samples
    batch.pyro_load_from_samples({name: value.clone() for name, value in samples.items()})
    return batch.eval()


def diagnose(chains: Mapping[str, Tensor], divergences: int = 0) -> Diagnostics:
    """Split r-hat and effective sizes of chains ``(C, S, ...)``, the worst of each parameter, with a warning if bad."""
    with needs_extra("bayesian", "diagnose"):
        from pyro.ops.stats import effective_sample_size, split_gelman_rubin

    r_hat = {name: float(split_gelman_rubin(value, 0, 1).max()) for name, value in chains.items()}
    sizes = {name: float(effective_sample_size(value, 0, 1).min()) for name, value in chains.items()}
    worst = max(r_hat, key=lambda name: -math.inf if math.isnan(r_hat[name]) else r_hat[name])
    fewest = min(sizes, key=lambda name: math.inf if math.isnan(sizes[name]) else sizes[name])
    complaints = []
    if not r_hat[worst] <= _MAX_R_HAT:
        complaints.append(f"the chains disagree on {worst} (r-hat {r_hat[worst]:.2f}, should be below {_MAX_R_HAT})")
    if not sizes[fewest] >= _MIN_ESS:
        complaints.append(f"{fewest} has only {sizes[fewest]:.0f} effective samples (should be {_MIN_ESS:.0f} or more)")
    if divergences:
        complaints.append(f"{divergences} transitions diverged")
    if not complaints:
        summary = f"r-hat at most {r_hat[worst]:.2f}, effective sample size at least {sizes[fewest]:.0f}"
        return Diagnostics(r_hat, sizes, divergences, f"The chains agree: {summary}")
    message = "Do not trust the samples yet: " + "; ".join(complaints) + ". Take more warm-up and samples."
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return Diagnostics(r_hat, sizes, divergences, message)


class _Laplace(NamedTuple):
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
        potential, values = _potential(model), _sampled(model)
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


def _sampled(model: RegressionModel) -> dict[str, Tensor]:
    """The values of the unconstrained parameters with priors, by name of the prior."""
    priors = {name: (module, closure) for name, module, _, closure, _ in model.named_priors()}
    return {
        name: closure(owner).detach().clone()
        for name, (owner, closure) in priors.items()
        if isinstance(owner, PriorModule)
    }


def _potential(model: RegressionModel) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """The negative log posterior as a function of those values."""
    target = _Potential(model)

    def evaluate(values: Mapping[str, Tensor]) -> Tensor:
        parameters = {f"model.{name.removesuffix('_prior')}": value for name, value in values.items()}
        return functional_call(target, parameters, ())

    return evaluate
