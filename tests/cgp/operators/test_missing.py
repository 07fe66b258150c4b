"""Missing observations: a defect of GPyTorch that rows left out here do not have."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy

from cgp.kernels import Markov, leave_out_missing
from cgp.operators.missing import known_rows
from tests.cgp.kernels.test_markov import Model


def variance_in_a_gap(kernel, holes, context):
    """At the middle of rows that are NaN, or not there."""
    x = torch.linspace(0, 1, 100, dtype=torch.float64)
    y = torch.where((x > 0.3) & (x < 0.6), torch.nan, x.sin())
    seen = torch.ones_like(x, dtype=torch.bool) if holes else ~y.isnan()
    model = Model(x[seen], y[seen], kernel, GaussianLikelihood()).double().eval()
    model.covar_module.initialize(**{_lengthscale(kernel): 0.02})
    model.likelihood.noise = 0.01
    with torch.no_grad(), context():
        return float(model(torch.tensor([[0.45]], dtype=torch.float64)).variance)


def _lengthscale(kernel):
    return "base_kernel.lengthscale" if isinstance(kernel, Markov) else "lengthscale"


@pytest.mark.parametrize("policy", ["mask", "fill"])
@pytest.mark.filterwarnings("ignore:Observation NaN policy")
def test_gpytorch_masks_means_and_not_variances(policy):
    """It fails on the day that it is mended there: then docs/notes/gpytorch-missing.md may go."""
    masked, left_out = (
        variance_in_a_gap(gpytorch.kernels.RBFKernel(), holes, lambda: gpytorch.settings.observation_nan_policy(policy))
        for holes in (True, False)
    )
    assert left_out > 0.99
    assert masked < 0.02, f"GPyTorch {gpytorch.__version__} leaves missing rows out of the variance now"


def test_rows_left_out_have_their_variance():
    gaps, left_out = (
        variance_in_a_gap(Markov(gpytorch.kernels.MaternKernel(nu=2.5)), holes, leave_out_missing)
        for holes in (True, False)
    )
    assert gaps == pytest.approx(left_out, rel=1e-10)
    assert gaps > 0.99


def test_a_model_without_a_markov_kernel_is_refused():
    """Its variances in the gap would be those of a model that has observed it."""
    kernel = gpytorch.kernels.MaternKernel(nu=2.5)
    with pytest.raises(ValueError, match=r"leave_out_missing: expected a model whose kernel is Markov\(\.\.\.\)"):
        variance_in_a_gap(kernel, True, leave_out_missing)
    assert variance_in_a_gap(kernel, False, nullcontext) > 0.99
    assert variance_in_a_gap(kernel, False, leave_out_missing) > 0.99  # of the rows that were observed
    with leave_out_missing(), ThreadPoolExecutor(1) as other:  # what others compute meanwhile is GPyTorch's
        assert other.submit(variance_in_a_gap, kernel, True, nullcontext).result() < 0.02
    assert DefaultPredictionStrategy.exact_prediction.__module__.startswith("gpytorch")


def test_context_ends():
    values = torch.tensor([0.0, torch.nan])
    with leave_out_missing():
        assert known_rows(values).tolist() == [True, False]
    with pytest.raises(ValueError, match="targets: expected numbers, got 1 NaN of 2"):
        known_rows(values)
