"""Softmax as a Gaussian-process mean, against dense algebra under the scaled processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cgp.functional import softmax
from cgp.functional.covariances import squared_exponential
from cgp.functional.sparse_correlated import whiten
from tests import oracles

NOISE = 0.05


def tokens(n=6, m=5, s=4):
    return [torch.randn(size, s, dtype=torch.float64) for size in (n, m, m)]


def dense(Q, K, noise=NOISE):
    """Posterior of the scaled processes by explicit inverses: mean weights (on V) and covariance."""
    q, k = Q.numpy() / Q.shape[-1] ** 0.25, K.numpy() / Q.shape[-1] ** 0.25
    k = k + q.mean(0) - k.mean(0)
    a = np.exp(0.5 * (k**2).sum(1))
    b = 1 / (oracles.rbf(q, k) @ a)
    K_qk, K_k = b[:, None] * oracles.rbf(q, k) * a, a[:, None] * oracles.rbf(k, k) * a
    noisy = K_k + noise * np.diag(a**2)
    K_q = b[:, None] * oracles.rbf(q, q) * b
    return K_qk @ np.linalg.inv(noisy) @ noisy, K_q - K_qk @ np.linalg.inv(noisy) @ K_qk.T


def test_posterior_mean_is_softmax_attention():
    Q, K, V = tokens()
    weights, _ = dense(Q, K)
    torch.testing.assert_close(torch.tensor(weights) @ V, scaled_dot_product_attention(Q, K, V))


def test_covariance_matches_dense_algebra():
    Q, K, _ = tokens()
    points = softmax.scaled_points(Q, K)
    b = points.log_scale.exp()
    expected = dense(Q, K)[1]
    covariance = b[:, None] * softmax.exact_covariance(points, noise=NOISE) * b
    np.testing.assert_allclose(covariance, expected, rtol=1e-8)
    variance = b.square() * softmax.exact_marginals(points, noise=NOISE)
    np.testing.assert_allclose(variance, np.diag(expected), rtol=1e-8)
    assert np.linalg.eigvalsh(expected).min() > -1e-10


def test_inducing_inputs_at_the_points_make_the_sparse_bracket_exact():
    Q, K, _ = tokens()
    points = softmax.scaled_points(Q, K)
    inducing = torch.cat([points.q, points.k])
    sparse = softmax.sparse_covariance(points, inducing, whiten(squared_exponential(inducing)), noise=NOISE)
    dense_form = sparse.root @ sparse.root.mT + torch.diag_embed(sparse.diagonal)
    torch.testing.assert_close(dense_form, softmax.exact_covariance(points, noise=NOISE), rtol=1e-5, atol=1e-6)


def test_gauge_makes_the_bracket_blind_to_a_common_shift_of_the_keys():
    Q, K, V = tokens()
    shifted = K + torch.randn(4, dtype=torch.float64)
    torch.testing.assert_close(scaled_dot_product_attention(Q, K, V), scaled_dot_product_attention(Q, shifted, V))
    a, b = (softmax.scaled_points(Q, k) for k in (K, shifted))
    torch.testing.assert_close(softmax.exact_marginals(a, noise=NOISE), softmax.exact_marginals(b, noise=NOISE))
    without = softmax.scaled_points(Q, shifted, shift=torch.zeros(1, 4, dtype=torch.float64))
    assert (softmax.exact_marginals(without, noise=NOISE) - softmax.exact_marginals(a, noise=NOISE)).abs().max() > 0.01


def test_large_queries_stay_finite_in_log_space():
    Q, K, _ = tokens()
    points = softmax.scaled_points(100 * Q.float(), K.float())
    scale = softmax.bounded_scale(points.log_scale, softmax.masked_median(points.log_scale, None), 0.0)
    assert points.log_scale.max() > 100
    assert torch.isfinite(scale).all()


def test_far_queries_return_to_the_prior_and_have_a_larger_scale():
    Q, K, _ = tokens()
    Q = Q.clone()
    Q[0] += 20.0
    points = softmax.scaled_points(Q, K)
    bracket = softmax.exact_marginals(points, noise=NOISE)
    assert bracket[0] > 0.999
    assert points.log_scale[0] == points.log_scale.max()


@pytest.mark.parametrize("sparse", [False, True])
def test_padding_equals_removal(sparse):
    Q, K, _ = tokens(6, 6)
    padding = torch.tensor([False] * 4 + [True] * 2)
    padded = softmax.scaled_points(Q, K, query_padding=padding, key_padding=padding)
    removed = softmax.scaled_points(Q[:4], K[:4])
    torch.testing.assert_close(padded.log_scale[:4], removed.log_scale)
    if sparse:
        S = torch.randn(3, 4, dtype=torch.float64)
        W = whiten(squared_exponential(S))
        a, b = (softmax.sparse_covariance(p, S, W, noise=NOISE) for p in (padded, removed))
        torch.testing.assert_close(a.root[:4], b.root)
        torch.testing.assert_close(a.diagonal[:4], b.diagonal)
    else:
        a, b = (softmax.exact_covariance(p, noise=NOISE) for p in (padded, removed))
        torch.testing.assert_close(a[:4, :4], b)
    torch.testing.assert_close(
        softmax.masked_median(padded.log_scale, padding), softmax.masked_median(removed.log_scale, None)
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_causal_rows_equal_their_prefix(sparse):
    Q, K, _ = tokens(6, 6)
    shift, S = torch.randn(1, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    W = whiten(squared_exponential(S))

    def marginals(points, is_causal):
        if not sparse:
            return softmax.exact_marginals(points, noise=NOISE, is_causal=is_causal)
        if is_causal:
            return softmax.sparse_causal_marginals(points, S, W, noise=NOISE)
        low_rank = softmax.sparse_covariance(points, S, W, noise=NOISE)
        return low_rank.root.square().sum(-1) + low_rank.diagonal

    whole = softmax.scaled_points(Q, K, shift=shift, is_causal=True)
    for t in range(6):
        row = softmax.scaled_points(Q[t : t + 1], K[: t + 1], shift=shift)
        torch.testing.assert_close(whole.log_scale[t : t + 1], row.log_scale)
        torch.testing.assert_close(marginals(whole, True)[t : t + 1], marginals(row, False))


def test_a_causal_mask_needs_a_given_gauge():
    Q, K, _ = tokens(5, 5)
    with pytest.raises(ValueError, match="shift: expected a given gauge"):
        softmax.scaled_points(Q, K, is_causal=True)


def test_queries_with_no_key_have_unit_scale():
    Q, K, _ = tokens()
    points = softmax.scaled_points(Q, K, key_padding=torch.ones(5, dtype=torch.bool))
    assert not points.log_scale.any()
    torch.testing.assert_close(softmax.exact_marginals(points, noise=NOISE), torch.ones(6, dtype=torch.float64))


def test_gradients():
    Q, K, _ = (x.requires_grad_() for x in tokens(3, 3, 2))
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(Q, K, noise):
        points = softmax.scaled_points(Q, K)
        return points.log_scale, softmax.exact_covariance(points, noise=noise)

    assert torch.autograd.gradcheck(value, (Q, K, noise))
