"""Samples of the parameters by the no-U-turn sampler of Pyro, and whether their chains agree."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cgp.extras import needs_extra
from cgp.regression.covariances.structure import count
from cgp.regression.solvers.choice import Cost
from cgp.regression.solvers.model import RegressionModel
from cgp.warning import warn_user

from .fitting import Progress
from .maximum import MAP, closed_form_cost
from .sampling import LaplaceApproximation, potential_of
from .setting import Fits, Setting

__all__ = ["NUTS", "Diagnostics", "Samples", "diagnose", "sample_nuts"]

_MAX_R_HAT = 1.05
_MIN_ESS = 100.0
_PER_STEP = 15  # evaluations


@dataclass(frozen=True, kw_only=True)
class NUTS(MAP):
    """Samples of the parameters of the best structure by gradients, with diagnostics; predictions are averaged.

    Args:
        num_starts: number of starts of the fit before, which are optimised to the end.
        max_steps: largest number of steps of each.
        num_chains: number of chains.
        num_warmup: number of steps of each chain before its samples.
        num_samples: number of samples of each chain.
        num_mixture: largest number of samples over which predictions are averaged.
    """

    name = "nuts"
    num_chains: int = count(2)
    num_warmup: int = count(150)
    num_samples: int = count(200, least=4)
    num_mixture: int = count(50)

    def obstacle(self, setting: Setting) -> str | None:
        """Refuse nothing; an ImportError names what is not installed."""
        with needs_extra("bayesian", "inference='nuts'"):
            import pyro  # noqa: F401
        return None

    def cost(self, setting: Setting) -> Cost:
        """The cost of the most probable parameters, of their curvature, and of the chains."""
        cost = closed_form_cost(setting.solvers, self.num_starts, self.max_steps, is_sampled=True)
        seconds = max(solver.cost(problem).seconds for solver, problem in setting.solvers.values())
        steps = self.num_chains * (self.num_warmup + self.num_samples)
        return cost._replace(seconds=cost.seconds + steps * _PER_STEP * seconds)

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Fit, and sample the parameters of the best model."""
        fits = super().fit(setting, seed, progress)
        counts = {name: getattr(self, name) for name in ("num_samples", "num_warmup", "num_chains")}
        samples = sample_nuts(fits.models[0], seed=seed, progress=progress is not None, **counts)
        models = fits.models[0].batches(samples.thinned(self.num_mixture))
        return fits._replace(models=models, structures=fits.structures[:1] * len(models), samples=samples)


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
    potential, laplace, chains, divergences = potential_of(model), LaplaceApproximation.of(model), [], 0

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
    warn_user(message, ConvergenceWarning)
    return Diagnostics(r_hat, sizes, divergences, message)
