"""Covariances shared by channels: densities, draws and structure, beside linear_operator's operators."""

import math
from dataclasses import replace
from importlib import import_module

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import (
    DenseLinearOperator,
    DiagLinearOperator,
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
)

from cgp.functional.gaussians import DenseGaussian, LowRankGaussian
from cgp.functional.linalg import cholesky
from cgp.operators import LowRankPlusDiagonalLinearOperator, SharedCovarianceLinearOperator, shared_covariance
from tests.cgp.helpers import Sizes

BATCHES = [(), (3,), (2, 3)]
N, S, M = 6, 4, 2
KINDS = ("dense", "low_rank")


def make(kind, *batch, n=N, s=S, m=M, padded=0):
    """A posterior and its covariance, ``(*batch, n, n)``; the last ``padded`` tokens are padding."""
    mean, root = torch.randn(*batch, n, s).double(), torch.randn(*batch, n, m).double()
    diagonal = torch.rand(*batch, n).double() + 0.3
    padding = torch.zeros(*batch, n, dtype=torch.bool)
    if padded:
        padding[..., -padded:] = True
    mean, root = mean.masked_fill(padding[..., None], 0), root.masked_fill(padding[..., None], 0)
    diagonal = diagonal.masked_fill(padding, 0)
    covariance = root @ root.mT + torch.diag_embed(diagonal)
    padding = padding if padded else None
    if kind == "dense":
        return DenseGaussian(mean, covariance, padding), covariance
    return LowRankGaussian(mean, root, diagonal, padding), covariance


def normal(posterior):
    """GPyTorch's distribution of a posterior, one batch member per channel."""
    return MultivariateNormal(posterior.mean.mT, shared_covariance(posterior))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", BATCHES)
def test_shapes_moments_and_density(kind, batch):
    posterior, covariance = make(kind, *batch)
    distribution = normal(posterior)
    assert (distribution.batch_shape, distribution.event_shape) == ((*batch, S), (N,))
    torch.testing.assert_close(distribution.mean, posterior.mean.mT)
    torch.testing.assert_close(distribution.variance, posterior.variance.unsqueeze(-2).expand(*batch, S, N))
    expected = covariance.unsqueeze(-3).expand(*batch, S, N, N)
    torch.testing.assert_close(distribution.covariance_matrix, expected)
    value = torch.randn(*batch, S, N).double()
    density = distribution.log_prob(value)
    oracle = torch.distributions.MultivariateNormal(posterior.mean.mT, expected).log_prob(value)
    torch.testing.assert_close(density, oracle, rtol=1e-10, atol=0)
    torch.testing.assert_close(density.sum(-1), posterior.log_prob(value.mT))
    draws = torch.randn(5, *batch, S, N).double()
    torch.testing.assert_close(distribution.log_prob(draws)[2], distribution.log_prob(draws[2]))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_covariance_and_channels_are_independent(kind):
    """Stock channels come out equal where the covariance was not expanded first (trap 1)."""
    posterior, covariance = make(kind, 2, n=3, s=2)
    count = 10_000
    draws = normal(posterior).rsample(torch.Size([count])) - posterior.mean.mT  # (count, 2, s, 3)
    flat = draws.reshape(count, -1)
    expected = torch.block_diag(*covariance.repeat_interleave(2, 0))
    scale = expected.diagonal().sqrt()
    error = (flat.mT @ flat / count - expected) / (scale[:, None] * scale)
    assert error.abs().max() < 5 * 2**0.5 / count**0.5

    stock = MultivariateNormal(torch.zeros(4, 7), DenseLinearOperator(torch.eye(7)[None]))
    members = stock.rsample(torch.Size([100]))
    assert torch.equal(members[:, 0], members[:, 1]), "GPyTorch mended trap 1"


def test_added_jitter_and_noise_keep_their_gradients():
    """Scalars added by `add_jitter` lose theirs, those added by `add_diagonal` do not (trap 2)."""
    posterior, _ = make("low_rank", 2)
    covariance = normal(posterior).lazy_covariance_matrix
    noise = torch.tensor(0.3).double().requires_grad_()
    covariance.add_diagonal(noise).logdet().sum().backward()
    step = 1e-6
    difference = covariance.add_jitter(0.3 + step).logdet() - covariance.add_jitter(0.3 - step).logdet()
    torch.testing.assert_close(noise.grad, difference.sum() / (2 * step), rtol=1e-6, atol=0)
    with pytest.warns(UserWarning, match="copy construct"):
        assert not covariance.add_jitter(noise).logdet().requires_grad, "linear_operator mended trap 2"


