"""The sparse correlated posterior and its objectives against dense float64 algebra."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cgp.functional.correlated import OBJECTIVES, ExactPosterior, latent_coupling
from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.linalg import cholesky, inverse_factor
from cgp.functional.sparse_correlated import InducingPosterior, SparseCorrelatedPosterior, SparsePosterior
from tests import oracles

NOISE = 0.09


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    o: Tensor
    v: Tensor
    S: Tensor


def make_problem(sizes=(6, 5, 7), inducing=4, width=3, columns=2, seed=0, batch=()) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    shapes = *((n, width) for n in sizes), (sizes[1], columns), (inducing, width)
    return Problem(*(torch.randn(*batch, *s, dtype=torch.float64, generator=generator) for s in shapes))


def whitened(S: Tensor, *points: Tensor):
    """Whitened features without the jitter of the package's own factor of K_mm, so that oracles can be met to 1e-9."""
    inverse = torch.linalg.solve_triangular(
        torch.linalg.cholesky(gram(S)), torch.eye(S.shape[-2], dtype=S.dtype), upper=False
    )
    return [inverse @ gram(S, x) for x in points]


def ones(x: Tensor) -> Tensor:
    return torch.ones_like(x[..., 0])


def direct(p: Problem, noise=NOISE, approximation="dtc", **padding):
    A_q, A_k = whitened(p.S, p.q, p.k)
    return SparseCorrelatedPosterior(A_q, A_k, p.v, ones(p.q), noise=noise, approximation=approximation, **padding)


def latent(p: Problem, noise=NOISE, approximation="dtc", **padding):
    A_q, A_o, A_k = whitened(p.S, p.q, p.o, p.k)
    return SparseCorrelatedPosterior(
        A_q, A_k, p.v, ones(p.q), features_o=A_o, noise=noise, approximation=approximation, **padding
    )


POSTERIORS = {"direct": direct, "latent": latent}


def arrays(p: Problem):
    return (x.detach().numpy() for x in p)


def dense_low_rank(p: Problem, coupling: str, noise=NOISE):
    """Mean and the covariance without D, by explicit inverses."""
    q, k, o, v, S = arrays(p)
    if coupling == "latent":
        return oracles.sparse_latent(q, k, o, v, S, S, noise)
    inner = np.linalg.inv(oracles.rbf(S, S) + oracles.rbf(S, k) @ oracles.rbf(k, S) / noise)
    return oracles.nystrom(q, S, k) @ v, oracles.rbf(q, S) @ inner @ oracles.rbf(S, q)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("approximation", ["dtc", "sor"])
def test_posterior_matches_dense_algebra(coupling, approximation):
    p = make_problem()
    mean, covariance = dense_low_rank(p, coupling)
    q, S = p.q.numpy(), p.S.numpy()
    D = np.diag(1 - np.diag(oracles.nystrom(q, S))) if approximation == "dtc" else NOISE * np.eye(len(q))
    posterior = POSTERIORS[coupling](p, approximation=approximation)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.joint().covariance, covariance + D, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance + D), rtol=1e-8, atol=1e-10)


def test_direct_form_is_one_dtc_hop_from_its_targets():
    """Mean and covariance of DTC regression on Z = (Q_k + noise I) V, conditioned densely."""
    p = make_problem()
    q, k, _, v, S = arrays(p)
    Q_k, Q_qk, Q_q = oracles.nystrom(k, S), oracles.nystrom(q, S, k), oracles.nystrom(q, S)
    noisy = Q_k + NOISE * np.eye(len(k))
    Z = noisy @ v
    terms = direct(p)
    np.testing.assert_allclose(terms.targets, Z, rtol=1e-9)
    np.testing.assert_allclose(terms.mean, Q_qk @ np.linalg.inv(noisy) @ Z, rtol=1e-8)
    expected = oracles.rbf(q, q).diagonal() - np.diag(Q_qk @ np.linalg.inv(noisy) @ Q_qk.T)
    np.testing.assert_allclose(terms.variance, expected, rtol=1e-8)
    assert Q_q.shape == (6, 6)


