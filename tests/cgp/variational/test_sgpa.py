"""SGPA as a strategy: its posterior and divergence at finite points, and regression by the ELBO."""

from __future__ import annotations

import pytest
import torch
from gpytorch.distributions import MultivariateNormal as GPyTorchNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.variational import DecoupledSGPAVariationalStrategy, SGPAVariationalStrategy

BETA = torch.linspace(-2, 2, 4, dtype=torch.float64)[:, None]
GAMMA = torch.linspace(-1.7, 1.9, 5, dtype=torch.float64)[:, None]
X = torch.tensor([-1.5, -0.2, 0.9], dtype=torch.float64)[:, None]


def make(name, batch_shape=torch.Size()):
    options = {"mean_module": ConstantMean(), "batch_shape": batch_shape}
    kernel = ScaleKernel(MaternKernel(nu=0.5))  # so well conditioned that explicit covariances can be compared
    if name == "standard":
        strategy = SGPAVariationalStrategy(kernel, BETA, **options)
    else:
        strategy = DecoupledSGPAVariationalStrategy(kernel, BETA, GAMMA, **options)
    with torch.no_grad():
        for parameter in strategy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape).to(parameter))
    return strategy.double()


def carriers(strategy):
    points = [strategy.inducing_points]
    return torch.cat([*points, strategy.mean_inducing_points] if hasattr(strategy, "mean_values") else points)


@pytest.mark.parametrize("name", ["standard", "decoupled"])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_divergence_is_that_of_its_own_posterior(name, batch_shape):
    strategy = make(name, torch.Size(batch_shape))
    points = carriers(strategy)
    q, p = strategy(points), strategy(points, prior=True)
    explicit = kl_divergence(
        MultivariateNormal(q.mean, q.covariance_matrix), MultivariateNormal(p.mean, p.covariance_matrix)
    )
    assert strategy.kl_divergence().shape == batch_shape
    torch.testing.assert_close(strategy.kl_divergence(), explicit, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["standard", "decoupled"])
def test_posterior_is_the_papers(name):
    strategy = make(name)
    k, beta = strategy.covar_module, strategy.inducing_points
    K_bb, K_xb, K_xx = (k(a, b).to_dense() for a, b in ((beta, beta), (X, beta), (X, X)))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(K_bb))
    L = torch.linalg.cholesky(K_bb)
    S = L @ strategy.root @ strategy.root.mT @ L.mT
    mean = K_xb @ strategy.values
    if name == "decoupled":
        gamma, v = strategy.mean_inducing_points, strategy.mean_values
        mean = mean + (k(X, gamma).to_dense() - K_xb @ inverse @ k(beta, gamma).to_dense()) @ v
    covariance = K_xx + K_xb @ (inverse @ S @ inverse - inverse) @ K_xb.mT
    posterior = strategy(X)
    torch.testing.assert_close(posterior.mean, strategy.mean_module(X) + mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(posterior.covariance_matrix, covariance, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(posterior.variance, covariance.diagonal(), rtol=1e-5, atol=1e-6)


class ExactRegression(ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.covar_module = kernel

    def forward(self, x):
        return GPyTorchNormal(torch.zeros(x.shape[:-1]).to(x), self.covar_module(x))


@pytest.mark.parametrize("name", ["standard", "decoupled"])
def test_trains_alone_towards_the_exact_posterior(name):
    """With inducing inputs enough and hyperparameters held, the best SGPA is exact regression."""
    x = torch.linspace(-2, 2, 25, dtype=torch.float64)[:, None]
    y = (2 * x[:, 0]).sin() + 0.1 * torch.randn(25, dtype=torch.float64)
    kernel, likelihood = RBFKernel().double(), GaussianLikelihood().double()
    likelihood.noise = 0.05
    beta = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    if name == "standard":
        strategy = SGPAVariationalStrategy(kernel, beta)
    else:
        strategy = DecoupledSGPAVariationalStrategy(kernel, beta[::2], beta + 0.1)
    model = ApproximateGP(strategy)
    mll = VariationalELBO(likelihood, model, num_data=25)
    held = {id(p) for p in (*kernel.parameters(), *likelihood.parameters())}
    free = [p for p in model.parameters() if id(p) not in held]
    optimiser = torch.optim.LBFGS(free, max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        return loss.detach()

    before = float(closure())
    for _ in range(4):
        optimiser.step(closure)
    assert float(closure()) < before - 1.0
    with torch.no_grad():
        exact = ExactRegression(x, y, likelihood, kernel).eval()(x)
        fitted = model.eval()(x)
    assert (fitted.mean - exact.mean).abs().max() < 0.05
    if name == "standard":
        assert (fitted.variance / exact.variance).log().abs().max() < 0.2


def test_every_parameter_gets_a_gradient():
    model = ApproximateGP(make("decoupled"))
    likelihood = GaussianLikelihood().double()
    loss = -VariationalELBO(likelihood, model, num_data=3)(model(X), X[:, 0])
    loss.backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def test_bad_points_are_refused():
    with pytest.raises(ValueError, match=r"inducing_points: expected \(m, D\)"):
        SGPAVariationalStrategy(RBFKernel(), torch.zeros(3))
    with pytest.raises(ValueError, match=r"mean_inducing_points: expected \(l, 1\)"):
        DecoupledSGPAVariationalStrategy(RBFKernel(), torch.zeros(3, 1), torch.zeros(3, 2))
