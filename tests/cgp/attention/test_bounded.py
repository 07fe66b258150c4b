"""The bounded covariance around softmax's mean: features of the tokens as they are give what scaled points give."""

from __future__ import annotations

import pytest
import torch

from cgp import SparseCGPAttention
from cgp.functional import softmax
from cgp.functional.sparse_correlated import whiten


def slow_variance(block, tokens):
    """By scaled copies of queries and keys."""
    points = block.softmax.points(tokens)
    inducing = block.softmax.shrunk(block.inducing.points)
    whitening = whiten(block.canonical.gram(inducing))
    bracket = softmax.sparse_marginals(points, inducing, whitening, noise=block.softmax.noise)
    return block.softmax.log_amplitude.exp()[:, None].square() * bracket


@pytest.mark.parametrize("lengths", [(6, 6), (4, 6)])
@pytest.mark.parametrize("is_padded", [False, True])
def test_values_and_gradients_are_those_of_scaled_points(lengths, is_padded):
    block = SparseCGPAttention(8, 2, num_inducing=4, mean="softmax", statistics="bounded").double().eval()
    with torch.no_grad():
        block.softmax.gauge.normal_()
        block.softmax.log_lengthscale.copy_(torch.tensor([0.3, -0.2]))
    query, key = (torch.randn(3, n, 8, dtype=torch.float64) for n in lengths)
    padding = torch.arange(6) >= torch.tensor([6, 2, 4])[:, None] if is_padded else None
    given = (query,) if lengths[0] == lengths[1] else (query, key)
    tokens = block.project(*given, key_padding_mask=padding)
    posterior = block.marginals(tokens)
    torch.testing.assert_close(posterior.mean, block.mean(tokens))
    expected = slow_variance(block, tokens)
    torch.testing.assert_close(posterior.variance, expected)
    weights = [*block.softmax.parameters(), block.inducing.points, block.in_proj.weight]
    cotangent = torch.randn_like(expected)
    own = torch.autograd.grad(posterior.variance, weights, cotangent, retain_graph=True)
    torch.testing.assert_close(own, torch.autograd.grad(expected, weights, cotangent))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's own attention has no vmap rule on the CPU
def test_under_a_transform_the_variance_is_the_same():
    block = SparseCGPAttention(8, 2, num_inducing=4, mean="softmax", statistics="bounded").double().eval()
    x = torch.randn(5, 6, 8, dtype=torch.float64)
    together = torch.func.vmap(block.token_variance)(x)
    torch.testing.assert_close(together, block.token_variance(x))
