"""Draws and densities of every posterior against explicit covariances, scipy and their own moments."""

import pytest
import torch
from scipy.stats import multivariate_normal

from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian
from cgp.functional.kep_svgp import MappedGaussian

N, R, S = 5, 2, 3


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def dense() -> DenseGaussian:
    a = normal(N, N)
    return DenseGaussian(normal(N, S), a @ a.mT + 0.1 * torch.eye(N, dtype=torch.float64))


def low_rank() -> LowRankGaussian:
    return LowRankGaussian(normal(N, S), normal(N, R), normal(N).square() + 0.1)


def marginal() -> MarginalGaussian:
    return MarginalGaussian(normal(N, S), normal(N).square() + 0.1)


def columns(rank: int = R) -> ColumnGaussian:
    return ColumnGaussian(normal(N, S), normal(N, rank), normal(S, rank, rank).tril(), normal(N, S).square())


def columns_with_root(rank: int = R) -> ColumnGaussian:
    root = torch.linalg.cholesky(0.3 * torch.eye(N, dtype=torch.float64) + 0.2)
    variances = root.square().sum(-1)[:, None]
    return ColumnGaussian(normal(N, S), normal(N, rank), normal(S, rank, rank).tril(), variances, lambda: root)


def mapped() -> MappedGaussian:
    return MappedGaussian(normal(N, R), normal(4, R), normal(4, R, R).tril(), normal(4, S))


def covariances(g) -> torch.Tensor:
    """Of each column, ``(S, N, N)``, as its formula says."""
    if isinstance(g, MarginalGaussian):
        return torch.diag(g.variance).expand(S, N, N)
    if isinstance(g, DenseGaussian):
        return g.covariance.expand(S, N, N)
    if isinstance(g, LowRankGaussian):
        return (g.root @ g.root.mT + torch.diag(g.diagonal)).expand(S, N, N)
    if isinstance(g, ColumnGaussian):
        rest = [torch.diag(d) for d in g.diagonal.expand(N, S).mT]
        if g.diagonal.shape[-1] == 1:
            rest = [g.residual_root() @ g.residual_root().mT] * S
        return torch.stack([g.features @ r @ r.mT @ g.features.mT + d for r, d in zip(g.roots, rest, strict=True)])
    spread = torch.einsum("jc,jab,jdb->cad", g.head_map.square(), g.roots, g.roots)
    return g.features @ spread @ g.features.mT


MAKERS = {
    "dense": dense,
    "low rank": low_rank,
    "marginal": marginal,
    "columns": columns,
    "columns, rank 5": lambda: columns(5),
    "columns with a root": columns_with_root,
    "columns with a root, rank 5": lambda: columns_with_root(5),
    "mapped": mapped,
}


@pytest.mark.parametrize("name", MAKERS)
def test_moments_are_written_out_and_those_of_the_draws(name):
    """Columns are independent, but for those of a map; tokens are, in "marginal" draws."""
    g, count = MAKERS[name](), 20_000
    expected = covariances(g)
    variances = expected.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(g.variance, variances.mean(0))
    if isinstance(g, ColumnGaussian | MappedGaussian):
        torch.testing.assert_close(g.column_variances, variances.mT)
        torch.testing.assert_close(g.joint().covariance, expected)
    if isinstance(g, MappedGaussian):
        torch.testing.assert_close(g.mean, g.features @ g.location.mT @ g.head_map)
    assert torch.equal(g.rsample("mean", torch.Size([2])), g.mean.expand(2, N, S))
    with pytest.raises(ValueError, match="sampling: expected"):
        g.rsample("joint" if name == "marginal" else "median")
    scale = variances.sqrt()
    for sampling in ("marginal",) if name == "marginal" else ("marginal", "joint"):
        draws = ((g.rsample(sampling, torch.Size([count])) - g.mean).mT / scale).flatten(1)  # (count, S N)
        assert draws.mean(0).abs().max() < 5 / count**0.5
        result = (draws.mT @ draws / count).reshape(S, N, S, N)
        for c in range(S):
            correlation = expected[c] / (scale[c][:, None] * scale[c])
            correlation = correlation if sampling == "joint" else torch.eye(N)
            assert (result[c, :, c] - correlation).abs().max() < 5 * 2**0.5 / count**0.5
            if c and not isinstance(g, MappedGaussian):
                assert result[0, :, c].abs().max() < 5 / count**0.5


@pytest.mark.parametrize("make", [dense, low_rank])
def test_log_density_matches_scipy(make):
    g, value = make(), normal(N, S)
    expected = sum(multivariate_normal(g.mean[:, c], covariances(g)[c]).logpdf(value[:, c]) for c in range(S))
    assert float(g.log_prob(value)) == pytest.approx(expected)


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


@pytest.mark.parametrize("sampling", ["marginal", "joint"])
def test_roots_shared_by_a_batch_are_those_of_each_member(sampling):
    """Heads with a set of roots each, two sequences: variances as without sharing, draws independent."""
    g = columns()
    mean, features, diagonal = (x.expand(2, 3, *x.shape) for x in (g.mean, g.features, g.diagonal))
    roots = torch.stack([g.roots, 2.0 * g.roots, 0.5 * g.roots])
    shared, count = ColumnGaussian(mean, features, roots, diagonal), 20_000
    apart = ColumnGaussian(mean, features, roots.expand(2, *roots.shape), diagonal)
    torch.testing.assert_close(shared.column_variances, apart.column_variances)
    torch.manual_seed(0)
    draws = shared.rsample(sampling, torch.Size([count]))
    assert draws.shape == (count, 2, 3, N, S)
    expected = shared.covariance if sampling == "joint" else torch.diag_embed(shared.column_variances.mT)
    for b, h in [(0, 0), (1, 2)]:
        result = draws[:, b, h, :, 1].T.cov()
        assert (result - expected[b, h, 1]).abs().max() < 8 * shared.column_variances[b, h].max() / count**0.5
    assert draws[:, :, 1, 0, 0].T.corrcoef()[0, 1].abs() < 5 / count**0.5
