"""Fully Bayesian regression: the parameters' posterior by Pyro, the prediction as the mixture over its samples."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import pyro
import torch
from gpytorch import Module
from gpytorch.module import RandomModuleMixin
from gpytorch.priors import Prior
from pyro.infer import MCMC, NUTS, SVI, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.autoguide.initialization import init_to_value
from torch import Tensor
from torch.distributions import constraints

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.kernels import AffineMap

from .base import ProcessRegression
from .diagnostics import Diagnostics, diagnose

__all__ = ["Samples", "batch_model", "fit_svi", "sample_nuts"]

Model = TypeVar("Model", bound=ProcessRegression)

_DISPERSION = 0.3


class Samples(NamedTuple):
    """Samples of the parameters that have priors.

    Attributes:
        chains: by name of prior, ``(C, S, ...)``.
        diagnostics: of the chains; None for independent draws.
    """

    chains: dict[str, Tensor]
    diagnostics: Diagnostics | None

    @property
    def flat(self) -> dict[str, Tensor]:
        """The samples of all chains, ``(C·S, ...)``."""
        return {name: value.flatten(0, 1) for name, value in self.chains.items()}

    def thinned(self, number: int) -> dict[str, Tensor]:
        """Evenly spaced samples of all chains.

        Args:
            number: at most how many.

        Returns:
            By name of prior, ``(min(number, C·S), ...)``.
        """
        flat = self.flat
        total = len(next(iter(flat.values())))
        kept = torch.linspace(0, total - 1, min(number, total)).round().long()
        return {name: value[kept] for name, value in flat.items()}


def sample_nuts(
    model: ProcessRegression,
    *,
    num_samples: int = 200,
    num_warmup: int = 300,
    num_chains: int = 2,
    max_tree_depth: int = 6,
    seed: int = 0,
    progress: bool = True,
) -> Samples:
    """Sample the parameters by the no-U-turn sampler, every chain from a start of its own around the model's values.

    The model's gauge is fixed (see :class:`ProcessMap`), so that chains can agree. Parameters without a prior, such as
    inducing inputs, stay as they are.

    Args:
        model: exact or sparse, best after a fit; it is not changed.
        num_samples: kept of each chain.
        num_warmup: before them.
        num_chains: run one after the other.
        max_tree_depth: at most 2 to this power evaluations a step.
        seed: of the first chain; the others count on.
        progress: whether a bar is shown.

    Returns:
        The samples, with their diagnostics.

    Raises:
        ValueError: if a count is too small or the maps are orthogonal.

    Warns:
        ConvergenceWarning: if r-hat or the effective sample size is bad, or transitions diverged.

    Source:
        Hoffman & Gelman (2014), The No-U-Turn Sampler; Vehtari et al. (2021), Rank-normalization, folding, and
        localization, on the diagnostics.
    """
    if num_samples < 4 or num_warmup < 1 or num_chains < 1:
        got = f"{num_samples}, {num_warmup}, {num_chains}"
        raise ValueError(f"num_samples, num_warmup, num_chains: expected at least 4, 1 and 1, got {got}")
    _refuse_orthogonal(model)
    program, chains, divergences = _program(model), [], 0
    for chain in range(num_chains):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + chain)
            start = init_to_value(values=_dispersed(model))
            kernel = NUTS(program, init_strategy=start, max_tree_depth=max_tree_depth, full_mass=True)
            mcmc = MCMC(kernel, num_samples=num_samples, warmup_steps=num_warmup, disable_progbar=not progress)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Pyro's, on tensors made of tensors
                mcmc.run()
        chains.append({name: value.detach() for name, value in mcmc.get_samples().items()})
        divergences += sum(len(found) for found in mcmc.diagnostics()["divergences"].values())
    stacked = {name: torch.stack([chain[name] for chain in chains]) for name in chains[0]}
    return Samples(stacked, diagnose(stacked, divergences))


def fit_svi(
    model: ProcessRegression,
    *,
    num_samples: int = 200,
    num_steps: int = 400,
    learning_rate: float = 0.02,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Samples:
    """Approximate the posterior of the parameters by independent normals of their unconstrained values.

    Much quicker than :func:`sample_nuts`, blind to correlations between parameters, and therefore too sure.

    Args:
        model: exact or sparse, best after a fit; it is not changed.
        num_samples: drawn from the approximation.
        num_steps: of the optimiser.
        learning_rate: of the optimiser.
        seed: of everything random.
        progress: called with step and loss.

    Returns:
        The draws, as one chain.

    Raises:
        ValueError: if a count is below one or the maps are orthogonal.

    Source:
        Kucukelbir et al. (2017), Automatic differentiation variational inference; Pyro's ``TraceMeanField_ELBO``,
        which has the divergence in closed form where it can.
    """
    if num_samples < 1 or num_steps < 1:
        raise ValueError(f"num_samples, num_steps: expected at least 1, got {num_samples}, {num_steps}")
    _refuse_orthogonal(model)
    program = _program(model)
    with torch.random.fork_rng(devices=[]), pyro.get_param_store().scope():
        torch.manual_seed(seed)
        guide = AutoNormal(program, init_loc_fn=init_to_value(values=_values(model)), init_scale=0.1)
        svi = SVI(program, guide, pyro.optim.ClippedAdam({"lr": learning_rate}), TraceMeanField_ELBO())
        for step in range(num_steps):
            loss = svi.step()
            if progress is not None:
                progress(step + 1, loss / len(model.train_targets))
        with torch.no_grad():
            draws = [guide() for _ in range(num_samples)]
    sites = [name for name in draws[0] if name in _values(model)]
    return Samples({name: torch.stack([draw[name] for draw in draws])[None] for name in sites}, None)


def batch_model(model: Model, samples: Mapping[str, Tensor]) -> Model:
    """A copy of the model with one batch member a sample.

    Args:
        model: the model that was sampled.
        samples: by name of prior, ``(S, ...)``.

    Returns:
        In eval mode, with batch shape ``(S,)``: its moments are ``(S, t)``.
    """
    batch = copy.deepcopy(model)
    batch.pyro_load_from_samples({name: value.clone() for name, value in samples.items()})
    return batch.eval()


def _program(model: ProcessRegression) -> Callable[[], None]:
    """The model as a Pyro program: parameters from their priors, data by their marginal likelihood."""
    # One copy whose parameters are plain tensors, set anew at each call: GPyTorch's own sampling copies every time.
    drawn = _with_random_parameters(model)
    sites = list(drawn.named_priors())

    def program() -> None:
        for name, module, prior, closure, assign in sites:
            assign(module, pyro.sample(name, _pyro_prior(prior, closure(module).shape)))
        pyro.factor("evidence", _evidence(drawn))

    return program


def _evidence(model: ProcessRegression) -> Tensor:
    """The log evidence, or minus infinity where a trial step of the sampler left all bounds."""
    try:
        return model.log_evidence()
    except NotPositiveDefiniteError:
        return model.train_targets.new_full((), -math.inf)


def _with_random_parameters(model: Model) -> Model:
    """A copy in which parameters may be replaced by tensors with a history."""
    # GPyTorch's to_pyro_random_module does not look into a ModuleList: what is there would get no gradients.
    drawn = copy.deepcopy(model)
    for module in drawn.modules():
        if isinstance(module, Module) and not isinstance(module, Prior):
            module.__class__ = type(f"_Random{type(module).__name__}", (RandomModuleMixin, type(module)), {})
    return drawn


def _pyro_prior(prior: Prior, shape: torch.Size) -> pyro.distributions.TorchDistribution:
    """Pyro's distribution of the same name: a prior of GPyTorch is one of torch, and not all of them expand."""
    family = getattr(pyro.distributions, type(prior).__name__.removesuffix("Prior"))
    arguments = {name: getattr(prior, name) for name in prior.arg_constraints}
    return family(**arguments).expand(shape).to_event(len(shape))


def _values(model: ProcessRegression) -> dict[str, Tensor]:
    """The values of the parameters that have priors."""
    return {name: closure(module).detach() for name, module, _, closure, _ in model.named_priors()}


def _dispersed(model: ProcessRegression) -> dict[str, Tensor]:
    """The same, spread out in the unconstrained space."""
    values = {}
    for name, module, prior, closure, _ in model.named_priors():
        value = closure(module).detach()
        noise = _DISPERSION * torch.randn_like(value)
        values[name] = value + noise if prior.support is constraints.real else value * noise.exp()
    return values


def _refuse_orthogonal(model: ProcessRegression) -> None:
    if any(isinstance(module, AffineMap) and module.kind == "orthogonal" for module in model.modules()):
        raise ValueError("maps: orthogonal maps have no identifiable prior; sample with 'diagonal' or 'free' maps")
