"""The sparse correlated posterior and its objectives against dense float64 algebra."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cgp.functional import correlated, sparse_correlated
from cgp.functional.cholesky import cholesky, inverse_factor
from cgp.functional.covariances import squared_exponential as gram
from cgp.functional.sparse_correlated_objective import log_density
from tests import oracles

NOISE = 0.09
OBJECTIVES = ("marginal", "joint", "elbo", "paper_mc")


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    o: Tensor
    v: Tensor
    S: Tensor
    S2: Tensor


def make_problem(sizes=(6, 5, 7), inducing=(4, 3), width=3, columns=2, seed=0, batch=()) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    shapes = *((n, width) for n in sizes), (sizes[1], columns), *((m, width) for m in inducing)
    return Problem(*(torch.randn(*batch, *s, dtype=torch.float64, generator=generator) for s in shapes))


def features(S: Tensor, *points: Tensor):
    """Whitened features without the jitter of the package's own factor of K_mm, so that oracles can be met to 1e-9."""
    inverse = torch.linalg.solve_triangular(
        torch.linalg.cholesky(gram(S)), torch.eye(S.shape[-2], dtype=S.dtype), upper=False
    )
    return [inverse @ gram(S, x) for x in points]


def ones(x: Tensor) -> Tensor:
    return torch.ones_like(x[..., 0])


def direct(p: Problem, noise=NOISE, conditional="dtc", **padding):
    A_q, A_k = features(p.S, p.q, p.k)
    return sparse_correlated.direct_terms(A_q, A_k, p.v, ones(p.q), noise=noise, conditional=conditional, **padding)


def latent(p: Problem, noise=NOISE, conditional="dtc", two_sets=False, **padding):
    A_q, A_o, A_k = features(p.S, p.q, p.o, p.k)
    extra = {}
    if two_sets:
        A_k, other = features(p.S2, p.k, p.o)
        extra = {"key_set_features_o": other, "latent_variance": ones(p.o)}
    return sparse_correlated.latent_terms(
        A_q, A_o, A_k, p.v, ones(p.q), noise=noise, conditional=conditional, **extra, **padding
    )


TERMS = {"direct": direct, "latent": latent}


def arrays(p: Problem):
    return (x.detach().numpy() for x in p)


def dense_low_rank(p: Problem, coupling: str, noise=NOISE):
    """Mean and the covariance without D, by explicit inverses."""
    q, k, o, v, S, _ = arrays(p)
    if coupling == "latent":
        return oracles.sparse_latent(q, k, o, v, S, S, noise)
    inner = np.linalg.inv(oracles.rbf(S, S) + oracles.rbf(S, k) @ oracles.rbf(k, S) / noise)
    return oracles.nystrom(q, S, k) @ v, oracles.rbf(q, S) @ inner @ oracles.rbf(S, q)


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("conditional", ["dtc", "sor"])
def test_posterior_matches_dense_algebra(coupling, conditional):
    p = make_problem()
    mean, covariance = dense_low_rank(p, coupling)
    q, S = p.q.numpy(), p.S.numpy()
    D = np.diag(1 - np.diag(oracles.nystrom(q, S))) if conditional == "dtc" else NOISE * np.eye(len(q))
    posterior = sparse_correlated.posterior(TERMS[coupling](p, conditional=conditional))
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance, covariance + D, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance + D), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("conditional", ["dtc", "sor"])
def test_two_inducing_sets_match_dense_algebra(conditional):
    p = make_problem()
    q, k, o, v, S, S2 = arrays(p)
    mean, covariance = oracles.sparse_latent(q, k, o, v, S, S2, NOISE)
    if conditional == "dtc":  # what the second set does not explain of z_o joins its noise
        inverse_m = np.linalg.inv(oracles.rbf(S, S) + oracles.rbf(S, o) @ oracles.rbf(o, S) / NOISE)
        G = oracles.rbf(q, S) @ inverse_m @ oracles.rbf(S, o) / NOISE
        unexplained = 1 - np.diag(oracles.nystrom(o, S2))
        covariance = covariance + G * unexplained @ G.T + np.diag(1 - np.diag(oracles.nystrom(q, S)))
    else:
        covariance = covariance + NOISE * np.eye(len(q))
    posterior = sparse_correlated.posterior(latent(p, conditional=conditional, two_sets=True))
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-8, atol=1e-10)


