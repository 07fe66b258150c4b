"""The exact correlated posterior and its objectives against dense float64 algebra."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor

from cgp.functional import correlated
from cgp.functional.correlated_objective import OBJECTIVES, log_density
from cgp.functional.covariances import squared_exponential as gram
from tests import oracles

NOISE = 0.04


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    o: Tensor
    v: Tensor


def make_problem(num_queries=6, num_keys=5, num_latent=7, width=3, columns=2, seed=0, batch=()) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    sizes = (num_queries, width), (num_keys, width), (num_latent, width), (num_keys, columns)
    return Problem(*(torch.randn(*batch, *size, dtype=torch.float64, generator=generator) for size in sizes))


def direct(p: Problem, noise=NOISE, **padding):
    return correlated.direct_terms(gram(p.q, p.k), gram(p.k), p.v, noise=noise, **padding)


def latent(p: Problem, noise=NOISE, covariance="coherent", **padding):
    return correlated.latent_terms(
        gram(p.q, p.o), gram(p.o), gram(p.k, p.o), gram(p.k), p.v, noise=noise, covariance=covariance, **padding
    )


TERMS = {"direct": direct, "latent": latent}
PAIRS = [("direct", "marginal"), ("direct", "joint"), *(("latent", objective) for objective in OBJECTIVES)]


def dense(p: Problem, coupling: str, noise=NOISE):
    q, k, o = (x.detach().numpy() for x in p[:3])
    C = oracles.rbf(q, k) if coupling == "direct" else oracles.latent_cross(q, k, o, noise)
    return C, oracles.conditional(oracles.rbf(q, q), C, oracles.rbf(k, k), noise)


@pytest.mark.parametrize("coupling", TERMS)
def test_posterior_matches_dense_algebra(coupling):
    p = make_problem()
    C, covariance = dense(p, coupling)
    posterior = correlated.joint_posterior(TERMS[coupling](p), gram(p.q))
    np.testing.assert_allclose(posterior.mean, C @ p.v.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-9, atol=1e-10)
    marginal = correlated.marginal_posterior(TERMS[coupling](p), torch.ones(6, dtype=torch.float64))
    np.testing.assert_allclose(marginal.variance, np.diag(covariance), rtol=1e-9, atol=1e-10)


def test_paper_covariance_is_the_law_of_total_variance():
    p = make_problem()
    expected = oracles.paper_covariance(p.q.numpy(), p.k.numpy(), p.o.numpy(), NOISE)
    terms = latent(p, covariance="paper")
    np.testing.assert_allclose(correlated.joint_posterior(terms, gram(p.q)).covariance, expected, atol=1e-10)
    marginal = correlated.marginal_posterior(terms, torch.ones(6, dtype=torch.float64))
    np.testing.assert_allclose(marginal.variance, np.diag(expected), atol=1e-10)


def test_coherent_covariance_exceeds_the_papers_by_the_noise_of_the_second_hop():
    p = make_problem()
    coherent = correlated.joint_posterior(latent(p), gram(p.q)).covariance
    paper = correlated.joint_posterior(latent(p, covariance="paper"), gram(p.q)).covariance
    o = p.o.numpy()
    A_q = oracles.rbf(p.q.numpy(), o) @ np.linalg.inv(oracles.rbf(o, o) + NOISE * np.eye(len(o)))
    np.testing.assert_allclose(coherent - paper, NOISE * A_q @ A_q.T, atol=1e-10)


def test_second_inverse_cancels_from_the_mean():
    """V⁺ = C (K_k + noise I)^-1 Z with Z = (K_k + noise I) V, CGPT (25)."""
    p = make_problem()
    k = p.k.numpy()
    noisy = oracles.rbf(k, k) + NOISE * np.eye(len(k))
    C = oracles.latent_cross(p.q.numpy(), k, p.o.numpy(), NOISE)
    expected = C @ np.linalg.inv(noisy) @ (noisy @ p.v.numpy())
    np.testing.assert_allclose(latent(p).mean, expected, rtol=1e-9)
    mean = correlated.latent_mean(gram(p.q, p.o), gram(p.o), gram(p.k, p.o), p.v, noise=NOISE)
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


@pytest.mark.parametrize("coupling", TERMS)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([1e-4, 1e-2, 1.0]))
def test_joint_prior_is_positive_semi_definite_and_posterior_below_the_prior(coupling, seed, noise):
    p = make_problem(seed=seed)
    C, _ = dense(p, coupling, noise)
    q, k = p.q.numpy(), p.k.numpy()
    prior = np.block([[oracles.rbf(q, q), C], [C.T, oracles.rbf(k, k)]])
    assert np.linalg.eigvalsh(prior).min() > -1e-9
    covariance = correlated.joint_posterior(TERMS[coupling](p, noise), gram(p.q)).covariance.numpy()
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.linalg.eigvalsh(oracles.rbf(q, q) - covariance).min() > -1e-9


def test_two_hops_have_a_larger_trace_than_one():
    for seed in range(50):
        p = make_problem(seed=seed)
        one, two = (correlated.joint_posterior(TERMS[c](p), gram(p.q)).variance.sum() for c in ("direct", "latent"))
        assert two > one


def test_scales_left_out_of_the_coupling_break_the_conditional():
    """CGPT's text below (20): without sigma_q in K_qo the conditional covariance is indefinite; with it, it is not."""
    p = make_problem(num_queries=12, num_latent=12)
    q, o, scale = p.q.numpy(), p.q.numpy() + 0.01 * p.o.numpy(), 0.7
    inverse = np.linalg.inv(oracles.rbf(o, o) + NOISE * np.eye(12))
    K_q = scale**2 * oracles.rbf(q, q)
    without = K_q - oracles.rbf(q, o) @ inverse @ oracles.rbf(o, q)
    with_scale = K_q - scale**2 * oracles.rbf(q, o) @ inverse @ oracles.rbf(o, q)
    assert np.linalg.eigvalsh(without).min() < -0.3
    assert np.linalg.eigvalsh(with_scale).min() > -1e-9


