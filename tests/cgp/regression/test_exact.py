import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from cgp.regression import CorrelatedGPRegression
from tests.cgp.regression.data import dense_prior, noise_and_mean, rows, shuffled

COVARIANCES = [
    {},
    {"maps": "free"},
    {"maps": "free", "canonical_dim": 1},
    {"maps": "orthogonal", "canonical_dim": 1},
    {"num_components": 2, "signs": [1, -1, 1]},
    {"embedding_dim": 1, "shift": False},
]


def regression(covariance=None, n=12):
    x, y = rows(n)
    return shuffled(CorrelatedGPRegression(x, y, 3, **(covariance or {}))), x, y


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_evidence_is_the_dense_density(covariance):
    model, x, y = regression(covariance)
    noise, mean = noise_and_mean(model, x)
    expected = multivariate_normal(mean, dense_prior(model, x, x) + np.diag(noise)).logpdf(y.numpy())
    assert float(model.log_evidence().detach()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_posterior_is_the_dense_conditional(covariance):
    model, x, y = regression(covariance)
    new = rows(7, seed=5)[0]
    noise, mean = noise_and_mean(model, x)
    inverse = np.linalg.inv(dense_prior(model, x, x) + np.diag(noise))
    cross = dense_prior(model, new, x)
    new_noise, new_mean = noise_and_mean(model, new)
    expected_mean = new_mean + cross @ inverse @ (y.numpy() - mean)
    expected = dense_prior(model, new, new) - cross @ inverse @ cross.T
    posterior, noisy = model(new), model.moments(new, noisy=True)
    np.testing.assert_allclose(posterior.mean.detach(), expected_mean, atol=1e-9)
    np.testing.assert_allclose(posterior.covariance_matrix.detach(), expected, atol=1e-9)
    np.testing.assert_allclose(noisy.mean.detach(), expected_mean, atol=1e-9)
    np.testing.assert_allclose(noisy.variance.detach(), expected.diagonal() + new_noise, atol=1e-9)
    observed = model.likelihood(posterior, new).covariance_matrix.detach()
    np.testing.assert_allclose(observed, expected + np.diag(new_noise), atol=1e-9)


def test_objective_is_gpytorchs():
    model, x, y = regression()
    model.train()
    objective = ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y, x)
    torch.testing.assert_close(objective * len(y), model.log_evidence() + model.log_prior())


class Stock(gpytorch.models.ExactGP):
    def __init__(self, x, y):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_one_process_is_gpytorchs_exact_gp():
    x, y = rows(20, processes=1)
    model = shuffled(CorrelatedGPRegression(x, y))
    stock = Stock(x[:, :-1], y).double().eval()
    kernel = model.sum_kernel.kernels[0].correlated
    stock.likelihood.noise = model.likelihood.noise.detach()
    stock.mean_module.constant = model.mean_module.constants.detach().squeeze()
    stock.covar_module.outputscale = kernel.scales.detach().square().squeeze()
    stock.covar_module.base_kernel.lengthscale = kernel.input_maps[0].linear.scales.detach().reciprocal()
    new = rows(6, processes=1, seed=3)[0]
    expected = stock(new[:, :-1])
    torch.testing.assert_close(model(new).mean, expected.mean)
    torch.testing.assert_close(model(new).covariance_matrix, expected.covariance_matrix, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_are_those_of_finite_differences(covariance):
    model, _, _ = regression(covariance, n=6)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    start = [dict(model.named_parameters())[name].detach().clone().requires_grad_() for name in names]

    def evidence(*values):
        renamed = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(_Evidence(model), renamed)

    assert torch.autograd.gradcheck(evidence, start, atol=1e-6)


class _Evidence(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        return self.model.log_evidence()


def test_every_parameter_has_a_gradient():
    model, _, _ = regression({"num_components": 2})
    (model.log_evidence() + model.log_prior()).backward()
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.abs().sum() > 0)
    ]
    assert not missing


