"""SGPA as a strategy: its posterior and divergence at finite points, and regression by the ELBO."""

from types import SimpleNamespace

import pytest
import torch
from gpytorch.distributions import MultivariateNormal as GPyTorchNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import PredictiveLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    LMCVariationalStrategy,
    VariationalStrategy,
)
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.variational import DecoupledSGPAVariationalStrategy, SGPAVariationalStrategy
from tests.cgp.helpers import moved

KINDS = {"standard": SGPAVariationalStrategy, "decoupled": DecoupledSGPAVariationalStrategy}
BETA = torch.linspace(-2, 2, 4, dtype=torch.float64)[:, None]
GAMMA = torch.linspace(-1.7, 1.9, 5, dtype=torch.float64)[:, None]
X = torch.tensor([-1.5, -0.2, 0.9], dtype=torch.float64)[:, None]


def make(name, batch_shape=torch.Size()):
    options = {"mean_module": ConstantMean(), "batch_shape": batch_shape}
    kernel = ScaleKernel(MaternKernel(nu=0.5))  # so well conditioned that explicit covariances can be compared
    points = (BETA,) if name == "standard" else (BETA, GAMMA)
    return moved(KINDS[name](kernel, *points, **options).double())


def carriers(strategy):
    points = [strategy.inducing_points]
    return torch.cat([*points, strategy.mean_inducing_points] if hasattr(strategy, "mean_values") else points)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_divergence_is_that_of_its_own_posterior(name, batch_shape):
    strategy = make(name, torch.Size(batch_shape))
    points = carriers(strategy)
    q, p = strategy(points), strategy(points, prior=True)
    explicit = kl_divergence(*(MultivariateNormal(z.mean, z.covariance_matrix) for z in (q, p)))
    assert strategy.kl_divergence().shape == batch_shape
    torch.testing.assert_close(strategy.kl_divergence(), explicit, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
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


def test_standard_sgpa_is_gpytorchs_whitened_strategy():
    """With the mean w = L'v: the same posterior and divergence as of the strategy that natural gradients train."""
    kernel, distribution = RBFKernel().double(), CholeskyVariationalDistribution(4).double()
    ours = moved(SGPAVariationalStrategy(kernel, BETA))
    points, prior = ours.inducing_points.detach(), lambda x: GPyTorchNormal(torch.zeros(len(x)).to(x), kernel(x))
    theirs = VariationalStrategy(SimpleNamespace(forward=prior), points, distribution, jitter_val=1e-8).eval()
    theirs.variational_params_initialized.fill_(1)
    with torch.no_grad():
        L = torch.linalg.cholesky(kernel(points).to_dense() + 1e-8 * torch.eye(4))
        distribution.variational_mean.copy_(L.mT @ ours.values)
        distribution.chol_variational_covar.copy_(ours.root)
        a, b = ours(X), theirs(X)
    torch.testing.assert_close(a.mean, b.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(a.covariance_matrix, b.covariance_matrix, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.kl_divergence(), theirs.kl_divergence(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "m", "lr", "likelihood", "objective"),
    [
        ("standard", 15, 0.01, GaussianLikelihood, PredictiveLogLikelihood),
        ("standard", 10, 0.05, BernoulliLikelihood, VariationalELBO),
        ("decoupled", 15, 0.05, GaussianLikelihood, VariationalELBO),
        ("decoupled", 15, 0.05, BernoulliLikelihood, PredictiveLogLikelihood),
    ],
)
def test_trains_in_float32(name, m, lr, likelihood, objective):
    """K_xx - T'T of inputs that the inducing ones explain is indefinite by rounding; marginals do not factorise it."""
    x = torch.rand(100) * 4 - 2
    y = (2 * x).sin() + 0.1 * torch.randn(100)
    y = (y > 0).float() if likelihood is BernoulliLikelihood else y
    beta, kernel, likelihood = torch.linspace(-2, 2, m), ScaleKernel(RBFKernel()), likelihood()
    points = (beta,) if name == "standard" else (beta, beta + 0.1)
    model = ApproximateGP(KINDS[name](kernel, *points))
    mll = objective(likelihood, model, num_data=100)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=lr)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05
    model.eval()
    posterior = model(torch.linspace(-2, 2, 50))
    assert torch.isfinite(posterior.rsample(torch.Size([3]))).all()
    torch.testing.assert_close(posterior.covariance_matrix.diagonal(), posterior.variance, rtol=0.05, atol=2e-4)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("x_batch", "batch_shape", "points_batch"),
    [((4, 1), (3,), ()), ((4, 1), (3,), (3,)), ((), (), (2,))],
)
def test_batches_broadcast(name, x_batch, batch_shape, points_batch):
    """Each member as by itself."""
    beta, gamma = (torch.randn(*points_batch, m, 7, dtype=torch.float64) for m in (3, 2))
    arguments = (beta,) if name == "standard" else (beta, gamma)
    strategy = moved(KINDS[name](MaternKernel(nu=1.5).double(), *arguments, batch_shape=torch.Size(batch_shape)))
    x = torch.randn(*x_batch, 5, 7, dtype=torch.float64)
    posterior, batch = strategy(x), torch.broadcast_shapes(x_batch, batch_shape, points_batch)
    assert posterior.batch_shape == batch
    assert posterior.covariance_matrix.shape == (*batch, 5, 5)
    assert strategy(x, prior=True).batch_shape == torch.broadcast_shapes(x_batch, batch_shape)
    last = tuple(size - 1 for size in batch)
    member_strategy = KINDS[name](MaternKernel(nu=1.5).double(), *(member(z, 2, last, batch) for z in arguments))
    kept = member_strategy.state_dict()
    member_strategy.load_state_dict(
        {n: member(z, kept[n].dim(), last, batch) for n, z in strategy.state_dict().items()}
    )
    single = member_strategy(member(x, 2, last, batch))
    torch.testing.assert_close(posterior.mean[last], single.mean)
    torch.testing.assert_close(posterior.variance[last], single.variance)
    torch.testing.assert_close(posterior.covariance_matrix[last], single.covariance_matrix)


