import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from cgp.regression import CorrelatedGPRegression, SparseCorrelatedGPRegression
from cgp.regression.checks import STRUCTURES
from tests.cgp.regression.data import dense_prior, noise_and_mean, rows, shuffled

COVARIANCES = [{}, {"num_components": 2}, *({"structure": name} for name in STRUCTURES[:-1])]


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
    kernel = model.covar_module.kernels[0]
    stock.likelihood.noise = model.likelihood.noise.detach()
    stock.mean_module.constant = model.mean_module.constants.detach().squeeze()
    stock.covar_module.outputscale = kernel.loadings.scales.detach().square().squeeze()
    stock.covar_module.base_kernel.lengthscale = kernel.input_maps.scales.detach().reciprocal()
    new = rows(6, processes=1, seed=3)[0]
    expected = stock(new[:, :-1])
    torch.testing.assert_close(model(new).mean, expected.mean)
    torch.testing.assert_close(model(new).covariance_matrix, expected.covariance_matrix, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
@pytest.mark.parametrize("sparse", [False, True])
def test_second_derivatives_of_the_mean_are_those_of_finite_differences(kernel, sparse):
    x, y = rows(10, processes=2, dim=1)
    if sparse:
        model = shuffled(SparseCorrelatedGPRegression(x, y, 2, num_inducing=5, kernel=kernel))
    else:
        model = shuffled(CorrelatedGPRegression(x, y, 2, kernel=kernel))
    condition = model.condition()

    def mean(place):
        rows_there = torch.stack([place, torch.ones_like(place)], dim=-1)
        return model.posterior(rows_there, condition).mean

    # At an observation, too: there a clamped distance would lose its second derivative.
    place = torch.cat([x[1:2, 0], torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)]).requires_grad_()
    (first,) = torch.autograd.grad(mean(place).sum(), place, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), place)
    step = 1e-4
    with torch.no_grad():
        around = [mean(place + shift * step) for shift in (-1, 0, 1)]
    torch.testing.assert_close(first.detach(), (around[2] - around[0]) / (2 * step), atol=1e-5, rtol=1e-4)
    expected = (around[0] - 2 * around[1] + around[2]) / step**2
    torch.testing.assert_close(second, expected, atol=2e-3, rtol=2e-3)


def test_stock_likelihood_and_batches_of_rows():
    x, y = rows(12, processes=1)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    model = CorrelatedGPRegression(x, y, likelihood=likelihood).eval()
    own = CorrelatedGPRegression(x, y).eval()
    new = torch.stack([rows(5, processes=1, seed=s)[0] for s in (1, 2, 3)])
    expected = [own.moments(batch, noisy=True) for batch in new]
    torch.testing.assert_close(model.moments(new, noisy=True).variance, torch.stack([one.variance for one in expected]))
    torch.testing.assert_close(model(new).mean, torch.stack([one.mean for one in expected]))
    observed = own.likelihood(own(new))  # one process: the noise needs no rows
    torch.testing.assert_close(observed.variance, model.likelihood(model(new)).variance)


def test_new_training_data_are_predicted_from():
    model, x, y = regression()
    other = regression()[0]
    model(x)
    model.set_train_data(x[:6], y[:6], strict=False)
    fresh = CorrelatedGPRegression(x[:6], y[:6], 3)
    fresh.load_state_dict(other.state_dict())
    torch.testing.assert_close(model(x).mean, fresh.eval()(x).mean)


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
    prior = model.covar_module.kernels[0].loadings.scales[1].detach().square()
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
        (
            torch.zeros(3, 2),
            torch.ones(3, requires_grad=True),
            None,
            "train_targets: expected values without a history",
        ),
    ],
)
def test_refuses_data(inputs, targets, processes, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegression(inputs, targets, processes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_components": 0}, "num_components: expected an integer of at least 1"),
        ({"structure": "free"}, "structure: expected one of .*, got 'free'"),
        ({"kernel": "cosine"}, "kernel: expected a kernel or one of"),
        ({"kernel": gpytorch.kernels.CosineKernel()}, "CosineKernel is not positive semi-definite"),
    ],
)
def test_refuses_covariances(arguments, message):
    x, y = rows()
    with pytest.raises(ValueError, match=message):
        CorrelatedGPRegression(x, y, 3, **arguments)