@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order):
    model, x, y = regression()
    again, _, _ = regression()
    again.set_train_data(x[list(order)], y[list(order)])
    new = rows(4, seed=9)[0]
    torch.testing.assert_close(model(new).mean, again(new).mean)


def test_an_observation_of_one_process_informs_the_others():
    model, x, _ = regression()
    new = x.clone()
    new[:, -1] = (new[:, -1] + 1) % 3
    prior = torch.tensor(dense_prior(model, new, new).diagonal().copy())
    assert (model.moments(new).variance < prior - 1e-3).all()


def test_a_process_that_was_never_observed_is_predicted_from_the_others():
    x, y = rows(10, processes=1)
    model = shuffled(CorrelatedGPRegression(x, y, 2))
    new = x[:3].clone()
    new[:, -1] = 1
    far = new.clone()
    far[:, :-1] += 100.0
    prior = model.sum_kernel.kernels[0].correlated.scales[1].detach().square()
    assert (model.moments(new).variance < prior - 1e-3).all()
    torch.testing.assert_close(model.moments(far).variance, prior.expand(3))


def test_exact_above_gpytorchs_threshold():
    x, y = rows(900, processes=2)
    model = CorrelatedGPRegression(x, y).eval()
    noise, mean = noise_and_mean(model, x)
    weights = np.linalg.solve(dense_prior(model, x, x) + np.diag(noise), y.numpy() - mean)
    new = rows(5, processes=2, seed=2)[0]
    np.testing.assert_allclose(model(new).mean.detach(), dense_prior(model, new, x) @ weights, atol=1e-8)


def test_repeated_inputs_average():
    x = torch.tensor([[0.3, 0.0]] * 4, dtype=torch.float64)
    y = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    model = CorrelatedGPRegression(x, y).eval()
    noise = float(model.likelihood.noise[0].detach())
    assert float(model(x[:1]).mean.detach()) == pytest.approx(2.5 / (1 + noise / 4))


@pytest.mark.parametrize(
    ("inputs", "targets", "processes", "message"),
    [
        (torch.ones(3), torch.ones(3), None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(3, 1), torch.ones(3), None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(0, 2), torch.ones(0), None, r"train_inputs: expected \(n, d \+ 1\)"),
        (torch.ones(3, 2), torch.ones(2), None, r"train_targets: expected shape \(3,\), got \(2,\)"),
        (torch.full((3, 2), torch.nan), torch.ones(3), None, "train_inputs: expected finite values, got 6"),
        (torch.ones(3, 2), torch.full((3,), torch.inf), None, "train_targets: expected finite values, got 3"),
        (torch.ones(3, 2, dtype=torch.long), torch.ones(3), None, "train_inputs: expected float32 or float64"),
        (torch.ones(3, 2), torch.ones(3), 1, "expected processes 0 to 0 in the last column, got 1"),
        (torch.ones(3, 2) * 0.5, torch.ones(3), 2, "expected processes 0 to 1 in the last column, got 0.5"),
        (-torch.ones(3, 2), torch.ones(3), None, "num_processes: expected at least 1, got 0"),
    ],
)
def test_refuses_data(inputs, targets, processes, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegression(inputs, targets, processes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"maps": "linear"}, "maps: expected one of"),
        ({"canonical_dim": 3, "maps": "free"}, "canonical_dim: expected 1 to input_dim = 2, got 3"),
        ({"canonical_dim": 1}, "a diagonal map keeps the 2 input dimensions"),
        ({"embedding_dim": -1}, "embedding_dim: expected at least 0"),
        ({"num_components": 0}, "num_components: expected at least 1"),
        ({"signs": [1, 1]}, "signs: expected one for each of 3 processes, got 2"),
        ({"signs": [1, 0, 1]}, r"signs: expected \+1 and -1 only"),
        ({"kernel": "cosine"}, "base_kernel: expected a kernel or one of"),
        ({"kernel": gpytorch.kernels.CosineKernel()}, "CosineKernel is not positive semi-definite"),
    ],
)
def test_refuses_covariances(arguments, message):
    x, y = rows()
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegression(x, y, 3, **arguments)