def member(x, kept, index, batch):
    return x.detach().expand(*batch, *x.shape[x.dim() - kept :])[index]


def test_widths_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"mean_inducing_points: expected points \(\*batch, n, 1\), got .*\(3, 2\)"):
        DecoupledSGPAVariationalStrategy(RBFKernel(), torch.zeros(3, 1), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"x: expected points \(\*batch, n, 1\), got shape \(5, 2\)"):
        SGPAVariationalStrategy(RBFKernel(), torch.zeros(3, 1))(torch.zeros(5, 2))


def test_nan_is_refused():
    points, holed = torch.zeros(3, 1), torch.full((3, 1), torch.nan)
    with pytest.raises(ValueError, match="inducing_points: expected finite numbers, got 3 NaN or infinite of 3"):
        SGPAVariationalStrategy(RBFKernel(), holed)
    with pytest.raises(ValueError, match="mean_inducing_points: expected finite numbers"):
        DecoupledSGPAVariationalStrategy(RBFKernel(), points, holed)
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        SGPAVariationalStrategy(RBFKernel(), points)(holed)


@pytest.mark.parametrize("name", KINDS)
def test_a_root_starts_near_the_identity(name):
    points = (BETA,) if name == "standard" else (BETA, GAMMA)
    root = KINDS[name](RBFKernel(), *points).root
    torch.testing.assert_close(root, torch.eye(root.shape[-1]).to(root), rtol=0, atol=0.01)


@pytest.mark.parametrize("of_tasks", [LMCVariationalStrategy, IndependentMultitaskVariationalStrategy])
def test_tasks_of_gpytorch_are_those_of_a_loop_over_latents(of_tasks):
    kernel = MaternKernel(nu=0.5, batch_shape=torch.Size([3])).double()
    kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1)
    each = moved(SGPAVariationalStrategy(kernel, BETA, batch_shape=torch.Size([3])))
    is_lmc = of_tasks is LMCVariationalStrategy
    strategy = of_tasks(each, num_tasks=2, num_latents=3, jitter_val=0.0) if is_lmc else of_tasks(each, num_tasks=3)
    weights = strategy.double().lmc_coefficients.detach() if is_lmc else torch.eye(3, dtype=torch.float64)
    mean, covariance, divergence = 0.0, 0.0, 0.0
    for latent, weight in enumerate(weights):
        one = SGPAVariationalStrategy(kernel[latent], each.inducing_points.detach())
        one.load_state_dict({"values": each.values[latent], "raw_root": each.raw_root[latent]}, strict=False)
        posterior = one(X)
        mean = mean + posterior.mean[:, None] * weight
        covariance = covariance + torch.kron(posterior.covariance_matrix, weight[:, None] * weight)
        divergence = divergence + one.kl_divergence()
    model = ApproximateGP(strategy)
    torch.testing.assert_close(model(X).mean, mean)
    torch.testing.assert_close(model(X).covariance_matrix, covariance)
    torch.testing.assert_close(strategy.kl_divergence(), divergence)
    strategy.kl_divergence().backward()
    assert each.inducing_points.grad.abs().min() > 0


def test_a_decoupled_strategy_says_that_it_has_no_tasks():
    with pytest.raises(NotImplementedError, match="base_variational_strategy: expected SGPAVariationalStrategy, got"):
        LMCVariationalStrategy(make("decoupled", torch.Size([3])), num_tasks=2, num_latents=3)
