import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.stats import multivariate_normal

import cgp.regression.exact as exact_module
import cgp.regression.sparse as sparse
from cgp.regression import CorrelatedGPRegression, SparseCorrelatedGPRegression
from cgp.regression.inducing import cluster_centres
from tests.cgp.regression.data import dense_prior, noise_and_mean, nystrom, rows, shuffled

COVARIANCES = [{}, {"num_components": 2, "structure": "scaled"}]


def regression(covariance=None, n=15, m=6):
    x, y = rows(n)
    return shuffled(SparseCorrelatedGPRegression(x, y, 3, num_inducing=m, **(covariance or {})))


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_bound_is_the_dense_one(covariance):
    model = regression(covariance)
    x, y = rows(15)
    noise, mean = noise_and_mean(model, x)
    Q = nystrom(model, x, x)
    expected = multivariate_normal(mean, Q + np.diag(noise)).logpdf(y.numpy())
    trace = ((dense_prior(model, x, x).diagonal() - Q.diagonal()) / noise).sum()
    assert float(model.log_evidence().detach()) == pytest.approx(expected - 0.5 * trace, rel=1e-7)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_posterior_is_the_dense_one(covariance):
    model = regression(covariance)
    (x, y), new = rows(15), rows(6, seed=4)[0]
    noise, mean = noise_and_mean(model, x)
    inverse = np.linalg.inv(nystrom(model, x, x) + np.diag(noise))
    cross = nystrom(model, new, x)
    expected_mean = noise_and_mean(model, new)[1] + cross @ inverse @ (y.numpy() - mean)
    expected = dense_prior(model, new, new) - cross @ inverse @ cross.T
    posterior, marginals = model(new), model.moments(new)
    np.testing.assert_allclose(posterior.mean.detach(), expected_mean, atol=1e-7)
    np.testing.assert_allclose(posterior.covariance_matrix.detach(), expected, atol=1e-7)
    np.testing.assert_allclose(marginals.mean.detach(), expected_mean, atol=1e-7)
    np.testing.assert_allclose(marginals.variance.detach(), expected.diagonal(), atol=1e-7)


def test_inducing_inputs_at_the_data_make_it_exact():
    x, y = rows(12)
    model = SparseCorrelatedGPRegression(x, y, 3, num_inducing=12).eval()
    exact = CorrelatedGPRegression(x, y, 3).eval()
    exact.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("features")})
    new = rows(5, seed=3)[0]
    torch.testing.assert_close(model.log_evidence(), exact.log_evidence(), atol=1e-5, rtol=0)
    torch.testing.assert_close(model(new).mean, exact(new).mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(model(new).covariance_matrix, exact(new).covariance_matrix, atol=1e-5, rtol=0)


def test_the_bound_lies_below_the_exact_evidence():
    model = regression()
    exact = CorrelatedGPRegression(*rows(15), 3)
    exact.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("features")})
    assert model.log_evidence() < exact.log_evidence() - 0.1


class StockSparse(gpytorch.models.ExactGP):
    def __init__(self, x, y, inducing):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        self.covar_module = InducingPointKernel(kernel, inducing, self.likelihood)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def stock_pair():
    x, y = rows(25, processes=1)
    model = shuffled(SparseCorrelatedGPRegression(x, y, 1, num_inducing=6))
    kernel = model.covar_module.kernels[0]
    scales = kernel.input_maps.scales.detach()
    stock = StockSparse(x[:, :-1], y, model.inducing_points()[0].inputs.detach() / scales).double()
    stock.likelihood.noise = model.likelihood.noise.detach()
    stock.mean_module.constant = model.mean_module.constants.detach().squeeze()
    stock.covar_module.base_kernel.outputscale = kernel.loadings.scales.detach().square().squeeze()
    stock.covar_module.base_kernel.base_kernel.lengthscale = scales.reciprocal()
    return model, stock


def test_vfe_is_gpytorchs_sgpr():
    model, stock = stock_pair()
    stock.train()
    bound = ExactMarginalLogLikelihood(stock.likelihood, stock)(stock(*stock.train_inputs), stock.train_targets)
    # GPyTorch adds jitter of its own to the inducing covariance: the two agree to that.
    torch.testing.assert_close(model.log_evidence(), bound * 25, atol=2e-3, rtol=0)


def test_predicts_as_gpytorchs_sgpr():
    model, stock = stock_pair()
    new = rows(6, processes=1, seed=3)[0]
    # By default GPyTorch predicts with another covariance of the observations (FITC's) than it was trained with.
    with gpytorch.settings.sgpr_diagonal_correction(False):
        expected = stock.eval()(new[:, :-1]).mean
    torch.testing.assert_close(model(new).mean, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_are_those_of_finite_differences(covariance):
    model = regression(covariance, n=8, m=4)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    start = [dict(model.named_parameters())[name].detach().clone().requires_grad_() for name in names]

    def evidence(*values):
        return torch.func.functional_call(
            _Evidence(model), {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        )

    assert torch.autograd.gradcheck(evidence, start, atol=1e-5)


class _Evidence(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        return self.model.log_evidence()


def evidence_and_gradients(model):
    model.zero_grad()
    value = model.log_evidence()
    value.backward()
    return [value.detach(), *(p.grad for p in model.parameters() if p.requires_grad)]


@pytest.mark.parametrize("stored", [0, 10**9])
def test_chunks_change_nothing(monkeypatch, stored):
    model = regression()
    expected = evidence_and_gradients(model)
    moments = model.moments(rows(15)[0])
    for module in (exact_module, sparse):
        monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(sparse, "_STORED", stored)
    for found, value in zip(evidence_and_gradients(model), expected, strict=True):
        torch.testing.assert_close(found, value)
    torch.testing.assert_close(model.moments(rows(15)[0]), moments)


def test_far_away_the_variance_is_the_priors():
    model = regression()
    far = rows(3, seed=4)[0]
    far[:, :-1] += 100.0
    prior = torch.tensor(dense_prior(model, far, far).diagonal().copy())
    torch.testing.assert_close(model.moments(far).variance, prior)


def test_centres_of_clusters():
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.0, 0.0], [5.0, 5.0], [-5.0, 5.0]], dtype=torch.float64)
    points = truth.repeat(50, 1) + 0.1 * torch.randn(150, 2, generator=generator, dtype=torch.float64)
    found = cluster_centres(points, 3)
    assert torch.cdist(truth, found).min(dim=1).values.max() < 0.1
    many = cluster_centres(torch.randn(9000, 2, generator=generator), 7)
    assert many.shape == (7, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_inducing": 16}, "num_inducing: expected at most 15, the number of distinct rows, got 16"),
        ({"num_inducing": 0}, "num_inducing: expected an integer of at least 1, got 0"),
        ({"num_inducing": 5.5}, "num_inducing: expected an integer of at least 1, got 5.5"),
        ({"num_inducing": "50"}, "num_inducing: expected an integer of at least 1, got '50'"),
        ({"num_inducing": 1, "num_components": 2}, "num_inducing: expected an integer of at least 2"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        SparseCorrelatedGPRegression(*rows(15), 3, **arguments)
