"""Which kernels are Markov processes: one place, by GPyTorch's classes, their subclasses, and a stranger's method."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from cgp.kernels import HasMarkovForm, markov_form
from cgp.kernels.markov_forms import markov_obstacle, markov_processes
from cgp.regression import CorrelatedGPRegression, SeriesCorrelatedGPRegression, correlated_covariance
from cgp.statespace.kernels import Steps
from tests.cgp.kernels.test_markov import Exponential, OwnMatern, Squared


def test_a_strangers_kernel_is_a_regressors_series():
    """One class with one method beside its dense covariance, and no other file."""
    generator = torch.Generator().manual_seed(0)
    x = 5.0 * torch.rand(30, 1, generator=generator, dtype=torch.float64)
    rows = torch.cat([x, torch.arange(30)[:, None] % 2.0], dim=-1)
    targets, new = x[:, 0].sin(), torch.tensor([[0.3, 0.0], [2.0, 1.0], [7.0, 1.0]], dtype=torch.float64)
    models = [
        kind(
            rows, targets, 2, covar_module=correlated_covariance(2, 1, kernel=Exponential(), structure="coregionalised")
        )
        for kind in (CorrelatedGPRegression, SeriesCorrelatedGPRegression)
    ]
    dense, linear = (model.double().eval() for model in models)
    torch.testing.assert_close(linear.log_evidence(), dense.log_evidence(), rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(linear.moments(new), dense.moments(new), rtol=1e-9, atol=1e-9)


def test_what_is_recognised():
    assert isinstance(Exponential(), HasMarkovForm)
    assert not isinstance(MaternKernel(), HasMarkovForm)
    assert markov_obstacle(ScaleKernel(OwnMatern(nu=1.5)) + Exponential()) is None
    assert "Squared has a forward of its own" in markov_obstacle(Squared())
    assert "batch dimensions" in markov_obstacle(MaternKernel(batch_shape=torch.Size([2])))
    assert markov_obstacle(MaternKernel(batch_shape=torch.Size([2])), batch=True) is None
    assert "chosen inputs" in markov_obstacle(MaternKernel(active_dims=[1]))
    assert markov_obstacle(MaternKernel(active_dims=[1]), 1) is None
    with pytest.raises(ValueError, match="kernel: RBFKernel is not one of"):
        markov_form(RBFKernel())


def test_processes_have_gradients_by_the_parameters():
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    steps = Steps(torch.tensor([0.1, 0.5], dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    (process,) = markov_processes(kernel, steps)
    slopes = torch.autograd.grad(process.noise.sum(), list(kernel.parameters()))
    assert all(slope.abs() > 0 for slope in slopes)
