"""The sparse correlated posterior, by DTC and subset of regressors, against dense float64 algebra."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.linalg import cholesky, inverse_factor
from cgp.functional.sparse_correlated import InducingPosterior, SparseCorrelatedPosterior, SparsePosterior
from tests import oracles
from tests.cgp.functional.correlated_problems import (
    NOISE,
    Problem,
    check_dense_algebra,
    check_gradients,
    check_padding_is_removal,
    every_coupling,
    make_problem,
    ones,
    sor,
    sparse,
    whitened,
)


@pytest.mark.parametrize("form", ["dtc", "sor"])
@every_coupling
class TestPosterior:
    def test_posterior_and_objectives_match_dense_algebra(self, form, coupling):
        check_dense_algebra(form, coupling)

    def test_gradients(self, form, coupling):
        check_gradients(form, coupling)

    @given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
    def test_padding_equals_removal(self, form, coupling, seed, real):
        check_padding_is_removal(form, coupling, seed, real)


@every_coupling
def test_variance_returns_to_the_prior_far_away_with_dtc_only(coupling):
    p = make_problem(sizes=(6, 6, 6))
    far_queries, far_keys = p._replace(q=p.q + 100.0), p._replace(k=p.k + 100.0)
    for far in (far_queries, far_keys):
        torch.testing.assert_close(sparse(far, coupling).variance, ones(p.q))
    torch.testing.assert_close(sor(far_queries, coupling).variance, NOISE * ones(p.q))


def test_targets_with_noise_of_their_own_are_conditioned_on_in_parts():
    """Sums over observations in two chunks, noise per observation: posterior, evidence and divergence, densely."""
    p, noise = make_problem(), torch.rand(5, dtype=torch.float64) + 0.1
    A_q, A_k = whitened(p.S, p.q, p.k)
    parts = [InducingPosterior.of_targets(A_k[:, c], p.v[c], noise[c]) for c in (slice(0, 2), slice(2, 5))]
    inducing = InducingPosterior(sum(x.gram for x in parts), sum(x.projection for x in parts))
    posterior = SparsePosterior(A_q, inducing, ones(p.q))
    noisy, Q_qk = oracles.nystrom(p.k, p.S) + np.diag(noise), oracles.nystrom(p.q, p.S, p.k)
    np.testing.assert_allclose(posterior.mean, Q_qk @ np.linalg.inv(noisy) @ p.v.numpy(), rtol=1e-8)
    expected = 1.0 - np.diag(Q_qk @ np.linalg.inv(noisy) @ Q_qk.T)
    np.testing.assert_allclose(posterior.variance, expected, rtol=1e-8)
    evidence = inducing.log_evidence((p.v.square() / noise[:, None]).sum(), noise.log().sum(), 5)
    assert float(evidence) == pytest.approx(oracles.log_normal(p.v.numpy(), noisy), rel=1e-9)
    normal = torch.distributions.MultivariateNormal
    prior, location = normal(torch.zeros(4).double(), torch.eye(4).double()), inducing.location.mT
    divergence = sum(torch.distributions.kl_divergence(normal(m, inducing.covariance), prior) for m in location)
    torch.testing.assert_close(inducing.kl_divergence(), divergence)


@every_coupling
def test_small_variances_keep_their_digits_in_float32(coupling):
    """Many keys on a few places and inducing inputs on them: what is left, 1e-6 of the prior, is no difference."""
    p = make_problem(sizes=(4, 400, 400), inducing=4)
    p = p._replace(S=3.0 * p.S, k=(3.0 * p.S).repeat(100, 1), o=(3.0 * p.S).repeat(100, 1), q=3.0 * p.S)
    explained = {}
    for dtype in (torch.float32, torch.float64):
        posterior = sparse(Problem(*(x.to(dtype) for x in p)), coupling, noise=1e-4)
        explained[dtype] = posterior.root.square().sum(-1)
    torch.testing.assert_close(explained[torch.float32].double(), explained[torch.float64], rtol=1e-3, atol=0.0)
    assert explained[torch.float64].max() < 1e-5


def test_worst_case_of_float32_keeps_its_variances():
    """n = 512 tokens in two dimensions, noise 1e-4: K_mm has condition 1e9, I + AA'/noise does not."""
    generator = torch.Generator().manual_seed(0)
    q, k, S = (torch.randn(n, 2, generator=generator) for n in (512, 512, 64))

    def variance(dtype):
        factor = cholesky(gram(S.to(dtype)), name="K_mm", jitter=1e-5)  # the same model in both precisions
        A_q, A_k = (inverse_factor(factor) @ gram(S.to(dtype), x.to(dtype)) for x in (q, k))
        return SparseCorrelatedPosterior(A_q, A_k, None, ones(q).to(dtype), noise=1e-4).variance.double()

    single, double = variance(torch.float32), variance(torch.float64)
    assert single.min() >= 0
    assert (single - double).abs().max() < 2e-3


@pytest.mark.parametrize("of_targets", [False, True])
def test_float32_keeps_the_directions_beside_a_large_one(of_targets):
    """Of many equal keys Λ has one large direction, whose rounding would drown the others' ones."""
    generator = torch.Generator().manual_seed(0)
    large, others = (torch.randn(2, 6, n, generator=generator) for n in (1, 3))
    features = torch.cat([200.0 * large.expand(2, 6, 40), 0.3 * others], -1)
    targets = torch.randn(2, 43, 2, generator=generator)

    def outcome(dtype):
        make = InducingPosterior.of_targets if of_targets else InducingPosterior.of_values
        result = make(features.to(dtype), targets.to(dtype), 0.05)
        moments = [result.covariance, result.root @ result.root.mT, result.log_det]
        more = [result.location, result.log_evidence(torch.tensor(9.0), 2.0, 43)] if of_targets else []
        return [*moments, *more, result.kl_divergence()]

    for single, double in zip(outcome(torch.float32), outcome(torch.float64), strict=True):
        assert single.dtype == torch.float32
        assert (single - double).norm() < 1e-4 * double.norm()


def test_other_dtypes_and_sums_are_taken_as_they_are():
    posterior = InducingPosterior.of_values(torch.ones(2, 5, dtype=torch.float64), None, 0.1)
    assert posterior.resolved is posterior
    sums = InducingPosterior(1e9 * torch.ones(2, 2))
    assert sums.resolved is sums
