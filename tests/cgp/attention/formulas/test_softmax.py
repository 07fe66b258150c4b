"""The bounded covariance around softmax as a mean, against dense algebra."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cgp import CGPAttention, SparseCGPAttention
from tests import oracles
from tests.cgp.helpers import moved


def make_block(kind):
    block = kind(8, 2, mean="softmax").double().eval()
    moved(block.softmax)
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


@pytest.mark.parametrize("kind", [CGPAttention, SparseCGPAttention])
def test_gradients(kind):
    block = make_block(kind)
    x = torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    weights = [block.softmax.raw_noise, block.softmax.log_amplitude, block.softmax.log_lengthscale]

    def value(x, *_):
        return block.token_variance(x)

    assert torch.autograd.gradcheck(value, (x, *weights))
