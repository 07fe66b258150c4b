import gpytorch
import numpy as np
import pytest
import torch
from linear_operator.operators import LowRankRootLinearOperator

from cgp.kernels import CanonicalInducingKernel, HadamardCorrelatedKernel
from cgp.kernels.canonical_inducing_kernel import CONDITIONALS
from tests.cgp.kernels.conftest import random_kernel
from tests.cgp.kernels.test_hadamard_correlated_kernel import Model, rows

NOISE = 0.2


def problem(num_inducing=6):
    exact = HadamardCorrelatedKernel(random_kernel())
    torch.manual_seed(1)
    return exact, torch.randn(num_inducing, 3).double(), rows(9, 8, 7), rows(3, 2, 2) + torch.tensor([0.3, -0.2, 0.0])


def dense(exact, inducing, left, right=None):
    """K and Q between rows, in numpy."""
    right = left if right is None else right

    def to_inducing(x):
        points = exact.points(x)
        difference = points.inputs.detach().numpy()[:, None] - inducing.numpy()[None]
        return points.scales.detach().numpy()[:, None] * np.exp(-0.5 * np.square(difference).sum(-1))

    difference = inducing.numpy()[:, None] - inducing.numpy()[None]
    K_mm = np.exp(-0.5 * np.square(difference).sum(-1))
    Q = to_inducing(left) @ np.linalg.solve(K_mm, to_inducing(right).T)
    return exact(left, right).to_dense().detach().numpy(), Q


@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_covariance(conditional):
    exact, inducing, x, test = problem()
    kernel = CanonicalInducingKernel(exact, inducing, conditional=conditional)
    K, Q = dense(exact, inducing, x)
    corrected = Q + np.diag(np.diag(K - Q))
    for training in (True, False):
        kernel.train(training)
        keeps = conditional == "fitc" or (conditional == "dtc" and not training)
        expected = corrected if keeps else Q
        np.testing.assert_allclose(kernel(x).to_dense().detach().numpy(), expected, atol=1e-6)
        np.testing.assert_allclose(kernel(x, diag=True).detach().numpy(), np.diag(expected), atol=1e-6)
        cross = kernel(test, x).to_dense().detach().numpy()
        np.testing.assert_allclose(cross, dense(exact, inducing, test, x)[1], atol=1e-6)


def gaussian_process(conditional, exact, inducing, x, y):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return Model(x, y, likelihood, CanonicalInducingKernel(exact, inducing, conditional=conditional)).double()


@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_exact_gp_is_the_textbook_one(conditional):
    """Quiñonero-Candela & Rasmussen (2005), written with n x n matrices."""
    exact, inducing, x, test = problem()
    y = torch.randn(len(x)).double()
    model = gaussian_process(conditional, exact, inducing, x, y)
    (K, Q), (K_test, Q_test) = dense(exact, inducing, x), dense(exact, inducing, test)
    Q_cross = dense(exact, inducing, test, x)[1]
    observed = Q + NOISE * np.eye(len(x)) + (np.diag(np.diag(K - Q)) if conditional == "fitc" else 0)
    log_density = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y) * len(x)
    quadratic = y.numpy() @ np.linalg.solve(observed, y.numpy())
    expected = -0.5 * (quadratic + np.linalg.slogdet(observed)[1] + len(x) * np.log(2 * np.pi))
    np.testing.assert_allclose(log_density.item(), expected, rtol=1e-6)

    model.eval()
    prediction = model(test)
    np.testing.assert_allclose(
        prediction.mean.detach().numpy(), Q_cross @ np.linalg.solve(observed, y.numpy()), atol=1e-5
    )
    prior = Q_test if conditional == "sor" else Q_test + np.diag(np.diag(K_test - Q_test))
    expected = prior - Q_cross @ np.linalg.solve(observed, Q_cross.T)
    np.testing.assert_allclose(prediction.covariance_matrix.detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("conditional", CONDITIONALS)
def test_predicting_at_the_observed_inputs(conditional):
    exact, inducing, x, _ = problem()
    model = gaussian_process(conditional, exact, inducing, x, torch.randn(len(x)).double()).eval()
    with pytest.warns(gpytorch.utils.warnings.GPInputWarning):
        at_data = model(x)
    nearby = model(x + torch.tensor([1e-9, 1e-9, 0.0]))
    torch.testing.assert_close(at_data.mean, nearby.mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(at_data.covariance_matrix, nearby.covariance_matrix, atol=1e-5, rtol=0)


def test_variance_returns_to_the_prior_far_away_unless_sor():
    exact, inducing, x, _ = problem()
    far = torch.tensor([[40.0, 40.0, 0.0], [40.0, -40.0, 2.0]]).double()
    y = torch.randn(len(x)).double()
    prior = exact(far, diag=True)
    variances = {c: gaussian_process(c, exact, inducing, x, y).eval()(far).variance for c in ("dtc", "fitc")}
    for variance in variances.values():
        torch.testing.assert_close(variance, prior)
    assert CanonicalInducingKernel(exact, inducing, conditional="sor")(far, diag=True).max() < 1e-12


def test_inducing_inputs_at_the_data_make_it_exact():
    exact, _, x, _ = problem()
    kernel = CanonicalInducingKernel(exact, exact.points(x).inputs.detach())
    torch.testing.assert_close(kernel(x).to_dense(), exact(x).to_dense(), atol=1e-5, rtol=0)


def test_trains_and_never_builds_the_full_matrix():
    exact, inducing, x, _ = problem()
    y = torch.sin(x[:, 0])
    model = gaussian_process("dtc", exact, inducing, x, y)
    assert isinstance(model.covar_module(x).evaluate_kernel(), LowRankRootLinearOperator)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < losses[0] - 0.1
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)


def test_batches_of_inducing_inputs():
    exact, inducing, x, _ = problem()
    kernel = CanonicalInducingKernel(exact, torch.stack([inducing, inducing + 0.5]))
    both = kernel(x).to_dense()
    for member in range(2):
        single = CanonicalInducingKernel(exact, inducing + 0.5 * member)
        torch.testing.assert_close(both[member], single(x).to_dense())
    kernel(x)[1].to_dense().sum().backward()
    assert kernel.inducing_points.grad[1].abs().sum() > 0 == kernel.inducing_points.grad[0].abs().sum()


def test_refuses():
    exact, inducing, _, _ = problem()
    with pytest.raises(ValueError, match="conditional: expected one of"):
        CanonicalInducingKernel(exact, inducing, conditional="vfe")
    with pytest.raises(ValueError, match="inducing_points: expected"):
        CanonicalInducingKernel(exact, inducing[0])
