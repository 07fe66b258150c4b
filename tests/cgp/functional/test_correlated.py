"""The exact correlated posterior and its objectives against dense float64 algebra."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cgp.functional.correlated import ExactPosterior, ObservedKeys, latent_coupling
from cgp.functional.kernels import squared_exponential as gram
from tests import oracles
from tests.cgp.functional.correlated_problems import (
    NOISE,
    check_dense_algebra,
    check_gradients,
    check_padding_is_removal,
    dense,
    every_coupling,
    exact,
    make_problem,
    ones,
    sparse,
)


@pytest.mark.parametrize("form", ["exact"])
@every_coupling
class TestPosterior:
    def test_posterior_and_objectives_match_dense_algebra(self, form, coupling):
        check_dense_algebra(form, coupling)

    def test_gradients(self, form, coupling):
        check_gradients(form, coupling)

    @given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
    def test_padding_equals_removal(self, form, coupling, seed, real):
        check_padding_is_removal(form, coupling, seed, real)


def test_second_inverse_cancels_from_the_mean():
    """V⁺ = C (K_k + noise I)^-1 Z with Z = (K_k + noise I) V, CGPT (25); the mean needs no C."""
    p = make_problem()
    expected = dense(p, "exact", "latent")
    by_inverse = oracles.latent_cross(p.q, p.k, p.o, NOISE) @ np.linalg.inv(expected.noisy_keys) @ expected.targets
    mean = latent_coupling(gram(p.q, p.o), gram(p.o), gram(p.o, p.k) @ p.v, noise=NOISE)
    np.testing.assert_allclose(mean, by_inverse, rtol=1e-9)


@every_coupling
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([1e-4, 1e-2, 1.0]))
def test_joint_prior_is_semi_definite_and_posterior_below_the_prior(coupling, seed, noise):
    p = make_problem(seed=seed)
    posterior = exact(p, coupling, noise)
    prior = torch.cat([torch.cat([gram(p.q), posterior.C], -1), torch.cat([posterior.C.mT, gram(p.k)], -1)], -2)
    for matrix in (prior, posterior.covariance, gram(p.q) - posterior.covariance):
        assert torch.linalg.eigvalsh(matrix).min() > -1e-9


def test_scales_left_out_of_the_coupling_break_the_conditional():
    """CGPT's text below (20): without sigma_q in K_qo the conditional covariance is indefinite; with it, it is not."""
    p = make_problem(sizes=(12, 5, 12))
    q, o, scale = p.q.numpy(), p.q.numpy() + 0.01 * p.o.numpy(), 0.7
    explained = oracles.rbf(q, o) @ np.linalg.inv(oracles.rbf(o, o) + NOISE * np.eye(12)) @ oracles.rbf(o, q)
    assert np.linalg.eigvalsh(scale**2 * oracles.rbf(q, q) - explained).min() < -0.3
    assert np.linalg.eigvalsh(scale**2 * (oracles.rbf(q, q) - explained)).min() > -1e-9


def test_joint_objective_is_the_density_of_the_coherent_joint_model():
    """(26): the quadratic form of the conditional mean vanishes; with the outputs noisy, so does the split's slack."""
    p = make_problem()
    expected, C = dense(p, "exact", "direct"), oracles.rbf(p.q, p.k)
    K = np.block([[expected.outputs, C], [C.T, expected.noisy_keys]])
    stacked = np.concatenate([expected.mean, expected.targets])
    assert float(exact(p, "direct").log_density("joint")) == pytest.approx(oracles.log_normal(stacked, K), rel=1e-9)


def test_targets_with_noise_of_their_own_are_plain_regression():
    """Noise per observation, several outputs: mean, covariance and evidence by dense algebra; values say the same."""
    p, noise = make_problem(), torch.rand(5, dtype=torch.float64) + 0.1
    K_qk, K_k = gram(p.q, p.k), gram(p.k)
    keys = ObservedKeys(K_k, noise=noise, targets=p.v)
    posterior = ExactPosterior(K_qk, keys, ones(p.q), K_q=lambda: gram(p.q))
    K, noisy = oracles.rbf(p.q, p.k), oracles.rbf(p.k, p.k) + np.diag(noise)
    np.testing.assert_allclose(posterior.mean, K @ np.linalg.inv(noisy) @ p.v.numpy(), rtol=1e-9)
    np.testing.assert_allclose(posterior.covariance, oracles.rbf(p.q, p.q) - K @ np.linalg.inv(noisy) @ K.T, atol=1e-10)
    assert float(keys.log_evidence) == pytest.approx(oracles.log_normal(p.v.numpy(), noisy), rel=1e-9)
    values = torch.linalg.solve_triangular(keys.factor.mT, keys.whitened_targets, upper=True)
    by_values = ExactPosterior(K_qk, ObservedKeys(K_k, noise=noise, values=values), ones(p.q))
    torch.testing.assert_close(by_values.mean, posterior.mean)
    torch.testing.assert_close(by_values.keys.log_evidence, keys.log_evidence)


def test_only_requested_properties_are_computed():
    posterior = exact(make_problem(), "direct")
    assert posterior.mean.shape == (6, 2)
    assert "factor" not in vars(posterior)
    assert posterior.variance is posterior.variance
    assert "K_q" not in vars(posterior)


def test_unknown_words_are_refused():
    for posterior in (exact(make_problem(), "direct"), sparse(make_problem(), "direct")):
        with pytest.raises(ValueError, match="objective: expected"):
            posterior.log_density("map")
    with pytest.raises(ValueError, match="approximation: expected"):
        sparse(make_problem(), "direct", approximation="fitc")
