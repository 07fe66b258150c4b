"""Draws and densities of the posteriors against scipy and their own moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian

N, R, S = 5, 2, 3


def dense() -> DenseGaussian:
    a = torch.randn(N, N, dtype=torch.float64)
    return DenseGaussian(torch.randn(N, S, dtype=torch.float64), a @ a.mT + 0.1 * torch.eye(N, dtype=torch.float64))


def low_rank() -> LowRankGaussian:
    draw = {"dtype": torch.float64}
    return LowRankGaussian(torch.randn(N, S, **draw), torch.randn(N, R, **draw), torch.rand(N, **draw) + 0.1)


def marginal() -> MarginalGaussian:
    return MarginalGaussian(torch.randn(N, S, dtype=torch.float64), torch.rand(N, dtype=torch.float64) + 0.1)


def covariance(g) -> np.ndarray:
    return np.diag(g.variance) if isinstance(g, MarginalGaussian) else g.covariance.numpy()


@pytest.mark.parametrize("make", [dense, low_rank])
def test_log_density_matches_scipy(make):
    g, value = make(), torch.randn(N, S, dtype=torch.float64)
    expected = sum(multivariate_normal(g.mean[:, c], covariance(g)).logpdf(value[:, c]) for c in range(S))
    assert float(g.log_prob(value)) == pytest.approx(expected)


@pytest.mark.parametrize("make", [dense, low_rank])
def test_joint_draws_have_the_covariance_and_channels_are_independent(make):
    g, count = make(), 20_000
    draws = g.rsample("joint", torch.Size([count])) - g.mean
    for c in range(S):
        empirical = np.cov(draws[..., c].numpy().T)
        scale = np.sqrt(np.outer(np.diag(covariance(g)), np.diag(covariance(g))))
        assert np.abs((empirical - covariance(g)) / scale).max() < 6 / count**0.5 * 1.5
    across = np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]
    assert abs(across) < 4 / count**0.5


@pytest.mark.parametrize("make", [dense, low_rank, marginal])
def test_marginal_draws_have_the_variance_and_tokens_are_independent(make):
    g, count = make(), 20_000
    draws = (g.rsample("marginal", torch.Size([count])) - g.mean)[..., 0].numpy()
    np.testing.assert_allclose(draws.var(0), g.variance, rtol=6 * (2 / count) ** 0.5)
    off = np.corrcoef(draws.T) - np.eye(N)
    assert np.abs(off).max() < 5 / count**0.5


def test_gradients_of_density_and_draws():
    mean, root = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    diagonal, value = torch.rand(3, dtype=torch.float64) + 0.5, torch.randn(3, 2, dtype=torch.float64)
    inputs = tuple(x.requires_grad_() for x in (mean, root, diagonal, value))

    def both(mean, root, diagonal, value):
        low = LowRankGaussian(mean, root, diagonal)
        full = DenseGaussian(mean, low.covariance)
        draws = [
            g.rsample(mode, generator=torch.Generator().manual_seed(0))
            for g in (low, full)
            for mode in ("joint", "marginal")
        ]
        return low.log_prob(value), full.log_prob(value), *draws

    assert torch.autograd.gradcheck(both, inputs)


@pytest.mark.parametrize("make", [dense, low_rank])
def test_padded_tokens_are_absent(make):
    g, value, keep = make(), torch.randn(N, S, dtype=torch.float64), torch.tensor([0, 1, 3])
    padding = torch.tensor([False, False, True, False, True])
    mask = padding[:, None]
    if isinstance(g, DenseGaussian):
        padded = DenseGaussian(g.mean, g.covariance.masked_fill(mask | mask.mT, 0.0), padding)
        removed = DenseGaussian(g.mean[keep], g.covariance[keep][:, keep])
    else:
        padded = LowRankGaussian(g.mean, g.root.masked_fill(mask, 0.0), g.diagonal.masked_fill(padding, 0.0), padding)
        removed = LowRankGaussian(g.mean[keep], g.root[keep], g.diagonal[keep])
    torch.testing.assert_close(padded.log_prob(value), removed.log_prob(value[keep]))
    noisy = padded.with_noise(0.3)
    torch.testing.assert_close(noisy.variance[keep], padded.variance[keep] + 0.3)
    assert not noisy.variance[padding].any()
    draw = padded.rsample("joint")
    torch.testing.assert_close(draw[padding], g.mean[padding])
    assert (draw[keep] != g.mean[keep]).all()


def test_low_rank_draws_and_densities_form_no_square_matrix():
    n, rank = 97, 5
    g = LowRankGaussian(torch.zeros(n, 2), torch.randn(n, rank), torch.ones(n))
    seen = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                seen.add(out.numel())
            return out

    with Watch():
        g.log_prob(g.rsample("joint"))
    assert max(seen) < n * n / 2
    assert n * rank in seen


def test_a_joint_draw_of_marginals_is_refused():
    with pytest.raises(ValueError, match="sampling: expected one of .*got 'joint'"):
        marginal().rsample("joint")


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_jitter_is_small_beside_every_tokens_own_variance(scale):
    """Padded tokens, and tokens of larger variance, put no floor under the others (float32)."""
    sizes, count = scale * torch.tensor([1.0, 1e-3, 1.0, 1e-3]), 20_000
    padding = torch.tensor([False, False, False, True])
    correlation = torch.full((4, 4), 0.5).fill_diagonal_(1.0)
    covariance = sizes[:, None] * correlation * sizes * ~(padding[:, None] | padding)
    draws = DenseGaussian(torch.zeros(4, 1), covariance, padding).rsample("joint", torch.Size([count]))[..., 0]
    ratio = draws.var(0)[:3] / covariance.diagonal()[:3]
    assert (ratio - 1).abs().max() < 6 * (2 / count) ** 0.5
    assert not draws[:, 3].any()