def test_direct_form_is_one_dtc_hop_from_its_targets():
    """Mean and covariance of DTC regression on Z = (Q_k + noise I) V, conditioned densely."""
    p = make_problem()
    q, k, _, v, S, _ = arrays(p)
    Q_k, Q_qk, Q_q = oracles.nystrom(k, S), oracles.nystrom(q, S, k), oracles.nystrom(q, S)
    noisy = Q_k + NOISE * np.eye(len(k))
    Z = noisy @ v
    terms = direct(p)
    np.testing.assert_allclose(terms.targets, Z, rtol=1e-9)
    np.testing.assert_allclose(terms.mean, Q_qk @ np.linalg.inv(noisy) @ Z, rtol=1e-8)
    expected = oracles.rbf(q, q).diagonal() - np.diag(Q_qk @ np.linalg.inv(noisy) @ Q_qk.T)
    np.testing.assert_allclose(sparse_correlated.posterior(terms).variance, expected, rtol=1e-8)
    assert Q_q.shape == (6, 6)


@pytest.mark.parametrize("coupling", TERMS)
def test_variance_returns_to_the_prior_for_far_queries_and_far_keys_with_dtc_only(coupling):
    p = make_problem(sizes=(6, 6, 6))
    far_queries, far_keys = p._replace(q=p.q + 100.0), p._replace(k=p.k + 100.0)
    for far in (far_queries, far_keys):
        dtc = sparse_correlated.posterior(TERMS[coupling](far, conditional="dtc")).variance
        torch.testing.assert_close(dtc, ones(p.q))
    sor = sparse_correlated.posterior(TERMS[coupling](far_queries, conditional="sor")).variance
    torch.testing.assert_close(sor, NOISE * ones(p.q))


def test_two_inducing_sets_understate_the_variance_of_far_keys():
    """AttentionInputs that move together, unseen by the second set: its residual enters as if they were independent."""
    p = make_problem(sizes=(6, 6, 6))
    together = p._replace(q=0.3 * p.q, o=0.3 * p.o, S=0.3 * p.S, S2=p.S2 + 5.0, k=p.k + 100.0)
    one, two = (sparse_correlated.posterior(latent(together, two_sets=two)).variance for two in (False, True))
    torch.testing.assert_close(one, ones(p.q))
    assert two.min() < 0.5


