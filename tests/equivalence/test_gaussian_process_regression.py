"""Attention that is known regression: the posteriors against GPyTorch's exact Gaussian process."""

import pytest
import torch
from gpytorch.distributions import MultivariateNormal

from cgp import CGPAttention, SparseCGPAttention

NOISE = 0.05


def gram(a, b):
    return torch.exp(-0.5 * torch.cdist(a, b).square())


def tokens_of(block, n=6):
    x = torch.randn(n, 8, dtype=torch.float64)
    return x, block.project(x)


def test_latent_inputs_equal_to_keys_reduce_to_regression_as_the_noise_vanishes():
    """With o = k both hops see the same points: C tends to K_qk, so the two-hop posterior tends to the exact one."""
    errors = []
    for noise in (1e-2, 1e-4, 1e-6):
        torch.manual_seed(0)
        latent = CGPAttention(8, 2, coupling="latent", noise=noise).double().eval()
        direct = CGPAttention(8, 2, noise=noise).double().eval()
        with torch.no_grad():
            for parameter in (latent.in_proj.weight, latent.in_proj.bias):
                parts = parameter.chunk(4)
                parts[3].copy_(parts[1])
            direct.in_proj.weight.copy_(latent.in_proj.weight[:24])
            direct.in_proj.bias.copy_(latent.in_proj.bias[:24])
            direct.out_proj.load_state_dict(latent.out_proj.state_dict())
        x = torch.randn(6, 8, dtype=torch.float64)
        errors.append((latent(x) - direct(x)).abs().max().item())
        variances = latent.token_variance(x), direct.token_variance(x)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4
    torch.testing.assert_close(*variances, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("coupling", ["direct", "latent"])
def test_sparse_marginal_objective_is_the_density_of_its_generative_model(coupling):
    """Evidence of DTC, by GPyTorch's low-rank operator, on the keys' targets and the outputs."""
    block = SparseCGPAttention(
        8, 1, num_inducing=4, coupling=coupling, approximation="sor", noise=NOISE, objective="marginal"
    ).double()
    x, tokens = tokens_of(block)
    block.sampling = "mean"
    block(x)
    value = -block._added_loss_terms["log_density"].loss() * (6 * 8)  # it is per token and column
    S = block.inducing_points[0]
    L = torch.linalg.cholesky(gram(S, S))

    def evidence(z, y):
        A = torch.linalg.solve_triangular(L, gram(S, z), upper=False)
        prior = MultivariateNormal(torch.zeros(6).double(), A.T @ A + NOISE * torch.eye(6))
        return sum(prior.log_prob(column) for column in y.T)

    q, k, v = tokens.q[0], tokens.k[0], tokens.v[0]
    A_k = torch.linalg.solve_triangular(L, gram(S, k), upper=False)
    targets = A_k.T @ (A_k @ v) + NOISE * v if coupling == "direct" else v
    expected = evidence(q, block.mean_heads(tokens)[0]) + evidence(k, targets)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
