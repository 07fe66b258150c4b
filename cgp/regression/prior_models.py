"""Regression models with the parameters of a prior's sets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from gpytorch.kernels import AdditiveKernel, PeriodicKernel
from gpytorch.priors import NormalPrior
from torch import Tensor

from cgp.functional.linalg import cholesky

from .covariance import Loadings, RowKernel
from .forms import Task, choose_form
from .model import RegressionModel
from .prior import LearnedPrior, ParameterSet, period_of

__all__ = ["covariance_of", "model_of", "set_means", "set_outputs", "set_priors"]

_LEAST_SD = 0.5  # of a logarithm under a prior of a fit


def model_of(
    rows: Tensor, targets: Tensor, parameters: ParameterSet, num_processes: int, *, is_delayed: bool
) -> RegressionModel:
    """A model of a set in the cheapest form, its variances and delays not yet estimated."""
    covariance = covariance_of(parameters, num_processes, rows.shape[-1] - 1, is_delayed=is_delayed)
    form = choose_form(Task(covariance, len(rows), len(rows[:, :-1].unique(dim=0))))
    return form.model(rows, targets, num_processes, covar_module=covariance).eval()


def covariance_of(
    parameters: ParameterSet, num_processes: int, input_dim: int, *, is_delayed: bool = False
) -> AdditiveKernel:
    """The covariance of a parameter set for regression, its outputs not yet correlated."""
    structure, components = "shifted" if is_delayed else "coregionalised", []
    for component in parameters.components:
        kernel = _periodic(component.lengthscale) if component.kernel == "periodic" else component.kernel
        loadings = Loadings(num_processes, structure="coregionalised" if component.correlated else "independent")
        row_kernel = RowKernel(kernel, num_processes, input_dim, structure=structure, loadings=loadings).double()
        length = period_of(component) if component.kernel == "periodic" else component.lengthscale * input_dim**0.5
        with torch.no_grad():
            row_kernel.input_maps.log_scales.fill_(-math.log(length))
            row_kernel.loadings.log_scales.fill_(0.5 * math.log(component.share))
        if row_kernel.input_maps.shifts is not None:
            row_kernel.input_maps.shifts.requires_grad_(False)  # the same delays in all components, which are one order
        components.append(row_kernel)
    return AdditiveKernel(*components)


def _periodic(lengthscale: float) -> PeriodicKernel:
    kernel = PeriodicKernel().double()
    kernel.lengthscale, kernel.period_length = (
        torch.tensor(value, dtype=torch.float64)  # GPyTorch rounds numbers to float32
        for value in (lengthscale**2, 1.0)  # GPyTorch's lengthscale is a square
    )
    return kernel


def set_means(model: RegressionModel, level: float) -> None:
    """Set the means of the outputs to their expectations, given their prior variance."""
    Z = torch.nn.functional.one_hot(model.train_inputs[0][:, -1].long(), model.num_processes).double()
    information = Z.mT @ model.solve(torch.cat([Z, model.train_targets[:, None]], dim=-1))
    M = information[:, :-1] + torch.eye(len(Z.mT), dtype=Z.dtype) / level
    L = cholesky(M, name="information of the means")
    model.mean_module.initialize(constants=torch.cholesky_solve(information[:, -1:], L)[:, 0])


def set_outputs(component: RowKernel, outputs: Tensor) -> None:
    """Set the covariance of the outputs ``(P, P)`` in a component."""
    sd = outputs.diagonal().sqrt()
    component.loadings.initialize(log_scales=sd.log())
    if component.loadings.partials is not None:
        component.loadings.set_correlation(outputs / (sd[:, None] * sd))


def set_priors(model: RegressionModel, prior: LearnedPrior) -> None:
    """Replace the normal priors of lengthscales, scales and noise of a model by those of the sets.

    A normal density has the mean and the variance of the logarithms over the sets, and at least the standard deviation
    of a factor of 1.6.
    """
    dimension = model.train_inputs[0].shape[-1] - 1
    pairs = [(each.components[0], each.weight) for each in prior.sets]
    weights = [weight for _, weight in pairs]
    scales = [-math.log(c.lengthscale * dimension**0.5) for c, _ in pairs]
    shares = [0.5 * math.log(c.share) for c, _ in pairs]
    noise = [math.log(value) for value in prior.noises]
    for component in model.covar_module.kernels:
        _set_normal(component.input_maps.log_scales_prior, scales, weights)
        _set_normal(component.loadings.log_scales_prior, shares, weights)
    _set_normal(model.likelihood.noise_covar.log_noise_prior, noise, prior.noise_weights)


def _set_normal(normal: NormalPrior, values: Sequence[float], weights: Sequence[float]) -> None:
    each, share = torch.tensor(values, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    mean = (share * each).sum()
    normal.loc.fill_(mean)
    normal.scale.fill_((share * (each - mean).square()).sum().sqrt().clamp(min=_LEAST_SD))
