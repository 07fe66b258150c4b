"""Tables with gaps beside the other libraries whose model is the same: BoTorch, GPyTorch and statsmodels, to 1e-8."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import IndexKernel, MaternKernel

from cgp.regression import CorrelatedGPRegression, SeriesCorrelatedGPRegression, correlated_covariance
from tests.cgp.regression.data import shuffled

pytestmark = pytest.mark.filterwarnings("ignore")

P, TIMES = 3, torch.arange(40, dtype=torch.float64) * 0.3


def gappy():
    """A table with single values, a stretch and two whole rows missing, ``(T, P)``."""
    table = torch.randn(len(TIMES), P, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(0)
    table[torch.rand(table.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = torch.nan
    table[8:20, 1] = torch.nan
    table[25:27] = torch.nan
    return table


def every_row():
    return torch.cartesian_prod(TIMES, torch.arange(P, dtype=torch.float64))


def ours(model=CorrelatedGPRegression, kernel="matern32", noise=(0.1, 0.2, 0.4), **options):
    """A zero-mean model of the table, its parameters away from their start, and its answers at all cells."""
    values, rows = gappy().flatten(), every_row()
    known = ~values.isnan()
    covariance = correlated_covariance(P, 1, kernel=kernel, **options).double()
    fitted = shuffled(model(rows[known], values[known], P, covar_module=covariance))
    with torch.no_grad():
        fitted.mean_module.constants.zero_()
        fitted.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        return fitted, (fitted.log_evidence(), *fitted.moments(rows, noisy=False))


def task_kernel(component):
    """Outputs' covariance of a component as GPyTorch's kernel of tasks, and its kernel of times."""
    tasks, times = IndexKernel(num_tasks=P, rank=P).double(), MaternKernel(nu=1.5).double()
    tasks.covar_factor.data, tasks.raw_var.data = component.loadings().detach(), torch.full((P,), -80.0).double()
    times.lengthscale = component.input_maps.scales.detach().reciprocal()
    return tasks, times


def assert_same(mine, theirs):
    for own, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-8)


def exactly():
    """GPyTorch's settings of factors in place of iterations."""
    return gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)


def test_gpytorch_multitask():
    """Its kernel of tasks times one of inputs, in Hadamard form, with a noise for each task."""
    model, answers = ours(structure="coregionalised")
    (component,) = model.covar_module.kernels
    tasks, times = task_kernel(component)
    values, rows = gappy().flatten(), every_row()
    known = ~values.isnan()
    noise = model.likelihood.noise.detach()[rows[known][:, 1].long()]

    class Tasks(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(rows[known], values[known], gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise))

        def forward(self, x):
            covariance = times(x[:, :1]).mul(tasks(x[:, 1:].long()))
            return gpytorch.distributions.MultivariateNormal(x.new_zeros(len(x)), covariance)

    theirs = Tasks()
    with torch.no_grad(), exactly(), gpytorch.settings.fast_pred_var(False):
        evidence = theirs.likelihood(theirs.train()(rows[known])).log_prob(values[known])
        predicted = theirs.eval()(rows)
        assert_same(answers, (evidence, predicted.mean, predicted.variance))


def test_botorch_latent_kronecker():
    """Its product of two covariances with gaps, one noise for all."""
    lkgp = pytest.importorskip("botorch.models.latent_kronecker_gp")
    model, answers = ours(structure="coregionalised", noise=(0.2, 0.2, 0.2))
    (component,) = model.covar_module.kernels
    tasks, times = task_kernel(component)
    numbers = torch.arange(P, dtype=torch.float64)[:, None]
    options = {"covar_module_X": times, "covar_module_T": tasks, "outcome_transform": None}
    theirs = lkgp.LatentKroneckerGP(TIMES[:, None], numbers, gappy(), **options)
    theirs.likelihood.noise = 0.2
    with torch.no_grad(), exactly():
        evidence = theirs.likelihood(theirs.train()(*theirs.train_inputs)).log_prob(theirs.train_targets)
        posterior = theirs.eval().posterior(TIMES[:, None], numbers)
        assert_same(answers, (evidence, posterior.mean.flatten(), posterior.variance.flatten()))


@pytest.mark.parametrize("options", [{"structure": "coregionalised", "num_components": 2}, {"structure": "shared"}])
def test_statsmodels_states(options):
    """Ornstein-Uhlenbeck processes, own and shared ones on two time scales, as its state space with NaN."""
    smoother = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother").KalmanSmoother
    model, answers = ours(SeriesCorrelatedGPRegression, "matern12", **options)
    components = list(model.covar_module.kernels)
    loadings = [component.loadings().detach().numpy() for component in components]
    decay = [np.exp(-0.3 * float(component.input_maps.scales.detach())) for component in components]
    persistence = np.repeat(decay, [each.shape[1] for each in loadings])
    theirs = smoother(P, len(persistence))
    theirs["design"], theirs["transition"] = np.hstack(loadings), np.diag(persistence)
    theirs["selection"], theirs["state_cov"] = np.eye(len(persistence)), np.diag(1.0 - persistence**2)
    theirs["obs_cov"] = np.diag(model.likelihood.noise.detach().numpy())
    theirs.bind(gappy().numpy())
    theirs.initialize_known(np.zeros(len(persistence)), np.eye(len(persistence)))
    smoothed, design = theirs.smooth(), theirs["design"]
    variance = np.einsum("ps,sut,pu->tp", design, smoothed.smoothed_state_cov, design)
    mean = (design @ smoothed.smoothed_state).T
    assert_same(answers, (smoothed.llf_obs.sum(), mean.ravel(), variance.ravel()))
