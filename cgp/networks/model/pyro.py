"""The transformer as a Pyro program: global inducing variables as sample sites, trained by stochastic inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from cgp.extras import needs_extra
from cgp.networks.model.blocks import added_losses, clear_added_losses
from cgp.networks.model.objective import Objective
from cgp.variational import InducingVariables

with needs_extra("bayesian", "cgp.networks.model.pyro"):
    import pyro
    import pyro.distributions as dist
    from pyro import poutine

__all__ = ["PyroProgram", "to_pyro"]

_NO_SPREAD = -1e4  # its softplus is exactly zero


class PyroProgram(NamedTuple):
    """A model and its guide, both called with inputs and targets.

    Attributes:
        model: the joint distribution of global inducing variables and targets.
        guide: the variational distribution of the global inducing variables.
    """

    model: Callable[..., None]
    guide: Callable[..., None]


def to_pyro(objective: Objective) -> PyroProgram:
    r"""The model of an objective as a Pyro program for ``SVI`` with ``TraceMeanField_ELBO``.

    The global inducing variables u of every block (SGPA's decoupled form, KEP-SVGP) become a sample site, drawn once
    per step for the whole batch; given u, the blocks draw the function as usual. The loss is N times the objective's,
    equal in expectation if the blocks draw jointly:

    .. math:: -\mathbb{E}_{q(u)}\Big[\frac{N}{B}\sum_b \log p(y_b \mid f_b(u))\Big] + \beta\,\mathrm{KL}[q(u)\|p(u)]
        + N\,(\text{per-sequence terms})

    Args:
        objective: objective with the model, likelihood, size N of the data set and weights. The program uses its
            parameters, which SVI trains in place.

    Returns:
        Model and guide, called as ``(inputs, targets, **model_options)``.

    Raises:
        ValueError: if no block has global inducing variables.

    Example:
        >>> from torch import nn
        >>> from cgp import CategoricalLikelihood, SGPAttention
        >>> network = nn.Sequential(SGPAttention(8, 2, num_inducing=4), nn.Flatten(), nn.Linear(40, 3))
        >>> program = to_pyro(Objective(network, CategoricalLikelihood(3), num_data=100))
        >>> svi = pyro.infer.SVI(*program, pyro.optim.Adam({"lr": 0.01}), pyro.infer.TraceMeanField_ELBO())
        >>> loss = svi.step(torch.zeros(4, 5, 8), torch.zeros(4, dtype=torch.long))
    """
    sites = [(name, m) for name, m in objective.model.named_modules() if isinstance(m, InducingVariables)]
    if not sites:
        raise ValueError("objective: expected a model with global inducing variables (SGPA, KEP-SVGP), got one without")

    def model(inputs: Any, targets: Tensor, **options: Any) -> None:
        pyro.module("objective", objective)
        replaced: dict[str, Tensor] = {}
        for name, variables in sites:
            like = variables.variational_mean
            # With scale_tril, as in the guide: Pyro's closed-form divergence needs two of the same type.
            prior = dist.MultivariateNormal(torch.zeros_like(like), scale_tril=torch.diag_embed(torch.ones_like(like)))
            with poutine.scale(scale=objective.beta):
                u = pyro.sample(name, prior.to_event(like.dim() - 1))
            replaced[f"{name}.variational_mean"] = u
            replaced[f"{name}.raw_root"] = torch.diag_embed(torch.full_like(u, _NO_SPREAD))
        clear_added_losses(objective.model)
        function = functional_call(objective.model, replaced, (inputs,), options)
        log_likelihood = objective.likelihood.expected_log_prob(targets, function).mean()
        weights: dict[str, Tensor | float] = {"log_density": objective.alpha, "kl": objective.beta, "ksvd": 1.0}
        pyro.factor("log_likelihood", objective.num_data * log_likelihood)
        for kind, value in added_losses(objective.model).items():
            pyro.factor(kind, -objective.num_data * (weights[kind] * value))
        clear_added_losses(objective.model)

    def guide(*_inputs: Any, **_options: Any) -> None:
        pyro.module("objective", objective)
        for name, variables in sites:
            mean, root = variables.variational_mean, variables.root
            posterior = dist.MultivariateNormal(mean, scale_tril=root).to_event(mean.dim() - 1)
            with poutine.scale(scale=objective.beta):
                pyro.sample(name, posterior)

    return PyroProgram(model, guide)
