"""The exact correlated posterior and its objectives against dense float64 algebra."""

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
    return posterior_of(p, gram(p.q, p.k), noise, **padding)


def latent(p: Problem, noise=NOISE, **padding):
    C = latent_coupling(gram(p.q, p.o), gram(p.o), gram(p.o, p.k), noise=noise, padding=padding.get("key_padding"))
    return posterior_of(p, C, noise, **padding)


def posterior_of(p: Problem, C: Tensor, noise, **padding):
    one = torch.ones_like(p.q[..., 0])
    return ExactPosterior(C, gram(p.k), one, noise=noise, values=p.v, K_q=lambda: gram(p.q), **padding)


POSTERIORS = {"direct": direct, "latent": latent}


def dense(p: Problem, coupling: str, noise=NOISE):
    q, k, o = (x.detach().numpy() for x in p[:3])
    C = oracles.rbf(q, k) if coupling == "direct" else oracles.latent_cross(q, k, o, noise)
    return C, oracles.conditional(oracles.rbf(q, q), C, oracles.rbf(k, k), noise)


@pytest.mark.parametrize("coupling", POSTERIORS)
def test_posterior_matches_dense_algebra(coupling):
    p = make_problem()
    C, covariance = dense(p, coupling)
    posterior = POSTERIORS[coupling](p)
    np.testing.assert_allclose(posterior.mean, C @ p.v.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-9, atol=1e-10)


def test_second_inverse_cancels_from_the_mean():
    """V⁺ = C (K_k + noise I)^-1 Z with Z = (K_k + noise I) V, CGPT (25)."""
    p = make_problem()
    k = p.k.numpy()
    noisy = oracles.rbf(k, k) + NOISE * np.eye(len(k))
    C = oracles.latent_cross(p.q.numpy(), k, p.o.numpy(), NOISE)
    expected = C @ np.linalg.inv(noisy) @ (noisy @ p.v.numpy())
    np.testing.assert_allclose(latent(p).mean, expected, rtol=1e-9)
    mean = latent_coupling(gram(p.q, p.o), gram(p.o), gram(p.o, p.k) @ p.v, noise=NOISE)
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


@pytest.mark.parametrize("coupling", POSTERIORS)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([1e-4, 1e-2, 1.0]))
def test_joint_prior_is_positive_semi_definite_and_posterior_below_the_prior(coupling, seed, noise):
    p = make_problem(seed=seed)
    C, _ = dense(p, coupling, noise)
    q, k = p.q.numpy(), p.k.numpy()
    prior = np.block([[oracles.rbf(q, q), C], [C.T, oracles.rbf(k, k)]])
    assert np.linalg.eigvalsh(prior).min() > -1e-9
    covariance = POSTERIORS[coupling](p, noise).covariance.numpy()
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.linalg.eigvalsh(oracles.rbf(q, q) - covariance).min() > -1e-9


def test_two_hops_have_a_larger_trace_than_one():
    for seed in range(50):
        p = make_problem(seed=seed)
        one, two = (POSTERIORS[c](p).variance.sum() for c in ("direct", "latent"))
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
    q, k, _, v = (x.numpy() for x in p)
    C, V = dense(p, coupling)
    noisy_k = oracles.rbf(k, k) + NOISE * np.eye(len(k))
    Z, nu = noisy_k @ v, C @ v
    if objective == "marginal":
        return oracles.log_normal(nu, oracles.rbf(q, q) + NOISE * np.eye(len(q))) + oracles.log_normal(Z, noisy_k)
    if objective == "joint":
        return oracles.log_normal(0 * nu, V + NOISE * np.eye(len(q))) + oracles.log_normal(Z, noisy_k)
    raise AssertionError(objective)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objective_matches_dense_algebra(coupling, objective):
    p = make_problem()
    value = POSTERIORS[coupling](p).log_density(objective)
    assert float(value) == pytest.approx(expected_objective(p, coupling, objective), rel=1e-9)