def expected_objective(p: Problem, coupling: str, objective: str) -> float:
    q, k, o, v = (x.numpy() for x in p)
    C, V = dense(p, coupling)
    noisy_k = oracles.rbf(k, k) + NOISE * np.eye(len(k))
    Z, nu = noisy_k @ v, C @ v
    if objective == "marginal":
        return oracles.log_normal(nu, oracles.rbf(q, q) + NOISE * np.eye(len(q))) + oracles.log_normal(Z, noisy_k)
    if objective == "joint":
        return oracles.log_normal(0 * nu, V + NOISE * np.eye(len(q))) + oracles.log_normal(Z, noisy_k)
    total = 0.0
    inverse = np.linalg.inv(oracles.rbf(o, o) + NOISE * np.eye(len(o)))
    for x, y in ((q, nu), (k, Z)):
        A = oracles.rbf(x, o) @ inverse
        S = oracles.rbf(x, x) - A @ oracles.rbf(o, x) + NOISE * np.eye(len(x))
        spread = np.trace(np.linalg.inv(S) @ A @ oracles.rbf(o, o) @ A.T)
        total += oracles.log_normal(y, S) - 0.5 * y.shape[1] * spread
    return total


@pytest.mark.parametrize(
    ("coupling", "objective"),
    [("direct", "marginal"), ("direct", "joint"), ("latent", "marginal"), ("latent", "joint"), ("latent", "elbo")],
)
def test_objective_matches_dense_algebra(coupling, objective):
    p = make_problem()
    value = log_density(TERMS[coupling](p), gram(p.q), objective)
    assert float(value) == pytest.approx(expected_objective(p, coupling, objective), rel=1e-9)


def test_joint_objective_is_the_density_of_the_coherent_joint_model():
    """(26): the quadratic form of the conditional mean vanishes; with the outputs noisy, so does the split's slack."""
    p = make_problem()
    q, k, v = p.q.numpy(), p.k.numpy(), p.v.numpy()
    C, _ = dense(p, "direct")
    K = np.block([[oracles.rbf(q, q) + NOISE * np.eye(6), C], [C.T, oracles.rbf(k, k) + NOISE * np.eye(5)]])
    stacked = np.concatenate([C @ v, (oracles.rbf(k, k) + NOISE * np.eye(5)) @ v])
    assert float(log_density(direct(p), gram(p.q), "joint")) == pytest.approx(oracles.log_normal(stacked, K), rel=1e-9)


def test_marginal_of_the_papers_convention_matches_dense_algebra():
    p = make_problem()
    q, k, o, v = (x.numpy() for x in p)
    inverse = np.linalg.inv(oracles.rbf(o, o) + NOISE * np.eye(len(o)))
    total = 0.0
    C = oracles.latent_cross(q, k, o, NOISE)
    for x, y in ((q, C @ v), (k, (oracles.rbf(k, k) + NOISE * np.eye(5)) @ v)):
        A = oracles.rbf(x, o) @ inverse
        S = oracles.rbf(x, x) - A @ oracles.rbf(o, x) + A @ oracles.rbf(o, o) @ A.T + NOISE * np.eye(len(x))
        total += oracles.log_normal(y, S)
    value = log_density(latent(p, covariance="paper"), gram(p.q), "marginal")
    assert float(value) == pytest.approx(total, rel=1e-9)