@pytest.mark.parametrize("coupling", TERMS)
def test_inducing_inputs_at_the_data_make_the_sparse_form_exact(coupling):
    p = make_problem(sizes=(4, 4, 4))
    p = p._replace(S=torch.cat([p.q, p.k, p.o]))
    K_q, K_k, K_o = gram(p.q), gram(p.k), gram(p.o)
    if coupling == "direct":
        exact = correlated.direct_terms(gram(p.q, p.k), K_k, p.v, noise=NOISE)
    else:
        noisy = K_k + NOISE * torch.eye(4, dtype=torch.float64)
        targets = torch.cholesky_solve(p.v, torch.linalg.cholesky(noisy))  # CGPT's sparse targets are V itself
        exact = correlated.latent_terms(gram(p.q, p.o), K_o, gram(p.k, p.o), K_k, targets, noise=NOISE)
    sparse = sparse_correlated.posterior(TERMS[coupling](p))
    reference = correlated.joint_posterior(exact, K_q)
    torch.testing.assert_close(sparse.mean, reference.mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(sparse.covariance, reference.covariance, rtol=1e-6, atol=1e-7)


def expected_objective(p: Problem, coupling: str, objective: str, conditional: str) -> float:
    q, k, _, v, S, _ = arrays(p)
    mean, low_rank = dense_low_rank(p, coupling)
    Q_q, Q_k = oracles.nystrom(q, S), oracles.nystrom(k, S)
    D = (1 - np.diag(Q_q) if conditional == "dtc" else 0 * q[:, 0]) + NOISE
    noisy_k = Q_k + NOISE * np.eye(len(k))
    Z = noisy_k @ v if coupling == "direct" else v
    if objective == "marginal":
        return oracles.log_normal(mean, Q_q + np.diag(D)) + oracles.log_normal(Z, noisy_k)
    if objective == "joint":
        return oracles.log_normal(0 * mean, low_rank + np.diag(D)) + oracles.log_normal(Z, noisy_k)
    total = 0.0
    for y, Q, delta in ((mean, Q_q, D), (Z, Q_k, np.full(len(k), NOISE))):
        squares = (y**2).sum(1) + y.shape[1] * np.diag(Q)
        total += -0.5 * (squares / delta + y.shape[1] * np.log(2 * math.pi * delta)).sum()
    return total


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("conditional", ["dtc", "sor"])
@pytest.mark.parametrize("objective", ["marginal", "joint", "elbo"])
def test_objective_matches_dense_algebra(coupling, objective, conditional):
    p = make_problem()
    value = log_density(TERMS[coupling](p, conditional=conditional), objective)
    assert float(value) == pytest.approx(expected_objective(p, coupling, objective, conditional), rel=1e-8)


def test_sor_elbo_is_the_corrected_bound_of_appendix_e():
    """−(n/2) log 2πσ² − (‖ν‖² + tr Q_q)/2σ² a column, and likewise for the keys."""
    p = make_problem(columns=1)
    terms = latent(p, conditional="sor")
    q, k, _, _, S, _ = arrays(p)
    expected = 0.0
    for y, x in ((terms.mean.numpy(), q), (terms.targets.numpy(), k)):
        n = len(x)
        expected -= n / 2 * math.log(2 * math.pi * NOISE)
        expected -= ((y**2).sum() + np.trace(oracles.nystrom(x, S))) / (2 * NOISE)
    assert float(log_density(terms, "elbo")) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("coupling", TERMS)
def test_sampled_bound_agrees_with_its_expectation_by_an_independent_sampler(coupling):
    p = make_problem(columns=1)
    terms = TERMS[coupling](p, conditional="sor")
    batches = torch.stack(
        [log_density(terms, "paper_mc", torch.Generator().manual_seed(i), 2_000) for i in range(20)]
    ).numpy()
    q, k, o, _, S, _ = arrays(p)
    rng = np.random.default_rng(0)
    reference = []
    L = np.linalg.cholesky(oracles.rbf(S, S))
    inverse_m = np.linalg.inv(oracles.rbf(S, S) + oracles.rbf(S, o) @ oracles.rbf(o, S) / NOISE)
    for _ in range(4_000):
        u = L @ rng.standard_normal(len(S))
        z_o = oracles.rbf(o, S) @ np.linalg.solve(oracles.rbf(S, S), u) + NOISE**0.5 * rng.standard_normal(len(o))
        total = 0.0
        for y, x in ((terms.mean.numpy(), q), (terms.targets.numpy(), k)):
            if coupling == "direct":
                mean, cov = oracles.rbf(x, S) @ np.linalg.solve(oracles.rbf(S, S), u), NOISE * np.eye(len(x))
            else:
                mean = oracles.rbf(x, S) @ inverse_m @ oracles.rbf(S, o) @ z_o / NOISE
                cov = NOISE * np.eye(len(x)) + oracles.rbf(x, S) @ inverse_m @ oracles.rbf(S, x)
            total += oracles.log_normal(y - mean[:, None], cov)
        reference.append(total)
    error = np.hypot(batches.std() / 20**0.5, np.std(reference) / len(reference) ** 0.5)
    assert abs(batches.mean() - np.mean(reference)) < 4 * error


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("conditional", ["dtc", "sor"])
def test_gradients(coupling, objective, conditional):
    p = make_problem(sizes=(3, 4, 3), inducing=(2, 2), width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(q, k, o, v, S, noise):
        terms = TERMS[coupling](Problem(q, k, o, v, S, p.S2), noise, conditional)
        posterior = sparse_correlated.posterior(terms)
        density = log_density(terms, objective, torch.Generator().manual_seed(0))
        return posterior.mean, posterior.covariance, density

    inputs = [x.requires_grad_() for x in p[:5]]
    if coupling == "direct":
        assert torch.autograd.gradcheck(
            lambda q, k, v, S, n: value(q, k, p.o.detach(), v, S, n), (p.q, p.k, p.v, p.S, noise)
        )
    else:
        assert torch.autograd.gradcheck(value, (*inputs, noise))


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("conditional", ["dtc", "sor"])
@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
def test_padding_equals_removal(coupling, objective, conditional, seed, real):
    full = make_problem((5, 5, 5), seed=seed)
    padding = torch.arange(5) >= real
    short = full._replace(q=full.q[:real], k=full.k[:real], o=full.o[:real], v=full.v[:real])
    options = {"query_padding": padding, "key_padding": padding}
    if coupling == "latent":
        options["latent_padding"] = padding
    padded, removed = (
        TERMS[coupling](full, conditional=conditional, **options),
        TERMS[coupling](short, conditional=conditional),
    )
    a, b = sparse_correlated.posterior(padded), sparse_correlated.posterior(removed)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.covariance[:real, :real], b.covariance, rtol=1e-8, atol=1e-10)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    if objective != "paper_mc":  # its draws differ
        values = log_density(padded, objective), log_density(removed, objective)
        torch.testing.assert_close(*values, rtol=1e-8, atol=1e-8)
    assert torch.isfinite(log_density(padded, objective))


@pytest.mark.parametrize("conditional", ["dtc", "sor"])
def test_gradients_with_two_inducing_sets(conditional):
    p = make_problem(sizes=(3, 4, 3), inducing=(2, 2), width=2)

    def value(*inputs):
        terms = latent(Problem(*inputs), conditional=conditional, two_sets=True)
        posterior = sparse_correlated.posterior(terms)
        return posterior.mean, posterior.covariance, log_density(terms, "joint")

    assert torch.autograd.gradcheck(value, tuple(x.requires_grad_() for x in p))


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch_equals_loop(coupling, batch):
    p = make_problem(batch=batch)
    together = sparse_correlated.posterior(terms := TERMS[coupling](p))
    density = log_density(terms, "joint")
    for index in np.ndindex(*batch):
        alone = sparse_correlated.posterior(t := TERMS[coupling](Problem(*(x[index] for x in p))))
        torch.testing.assert_close(together.mean[index], alone.mean)
        torch.testing.assert_close(together.covariance[index], alone.covariance)
        torch.testing.assert_close(density[index], log_density(t, "joint"))


def test_worst_case_of_float32_keeps_its_variances():
    """n = 512 tokens in two dimensions, noise 1e-4: K_mm has condition 1e9, I + AA'/noise does not."""
    generator = torch.Generator().manual_seed(0)
    q, k, S = (torch.randn(n, 2, generator=generator) for n in (512, 512, 64))
    v = torch.randn(512, 1, generator=generator)

    def variance(dtype):
        factor = cholesky(gram(S.to(dtype)), name="K_mm", jitter=1e-5)  # the same model in both precisions
        A_q, A_k = (inverse_factor(factor) @ gram(S.to(dtype), x.to(dtype)) for x in (q, k))
        terms = sparse_correlated.direct_terms(A_q, A_k, v.to(dtype), ones(q).to(dtype), noise=1e-4)
        return sparse_correlated.posterior(terms).variance.double()

    single, double = variance(torch.float32), variance(torch.float64)
    assert single.min() >= 0
    assert (single - double).abs().max() < 2e-3


def test_unknown_words_are_refused():
    p = make_problem()
    with pytest.raises(ValueError, match="objective: expected"):
        log_density(direct(p), "map")
    with pytest.raises(ValueError, match="conditional: expected"):
        direct(p, conditional="fitc")
    A = features(p.S, p.q, p.o, p.k)
    with pytest.raises(ValueError, match="latent_variance: expected"):
        sparse_correlated.latent_terms(*A, p.v, ones(p.q), noise=0.1, key_set_features_o=A[1])
