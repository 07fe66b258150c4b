"""Posteriors with a covariance a column against explicit covariances and their own draws."""

from __future__ import annotations

import pytest
import torch

from cgp.functional.column_gaussians import ColumnGaussian

TOKENS, COLUMNS = 4, 3


def make(dense: bool, rank: int = 2) -> ColumnGaussian:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    root = torch.linalg.cholesky(0.3 * torch.eye(TOKENS, dtype=torch.float64) + 0.2)
    diagonal = root.square().sum(-1)[:, None] if dense else normal(TOKENS, COLUMNS).square()
    return ColumnGaussian(
        normal(TOKENS, COLUMNS),
        normal(TOKENS, rank),
        normal(COLUMNS, rank, rank).tril(),
        diagonal,
        (lambda: root) if dense else None,
    )


@pytest.mark.parametrize("rank", [2, 5])  # below and above the number of columns
@pytest.mark.parametrize("dense", [True, False])
def test_covariance_is_written_out(dense, rank):
    g = make(dense, rank)
    for c in range(COLUMNS):
        residual = g.residual_root() @ g.residual_root().mT if dense else torch.diag(g.diagonal[:, c])
        expected = g.features @ g.roots[c] @ g.roots[c].mT @ g.features.mT + residual
        torch.testing.assert_close(g.covariance[c], expected)
        torch.testing.assert_close(g.variances[:, c], expected.diagonal())
    torch.testing.assert_close(g.variance, g.variances.mean(-1))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("sampling", ["marginal", "joint"])
def test_draws_have_the_moments_they_should(dense, sampling):
    g, draws = make(dense), 20_000
    torch.manual_seed(0)
    sample = g.rsample(sampling, torch.Size([draws]))
    expected = g.covariance if sampling == "joint" else torch.diag_embed(g.variances.mT)
    scale = g.variances.max()
    for c in range(COLUMNS):
        assert (sample[..., c].T.cov() - expected[c]).abs().max() < 6 * scale * draws**-0.5
    assert (sample.mean(0) - g.mean).abs().max() < 5 * (scale / draws) ** 0.5
    correlations = sample.flatten(-2).T.corrcoef().reshape(TOKENS, COLUMNS, TOKENS, COLUMNS)
    for c in range(1, COLUMNS):
        assert correlations[:, 0, :, c].abs().max() < 5 * draws**-0.5  # columns are independent


def test_the_mean_is_no_draw():
    g = make(dense=False)
    assert torch.equal(g.rsample("mean", torch.Size([2])), g.mean.expand(2, TOKENS, COLUMNS))
    with pytest.raises(ValueError, match="sampling: expected"):
        g.rsample("median")


@pytest.mark.parametrize("sampling", ["marginal", "joint"])
def test_roots_shared_by_a_batch_are_those_of_each_member(sampling):
    """Heads with a set of roots each, two sequences: variances as without sharing, draws independent."""
    g = make(dense=False)
    mean, features, diagonal = (x.expand(2, 3, *x.shape) for x in (g.mean, g.features, g.diagonal))
    roots = torch.stack([g.roots, 2.0 * g.roots, 0.5 * g.roots])
    shared, count = ColumnGaussian(mean, features, roots, diagonal), 20_000
    apart = ColumnGaussian(mean, features, roots.expand(2, *roots.shape), diagonal)
    torch.testing.assert_close(shared.variances, apart.variances)
    torch.manual_seed(0)
    draws = shared.rsample(sampling, torch.Size([count]))
    assert draws.shape == (count, 2, 3, TOKENS, COLUMNS)
    expected = shared.covariance if sampling == "joint" else torch.diag_embed(shared.variances.mT)
    for b, h in [(0, 0), (1, 2)]:
        found = draws[:, b, h, :, 1].T.cov()
        assert (found - expected[b, h, 1]).abs().max() < 8 * shared.variances[b, h].max() / count**0.5
    assert draws[:, :, 1, 0, 0].T.corrcoef()[0, 1].abs() < 5 / count**0.5