def test_sampled_bound_agrees_with_its_closed_form_within_monte_carlo_error():
    p = make_problem(columns=1)
    terms, draws = latent(p), 20_000
    one_by_one = torch.stack(
        [log_density(terms, gram(p.q), "paper_mc", torch.Generator().manual_seed(i), draws // 20) for i in range(20)]
    )
    error = one_by_one.std() / 20**0.5
    assert abs(one_by_one.mean() - log_density(terms, gram(p.q), "elbo")) < 4 * error


def test_marginal_of_the_papers_convention_is_the_integral_that_the_paper_samples():
    """(27), log E[p(z_q = ν | z_o)] + log E[p(z_k | z_o)], by averaging densities over draws of z_o."""
    p = make_problem(num_queries=3, num_keys=3, num_latent=3, columns=1)
    terms, draws = latent(p, noise=1.0, covariance="paper"), 200_000
    q, k, o = (x.numpy() for x in p[:3])
    inverse = np.linalg.inv(oracles.rbf(o, o) + np.eye(3))
    z_o = np.linalg.cholesky(oracles.rbf(o, o)) @ np.random.default_rng(0).standard_normal((3, draws))
    total = 0.0
    targets = (oracles.rbf(k, k) + np.eye(3)) @ p.v.numpy()
    for x, y in ((q, terms.mean.numpy()), (k, targets)):
        A = oracles.rbf(x, o) @ inverse
        S = oracles.rbf(x, x) - A @ oracles.rbf(o, x) + np.eye(3)
        density = multivariate_normal(np.zeros(3), S).pdf((y - A @ z_o).T)
        total += np.log(density.mean())
    assert float(log_density(terms, gram(p.q), "marginal")) == pytest.approx(total, abs=0.02)


def test_jensen_bound_lies_below_the_marginal():
    for seed in range(20):
        terms = latent(p := make_problem(seed=seed), covariance="paper")
        assert log_density(terms, gram(p.q), "elbo") < log_density(terms, gram(p.q), "marginal")


@pytest.mark.parametrize(("coupling", "objective"), PAIRS)
def test_gradients(coupling, objective):
    p = make_problem(num_queries=3, num_keys=4, num_latent=3, width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(q, k, o, v, noise):
        problem = Problem(q, k, o, v)
        terms = TERMS[coupling](problem, noise)
        posterior = correlated.joint_posterior(terms, gram(q))
        marginal = correlated.marginal_posterior(terms, torch.ones(3, dtype=torch.float64))
        return (
            posterior.mean,
            posterior.covariance,
            marginal.variance,
            log_density(terms, gram(q), objective, torch.Generator().manual_seed(0)),
        )

    inputs = tuple(x.requires_grad_() for x in p)
    if coupling == "direct":
        assert torch.autograd.gradcheck(lambda q, k, v, n: value(q, k, p.o.detach(), v, n), (p.q, p.k, p.v, noise))
    else:
        assert torch.autograd.gradcheck(value, (*inputs, noise))


@pytest.mark.parametrize(("coupling", "objective"), PAIRS)
@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
def test_padding_equals_removal(coupling, objective, seed, real):
    full = make_problem(5, 5, 5, seed=seed)
    padding = torch.arange(5) >= real
    short = Problem(*(x[:real] for x in full))
    options = {"query_padding": padding, "key_padding": padding}
    if coupling == "latent":
        options["latent_padding"] = padding
    padded, removed = TERMS[coupling](full, **options), TERMS[coupling](short)
    a, b = (correlated.joint_posterior(t, gram(x.q)) for t, x in ((padded, full), (removed, short)))
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(a.covariance[:real, :real], b.covariance, rtol=1e-9, atol=1e-11)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    if objective != "paper_mc":  # its draws differ
        values = log_density(padded, gram(full.q), objective), log_density(removed, gram(short.q), objective)
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coupling", TERMS)
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch_equals_loop(coupling, batch):
    p = make_problem(batch=batch)
    together = correlated.joint_posterior(terms := TERMS[coupling](p), gram(p.q))
    density = log_density(terms, gram(p.q), "joint")
    for index in np.ndindex(*batch):
        single = Problem(*(x[index] for x in p))
        alone = correlated.joint_posterior(t := TERMS[coupling](single), gram(single.q))
        torch.testing.assert_close(together.mean[index], alone.mean)
        torch.testing.assert_close(together.covariance[index], alone.covariance)
        torch.testing.assert_close(density[index], log_density(t, gram(single.q), "joint"))


def test_unknown_words_are_refused():
    p = make_problem()
    with pytest.raises(ValueError, match="objective: expected"):
        log_density(direct(p), gram(p.q), "map")
    with pytest.raises(ValueError, match="needs the latent process"):
        log_density(direct(p), gram(p.q), "elbo")
    with pytest.raises(ValueError, match="covariance: expected"):
        latent(p, covariance="exact")
