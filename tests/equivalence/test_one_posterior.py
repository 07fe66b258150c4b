"""Blocks, GPyTorch models with correlated kernels, strategies and regressors are one posterior."""

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import ExactGP

from cgp import CGPAttention, SparseCGPAttention
from cgp.kernels import AffineMap, CorrelatedKernel, HadamardCorrelatedKernel
from cgp.regression import CorrelatedGPRegression
from cgp.variational import DTCVariationalStrategy

NOISE, HEAD = 0.05, 1


class Regression(ExactGP):
    """Zero mean and a given kernel."""

    def __init__(self, x, y, kernel, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def make_likelihood():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return likelihood


def kernel_of(block):
    """The processes of queries and keys of one head, with the projections of the block as their maps."""
    size, maps = block.head_dim, []
    for process in (0, 1):
        rows = slice(process * block.embed_dim + HEAD * size, process * block.embed_dim + (HEAD + 1) * size)
        input_map = AffineMap(block.embed_dim, size).double()
        input_map.weight = block.in_proj.weight[rows].detach()
        input_map.bias.data.copy_(block.in_proj.bias[rows])
        maps.append(input_map)
    return HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, input_maps=maps).double())


def rows(x, process):
    return torch.cat([x, torch.full_like(x[:, :1], process)], -1)


@pytest.fixture
def tokens():
    return torch.randn(6, 8, dtype=torch.float64)


def unit(posterior):
    return getattr(posterior, "bracket", posterior)


def block_of(make, mean, **options):
    """A block of a process of unit variance."""
    block = make(8, 2, mean=mean, noise=NOISE, **options).double().eval()
    if mean == "kernel":
        block.log_amplitude = None
    return block


@pytest.mark.parametrize("mean", ["regression", "kernel"])
def test_exact_block_correlated_kernel_and_regressor_agree(tokens, mean):
    block = block_of(CGPAttention, mean)
    torch.nn.init.normal_(block.in_proj.bias, std=0.3)
    projected, posterior = block.project(tokens), block.posterior(tokens)
    q, k, v = (x[HEAD].detach() for x in (projected.q, projected.k, projected.v))
    targets = unit(block.gaussian(projected)).keys.targets[HEAD].detach()
    torch.testing.assert_close(targets, v if mean == "regression" else gram(k, k) @ v + NOISE * v)

    for column in range(4):
        y = targets[:, column].clone()
        model = Regression(rows(tokens, 1), y, kernel_of(block), make_likelihood()).double().eval()
        regressor = CorrelatedGPRegression(rows(k, 0), y, 1).eval()
        with torch.no_grad():
            for parameter in regressor.parameters():
                parameter.masked_fill_(torch.tensor(parameter.requires_grad), 0.0)  # unit scales, zero mean
        regressor.likelihood.initialize(noise=NOISE)
        with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
            result = model(rows(tokens, 0)), regressor.posterior(rows(q, 0))
        for other in result:
            torch.testing.assert_close(posterior.mean[HEAD, column], other.mean, rtol=1e-6, atol=1e-6)
            covariance = posterior.covariance_matrix[HEAD, column]
            torch.testing.assert_close(covariance, other.covariance_matrix, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mean", ["regression", "kernel"])
def test_sparse_block_and_strategy_agree(tokens, mean):
    block = block_of(SparseCGPAttention, mean, num_inducing=4)
    projected, posterior = block.project(tokens), block.posterior(tokens)
    targets = unit(block.gaussian(projected)).targets[HEAD].detach()
    points = block.inducing_points[HEAD].detach()
    for column in range(4):
        options = rows(tokens, 1), targets[:, column].clone(), make_likelihood()
        strategy = DTCVariationalStrategy(kernel_of(block), points, *options).double()
        other = strategy(rows(tokens, 0))
        torch.testing.assert_close(posterior.mean[HEAD, column], other.mean, rtol=1e-6, atol=1e-6)
        covariance = posterior.covariance_matrix[HEAD, column]
        torch.testing.assert_close(covariance, other.covariance_matrix, rtol=1e-6, atol=1e-6)


def gram(a, b):
    return torch.exp(-0.5 * torch.cdist(a, b).square())


@pytest.mark.parametrize(
    ("coupling", "mean"), [("direct", "kernel"), ("direct", "regression"), ("latent", "regression")]
)
def test_sparse_marginal_objective_is_the_density_of_its_generative_model(tokens, coupling, mean):
    """Evidence of DTC, by GPyTorch's low-rank operator, on the keys' targets and the outputs, over the amplitude."""
    options = {"coupling": coupling, "mean": mean, "approximation": "sor", "noise": NOISE, "objective": "marginal"}
    amplitude = 1.7 if mean == "regression" else 1.0
    block = SparseCGPAttention(8, 1, num_inducing=4, amplitude=None if mean == "kernel" else amplitude, **options)
    block = block.double()
    projected = block.project(tokens)
    block.sampling = "mean"
    block(tokens)
    value = -block._added_loss_terms["log_density"].loss() * (6 * 8)  # it is per token and column
    S = block.inducing_points[0]
    L = torch.linalg.cholesky(gram(S, S))

    def evidence(z, y):
        A = torch.linalg.solve_triangular(L, gram(S, z), upper=False)
        prior = MultivariateNormal(torch.zeros(6).double(), A.T @ A + NOISE * torch.eye(6))
        return sum(prior.log_prob(column) for column in y.T)

    q, k, v = projected.q[0], projected.k[0], projected.v[0]
    A_k = torch.linalg.solve_triangular(L, gram(S, k), upper=False)
    targets = v if mean == "regression" else A_k.T @ (A_k @ v) + NOISE * v
    outputs = block.mean_heads(projected)[0]
    expected = evidence(q, outputs / amplitude) + evidence(k, targets / amplitude)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