def test_joint_objective_is_the_density_of_the_coherent_joint_model():
    """(26): the quadratic form of the conditional mean vanishes; with the outputs noisy, so does the split's slack."""
    p = make_problem()
    q, k, v = p.q.numpy(), p.k.numpy(), p.v.numpy()
    C, _ = dense(p, "direct")
    K = np.block([[oracles.rbf(q, q) + NOISE * np.eye(6), C], [C.T, oracles.rbf(k, k) + NOISE * np.eye(5)]])
    stacked = np.concatenate([C @ v, (oracles.rbf(k, k) + NOISE * np.eye(5)) @ v])
    assert float(direct(p).log_density("joint")) == pytest.approx(oracles.log_normal(stacked, K), rel=1e-9)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients(coupling, objective):
    p = make_problem(num_queries=3, num_keys=4, num_latent=3, width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(q, k, o, v, noise):
        posterior = POSTERIORS[coupling](Problem(q, k, o, v), noise)
        return posterior.mean, posterior.covariance, posterior.variance, posterior.log_density(objective)

    inputs = tuple(x.requires_grad_() for x in p)
    if coupling == "direct":
        assert torch.autograd.gradcheck(lambda q, k, v, n: value(q, k, p.o.detach(), v, n), (p.q, p.k, p.v, noise))
    else:
        assert torch.autograd.gradcheck(value, (*inputs, noise))


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
def test_padding_equals_removal(coupling, objective, seed, real):
    full = make_problem(5, 5, 5, seed=seed)
    padding = torch.arange(5) >= real
    short = Problem(*(x[:real] for x in full))
    a, b = POSTERIORS[coupling](full, query_padding=padding, key_padding=padding), POSTERIORS[coupling](short)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(a.covariance[:real, :real], b.covariance, rtol=1e-9, atol=1e-11)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    torch.testing.assert_close(a.log_density(objective), b.log_density(objective), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coupling", POSTERIORS)
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch_equals_loop(coupling, batch):
    p = make_problem(batch=batch)
    together = POSTERIORS[coupling](p)
    for index in np.ndindex(*batch):
        single = POSTERIORS[coupling](Problem(*(x[index] for x in p)))
        torch.testing.assert_close(together.mean[index], single.mean)
        torch.testing.assert_close(together.covariance[index], single.covariance)
        torch.testing.assert_close(together.log_density("joint")[index], single.log_density("joint"))


def test_targets_with_noise_of_their_own_are_plain_regression():
    """Noise per observation, several outputs: mean, covariance and evidence by dense algebra; values say the same."""
    p, noise = make_problem(), torch.rand(5, dtype=torch.float64) + 0.1
    options = {"noise": noise, "K_q": lambda: gram(p.q)}
    posterior = ExactPosterior(gram(p.q, p.k), gram(p.k), torch.ones(6).double(), targets=p.v, **options)
    K, noisy = oracles.rbf(p.q, p.k), oracles.rbf(p.k, p.k) + np.diag(noise)
    np.testing.assert_allclose(posterior.mean, K @ np.linalg.inv(noisy) @ p.v.numpy(), rtol=1e-9)
    np.testing.assert_allclose(posterior.covariance, oracles.rbf(p.q, p.q) - K @ np.linalg.inv(noisy) @ K.T, atol=1e-10)
    assert float(posterior.log_evidence) == pytest.approx(oracles.log_normal(p.v.numpy(), noisy), rel=1e-9)
    values = torch.linalg.solve_triangular(posterior.factor.mT, posterior.whitened_targets, upper=True)
    by_values = ExactPosterior(gram(p.q, p.k), gram(p.k), torch.ones(6).double(), values=values, **options)
    torch.testing.assert_close(by_values.mean, posterior.mean)
    torch.testing.assert_close(by_values.log_evidence, posterior.log_evidence)


def test_only_what_is_asked_for_is_computed():
    p = make_problem()
    posterior = direct(p)
    assert posterior.mean.shape == (6, 2)
    assert "factor" not in vars(posterior)
    assert posterior.variance is posterior.variance
    assert "K_q" not in vars(posterior)


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="objective: expected"):
        direct(make_problem()).log_density("map")
