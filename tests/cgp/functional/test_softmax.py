"""Softmax as a Gaussian-process mean, and the bounded covariance around it, against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cgp import CGPAttention, SparseCGPAttention
from tests import oracles


def test_posterior_mean_of_the_scaled_processes_is_softmax_attention():
    Q, K, V = (torch.randn(size, 4, dtype=torch.float64) for size in (6, 5, 5))
    q, k = Q.numpy() / 4**0.25, K.numpy() / 4**0.25
    a = np.exp(0.5 * (k**2).sum(1))
    b = 1 / (oracles.rbf(q, k) @ a)
    K_qk, K_k = b[:, None] * oracles.rbf(q, k) * a, a[:, None] * oracles.rbf(k, k) * a
    noisy = K_k + 0.05 * np.diag(a**2)
    weights = torch.tensor(K_qk @ np.linalg.inv(noisy) @ noisy)
    torch.testing.assert_close(weights @ V, scaled_dot_product_attention(Q, K, V))


def make_block(kind, **options):
    block = kind(8, 2, mean="softmax", **options).double().eval()
    with torch.no_grad():
        block.softmax.key_shift.normal_()
        block.softmax.log_lengthscale.copy_(torch.tensor([0.3, -0.2]))
        block.softmax.raw_noise.add_(torch.randn(2))
    return block


def dense_covariance(block, tokens, head, example=0):
    """τ² [R_q − R_qk (R_k + σ²I)⁻¹ R_kq] of one head by explicit inverses."""
    posterior = block.softmax
    length, shift = posterior.log_lengthscale[head].exp().item(), posterior.key_shift[head].detach().numpy()
    q, k = (x[example, head].detach().numpy() * 4**-0.25 for x in (tokens.q, tokens.k))
    q, k = q / length, (k + shift) / length
    bracket = oracles.conditional(oracles.rbf(q, q), oracles.rbf(q, k), oracles.rbf(k, k), posterior.noise[head].item())
    return posterior.log_amplitude[head].exp().item() ** 2 * bracket


@pytest.mark.parametrize("keys", [None, 5])
def test_exact_covariance_matches_dense_algebra(keys):
    block, x = make_block(CGPAttention), torch.randn(2, 6, 8, dtype=torch.float64)
    given = (x,) if keys is None else (x, torch.randn(2, keys, 8, dtype=torch.float64))
    tokens, posterior = block.project(*given), block.posterior(*given)
    for head in range(2):
        expected = dense_covariance(block, tokens, head)
        np.testing.assert_allclose(posterior.covariance_matrix[0, head, 1].detach(), expected, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(block.token_variance(*given)[0, head].detach(), np.diag(expected), rtol=1e-8)
    torch.testing.assert_close(posterior.mean.mT, scaled_dot_product_attention(tokens.q, tokens.k, tokens.v))


def test_inducing_inputs_at_the_points_make_the_sparse_covariance_exact():
    exact, sparse = make_block(CGPAttention), make_block(SparseCGPAttention, num_inducing=12)
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    sparse.load_state_dict(exact.state_dict(), strict=False)
    with torch.no_grad():
        q, k = sparse.softmax.points(sparse.project(x))
        at_points = torch.cat([q[0], k[0]], -2) * sparse.softmax.log_lengthscale.exp()[:, None, None]
        sparse.inducing_points.copy_(at_points)
        covariances = [block.posterior(x).covariance_matrix for block in (exact, sparse)]
    torch.testing.assert_close(*covariances, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", [CGPAttention, SparseCGPAttention])
def test_causal_rows_equal_their_prefix(kind):
    block, x = make_block(kind), torch.randn(2, 6, 8, dtype=torch.float64)
    whole = block.token_variance(x, is_causal=True)
    for t in range(6):
        row = block.token_variance(x[:, t : t + 1], x[:, : t + 1])
        torch.testing.assert_close(whole[..., t : t + 1], row)


@pytest.mark.parametrize("kind", [CGPAttention, SparseCGPAttention])
def test_gradients(kind):
    block = make_block(kind)
    x = torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    weights = [block.softmax.raw_noise, block.softmax.log_amplitude, block.softmax.log_lengthscale]

    def value(x, *_):
        return block.token_variance(x)

    assert torch.autograd.gradcheck(value, (x, *weights))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's own attention has no vmap rule on the CPU
def test_under_a_transform_the_variance_is_the_same():
    block, x = make_block(SparseCGPAttention, num_inducing=4), torch.randn(5, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(block.token_variance)(x), block.token_variance(x))