def test_a_sparse_posterior_never_builds_n_by_n():
    n, m, s = 301, 7, 3
    posterior, _ = make("low_rank", 2, n=n, m=m, s=s)
    posterior = LowRankGaussian(
        posterior.mean, posterior.root.requires_grad_(), posterior.diagonal.requires_grad_(), None
    )
    value = torch.randn(2, s, n).double()
    with Sizes() as sizes:
        distribution = normal(posterior)
        draw = distribution.rsample(torch.Size([4]))
        density = distribution.log_prob(value)
        solved = distribution.lazy_covariance_matrix.solve(value.unsqueeze(-1))
        (draw.sum() + density.sum() + solved.sum() + distribution.variance.sum()).backward()
    assert (2, 1, m, m) in sizes.shapes
    assert sizes.largest() < n * n
    root = LowRankRootLinearOperator(torch.randn(n, m))  # why there is an operator of our own; and the counter counts
    with Sizes() as sizes:
        LowRankRootAddedDiagLinearOperator(root, DiagLinearOperator(torch.ones(n))).zero_mean_mvn_samples(2)
    assert sizes.largest() >= n * n, "linear_operator mended trap 7: LowRankPlusDiagonalLinearOperator may go"


@pytest.mark.parametrize("kind", KINDS)
def test_one_factorisation_serves_every_channel(kind, monkeypatch):
    sizes = []

    def counting(matrix, **kwargs):
        sizes.append(matrix.shape)
        return original(matrix, **kwargs)

    original = cholesky
    for name in ("dense_covariance", "shared_covariance"):
        monkeypatch.setattr(import_module(f"cgp.operators.{name}"), "cholesky", counting)
    posterior, _ = make(kind, 2, s=5)
    distribution = normal(posterior)
    distribution.rsample(torch.Size([3]))
    distribution.log_prob(torch.randn(2, 5, N).double())
    distribution.log_prob(torch.randn(3, 2, 5, N).double())
    distribution.lazy_covariance_matrix.solve(torch.randn(2, 5, N, 1).double())
    size = N if kind == "dense" else M
    assert sizes
    assert {(math.prod(shape[:-2]), *shape[-2:]) for shape in sizes} == {(2, size, size)}


@pytest.mark.parametrize("kind", KINDS)
def test_exact_above_800_rows(kind):
    """GPyTorch's defaults are approximate and random there (trap 4)."""
    n = 801
    posterior, covariance = make(kind, n=n, s=2, m=3)
    distribution = normal(posterior)
    value = torch.randn(2, n).double()
    exact = torch.distributions.MultivariateNormal(posterior.mean.mT, covariance).log_prob(value)
    torch.testing.assert_close(distribution.log_prob(value), exact, rtol=1e-10, atol=0)
    lazy = distribution.lazy_covariance_matrix
    factor = torch.linalg.cholesky(covariance)
    torch.testing.assert_close(lazy.solve(value[..., None])[..., 0], torch.cholesky_solve(value.mT, factor).mT)
    torch.testing.assert_close(lazy.logdet(), 2 * factor.diagonal().log().sum().expand(2))
    root = lazy.root_decomposition().root.to_dense()[0]
    torch.testing.assert_close(root @ root.mT, covariance)
    other = normal(make(kind, n=n, s=2, m=3)[0])
    divergence = torch.distributions.kl_divergence(distribution, other)
    assert torch.equal(divergence, torch.distributions.kl_divergence(distribution, other))
    expected = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(distribution.mean, covariance),
        torch.distributions.MultivariateNormal(other.mean, other.covariance_matrix[0]),
    )
    torch.testing.assert_close(divergence, expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", BATCHES)
def test_padded_tokens_have_their_mean_and_leave_the_others_alone(kind, batch):
    posterior, covariance = make(kind, *batch, padded=2)
    posterior = replace(posterior, mean=posterior.mean.detach().requires_grad_())
    distribution = normal(posterior)
    draw = distribution.rsample(torch.Size([7]))
    assert torch.equal(draw[..., -2:], posterior.mean.mT[..., -2:].expand(7, *batch, S, 2))
    assert draw[..., :-2].std() > 0.1
    with pytest.raises(ValueError, match="padded tokens have none"):
        distribution.log_prob(draw[0].detach())
    noisy = distribution.add_jitter(0.1)
    expected = torch.distributions.MultivariateNormal(
        posterior.mean.mT, (covariance + 0.1 * torch.eye(N, dtype=torch.float64)).unsqueeze(-3)
    )
    torch.testing.assert_close(noisy.log_prob(draw[0]), expected.log_prob(draw[0]), rtol=1e-10, atol=0)
    names = ("covariance",) if kind == "dense" else ("root", "diagonal")
    leaves = {name: getattr(posterior, name).clone().requires_grad_() for name in names}
    normal(replace(posterior, **leaves)).rsample().square().sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves.values())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_draws_and_densities(kind):
    posterior, _ = make(kind, 2, n=4, s=2)
    leaves = tuple(t.clone().requires_grad_() for t in vars(posterior).values() if t is not None)
    value = torch.randn(2, 2, 4).double()

    def density(*leaves):
        return normal(build(leaves)).log_prob(value)

    def draw(*leaves):
        torch.manual_seed(3)
        return normal(build(leaves)).rsample(torch.Size([2]))

    def build(leaves):
        if kind == "low_rank":
            return LowRankGaussian(*leaves)
        return DenseGaussian(leaves[0], 0.5 * (leaves[1] + leaves[1].mT))

    assert torch.autograd.gradcheck(density, leaves)
    assert torch.autograd.gradcheck(draw, leaves)