@pytest.mark.parametrize("coupling", POSTERIORS)
def test_variance_returns_to_the_prior_for_far_queries_and_far_keys_with_dtc_only(coupling):
    p = make_problem(sizes=(6, 6, 6))
    far_queries, far_keys = p._replace(q=p.q + 100.0), p._replace(k=p.k + 100.0)
    for far in (far_queries, far_keys):
        dtc = POSTERIORS[coupling](far, approximation="dtc").variance
        torch.testing.assert_close(dtc, ones(p.q))
    sor = POSTERIORS[coupling](far_queries, approximation="sor").variance
    torch.testing.assert_close(sor, NOISE * ones(p.q))


@pytest.mark.parametrize("coupling", POSTERIORS)
def test_inducing_inputs_at_the_data_make_the_sparse_form_exact(coupling):
    p = make_problem(sizes=(4, 4, 4))
    p = p._replace(S=torch.cat([p.q, p.k, p.o]))
    K_k, options = gram(p.k), {"noise": NOISE, "K_q": lambda: gram(p.q)}
    if coupling == "direct":
        exact = ExactPosterior(gram(p.q, p.k), K_k, ones(p.q), values=p.v, **options)
    else:  # CGPT's sparse targets are V itself
        C = latent_coupling(gram(p.q, p.o), gram(p.o), gram(p.o, p.k), noise=NOISE)
        exact = ExactPosterior(C, K_k, ones(p.q), targets=p.v, **options)
    sparse = POSTERIORS[coupling](p)
    torch.testing.assert_close(sparse.mean, exact.mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(sparse.joint().covariance, exact.covariance, rtol=1e-6, atol=1e-7)


def expected_objective(p: Problem, coupling: str, objective: str, approximation: str) -> float:
    q, k, _, v, S = arrays(p)
    mean, low_rank = dense_low_rank(p, coupling)
    Q_q, Q_k = oracles.nystrom(q, S), oracles.nystrom(k, S)
    D = (1 - np.diag(Q_q) if approximation == "dtc" else 0 * q[:, 0]) + NOISE
    noisy_k = Q_k + NOISE * np.eye(len(k))
    Z = noisy_k @ v if coupling == "direct" else v
    if objective == "marginal":
        return oracles.log_normal(mean, Q_q + np.diag(D)) + oracles.log_normal(Z, noisy_k)
    if objective == "joint":
        return oracles.log_normal(0 * mean, low_rank + np.diag(D)) + oracles.log_normal(Z, noisy_k)
    raise AssertionError(objective)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("approximation", ["dtc", "sor"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objective_matches_dense_algebra(coupling, objective, approximation):
    p = make_problem()
    value = POSTERIORS[coupling](p, approximation=approximation).log_density(objective)
    assert float(value) == pytest.approx(expected_objective(p, coupling, objective, approximation), rel=1e-8)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("approximation", ["dtc", "sor"])
def test_gradients(coupling, objective, approximation):
    p = make_problem(sizes=(3, 4, 3), inducing=2, width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(q, k, o, v, S, noise):
        posterior = POSTERIORS[coupling](Problem(q, k, o, v, S), noise, approximation)
        return posterior.mean, posterior.variance, posterior.joint().covariance, posterior.log_density(objective)

    inputs = [x.requires_grad_() for x in p]
    if coupling == "direct":
        assert torch.autograd.gradcheck(
            lambda q, k, v, S, n: value(q, k, p.o.detach(), v, S, n), (p.q, p.k, p.v, p.S, noise)
        )
    else:
        assert torch.autograd.gradcheck(value, (*inputs, noise))


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("approximation", ["dtc", "sor"])
@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
def test_padding_equals_removal(coupling, objective, approximation, seed, real):
    full = make_problem((5, 5, 5), seed=seed)
    padding = torch.arange(5) >= real
    short = full._replace(q=full.q[:real], k=full.k[:real], o=full.o[:real], v=full.v[:real])
    a = POSTERIORS[coupling](full, approximation=approximation, query_padding=padding, key_padding=padding)
    b = POSTERIORS[coupling](short, approximation=approximation)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.joint().covariance[:real, :real], b.joint().covariance, rtol=1e-8, atol=1e-10)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    torch.testing.assert_close(a.log_density(objective), b.log_density(objective), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch_equals_loop(coupling, batch):
    p = make_problem(batch=batch)
    together = POSTERIORS[coupling](p)
    for index in np.ndindex(*batch):
        single = POSTERIORS[coupling](Problem(*(x[index] for x in p)))
        torch.testing.assert_close(together.mean[index], single.mean)
        torch.testing.assert_close(together.joint().covariance[index], single.joint().covariance)
        torch.testing.assert_close(together.log_density("joint")[index], single.log_density("joint"))


def test_targets_with_noise_of_their_own_are_conditioned_on_in_parts():
    """Sums over observations in two chunks, noise per observation: posterior, evidence and divergence, densely."""
    p, noise = make_problem(), torch.rand(5, dtype=torch.float64) + 0.1
    A_q, A_k = whitened(p.S, p.q, p.k)
    parts = [InducingPosterior.of_targets(A_k[:, c], p.v[c], noise[c]) for c in (slice(0, 2), slice(2, 5))]
    inducing = InducingPosterior(sum(x.gram for x in parts), sum(x.projection for x in parts))
    posterior = SparsePosterior(A_q, inducing, ones(p.q))
    q, k, _, v, S = arrays(p)
    noisy, Q_qk = oracles.nystrom(k, S) + np.diag(noise), oracles.nystrom(q, S, k)
    np.testing.assert_allclose(posterior.mean, Q_qk @ np.linalg.inv(noisy) @ v, rtol=1e-8)
    expected = 1.0 - np.diag(Q_qk @ np.linalg.inv(noisy) @ Q_qk.T)
    np.testing.assert_allclose(posterior.variance, expected, rtol=1e-8)
    evidence = inducing.log_evidence((p.v.square() / noise[:, None]).sum(), noise.log().sum(), 5)
    assert float(evidence) == pytest.approx(oracles.log_normal(v, noisy), rel=1e-9)
    prior = torch.distributions.MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double())
    own = [torch.distributions.MultivariateNormal(m, inducing.covariance) for m in inducing.location.mT]
    divergence = sum(torch.distributions.kl_divergence(x, prior) for x in own)
    torch.testing.assert_close(inducing.kl_divergence(), divergence)


@pytest.mark.parametrize("coupling", POSTERIORS)
def test_small_variances_keep_their_digits_in_float32(coupling):
    """Many keys on a few places and inducing inputs on them: what is left, 1e-6 of the prior, is no difference."""
    p = make_problem(sizes=(4, 400, 400), inducing=4)
    p = p._replace(S=3.0 * p.S, k=(3.0 * p.S).repeat(100, 1), o=(3.0 * p.S).repeat(100, 1), q=3.0 * p.S)
    explained = {}
    for dtype in (torch.float32, torch.float64):
        posterior = POSTERIORS[coupling](Problem(*(x.to(dtype) for x in p)), noise=1e-4)
        explained[dtype] = posterior.root.square().sum(-1), posterior.variance - posterior.residual
    torch.testing.assert_close(explained[torch.float32][0].double(), explained[torch.float64][0], rtol=1e-3, atol=0.0)
    assert explained[torch.float64][0].max() < 1e-5


def test_worst_case_of_float32_keeps_its_variances():
    """n = 512 tokens in two dimensions, noise 1e-4: K_mm has condition 1e9, I + AA'/noise does not."""
    generator = torch.Generator().manual_seed(0)
    q, k, S = (torch.randn(n, 2, generator=generator) for n in (512, 512, 64))
    v = torch.randn(512, 1, generator=generator)

    def variance(dtype):
        factor = cholesky(gram(S.to(dtype)), name="K_mm", jitter=1e-5)  # the same model in both precisions
        A_q, A_k = (inverse_factor(factor) @ gram(S.to(dtype), x.to(dtype)) for x in (q, k))
        return SparseCorrelatedPosterior(A_q, A_k, v.to(dtype), ones(q).to(dtype), noise=1e-4).variance.double()

    single, double = variance(torch.float32), variance(torch.float64)
    assert single.min() >= 0
    assert (single - double).abs().max() < 2e-3


def test_unknown_words_are_refused():
    p = make_problem()
    with pytest.raises(ValueError, match="objective: expected"):
        direct(p).log_density("map")
    with pytest.raises(ValueError, match="approximation: expected"):
        direct(p, approximation="fitc")