@pytest.mark.parametrize("kind", KINDS)
def test_operations_keep_the_structure(kind):
    posterior, covariance = make(kind, 2)
    distribution = normal(posterior)
    first = distribution[..., :3]
    assert isinstance(first.lazy_covariance_matrix, SharedCovarianceLinearOperator)
    torch.testing.assert_close(first.covariance_matrix[0, 0], covariance[0, :3, :3])
    member = distribution[1]
    assert member.batch_shape == (S,)
    torch.testing.assert_close(member.covariance_matrix[0], covariance[1])
    scaled = distribution * 2.0
    assert isinstance(scaled.lazy_covariance_matrix, SharedCovarianceLinearOperator)
    torch.testing.assert_close(scaled.covariance_matrix[0, 0], 4 * covariance[0])
    expanded = distribution.expand(torch.Size([5, 2, S]))
    torch.testing.assert_close(expanded.covariance_matrix[4, 1, 2], covariance[1])
    value = torch.randn(2, S, N).double()
    torch.testing.assert_close(expanded.log_prob(value.expand(5, 2, S, N))[3], distribution.log_prob(value))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    noisy = likelihood(distribution)
    eye = torch.eye(N, dtype=torch.float64)
    torch.testing.assert_close(noisy.covariance_matrix[1, 2], covariance[1] + likelihood.noise * eye)
    dense = MultivariateNormal(noisy.mean, DenseLinearOperator(noisy.covariance_matrix))
    torch.testing.assert_close(noisy.log_prob(value), dense.log_prob(value))


def test_a_density_without_variance_is_refused():
    root = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="needs positive variances, 1 of 3 are not"):
        LowRankPlusDiagonalLinearOperator(root, torch.zeros(3)).logdet()
    with pytest.raises(ValueError, match="needs full rank, got rank 2 of 3"):
        LowRankPlusDiagonalLinearOperator(root[[0, 1, 1]], torch.zeros(3)).solve(torch.ones(3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_diagonal_of_what_is_shared_stays_shared(kind):
    posterior, covariance = make(kind, 3)
    diagonal = torch.rand(3, 1, N).double()
    sums = shared_covariance(posterior).add_diagonal(diagonal)
    assert isinstance(sums, SharedCovarianceLinearOperator)
    expected = (covariance.unsqueeze(1) + torch.diag_embed(diagonal)).expand(3, S, N, N)
    torch.testing.assert_close(sums.to_dense(), expected)


def test_a_diagonal_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"root, diagonal: expected .*, got \(6, 2\) and \(5,\)"):
        LowRankPlusDiagonalLinearOperator(torch.rand(6, 2), torch.rand(5))
