"""The exact and sparse correlated posteriors and their objectives against dense float64 algebra."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cgp.functional.correlated import OBJECTIVES, ExactPosterior, ObservedKeys, latent_coupling
from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.linalg import cholesky, inverse_factor
from cgp.functional.sparse_correlated import InducingPosterior, SparseCorrelatedPosterior, SparsePosterior
from tests import oracles

NOISE = 0.07


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    o: Tensor
    v: Tensor
    S: Tensor


def make_problem(sizes=(6, 5, 7), inducing=4, width=3, columns=2, seed=0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    shapes = *((n, width) for n in sizes), (sizes[1], columns), (inducing, width)
    return Problem(*(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes))


def ones(x: Tensor) -> Tensor:
    return torch.ones_like(x[..., 0])


def whitened(S: Tensor, *points: Tensor) -> list[Tensor]:
    """Whitened features without the jitter of the package's own factor of K_mm, so that oracles can be met to 1e-9."""
    return [torch.linalg.solve_triangular(torch.linalg.cholesky(gram(S)), gram(S, x), upper=False) for x in points]


def exact(p: Problem, coupling: str, noise=NOISE, query_padding=None, key_padding=None) -> ExactPosterior:
    C = gram(p.q, p.k)
    if coupling == "latent":
        K_qo, K_o, K_ok = gram(p.q, p.o), gram(p.o), gram(p.o, p.k)
        C = latent_coupling(K_qo, K_o, K_ok, noise=noise, padding=key_padding)
    keys = ObservedKeys(gram(p.k), noise=noise, values=p.v, padding=key_padding)
    return ExactPosterior(C, keys, ones(p.q), K_q=lambda: gram(p.q), padding=query_padding)


def sparse(p: Problem, coupling: str, noise=NOISE, approximation="dtc", **padding) -> SparseCorrelatedPosterior:
    A_q, A_o, A_k = whitened(p.S, p.q, p.o, p.k)
    options = {"features_o": A_o if coupling == "latent" else None, "approximation": approximation, **padding}
    return SparseCorrelatedPosterior(A_q, A_k, p.v, ones(p.q), noise=noise, **options)


def sor(p: Problem, coupling: str, noise=NOISE, **padding) -> SparseCorrelatedPosterior:
    return sparse(p, coupling, noise, "sor", **padding)


FORMS = {"exact": exact, "dtc": sparse, "sor": sor}
every_form = pytest.mark.parametrize("form", FORMS)
every_coupling = pytest.mark.parametrize("coupling", ["direct", "latent"])


class Dense(NamedTuple):
    """By explicit inverses: what the posterior is, and the Gaussians that the objectives are made of."""

    mean: np.ndarray
    covariance: np.ndarray
    outputs: np.ndarray  # covariance of the noisy outputs before the keys are seen
    given_keys: np.ndarray  # and after
    targets: np.ndarray
    noisy_keys: np.ndarray


def dense(p: Problem, form: str, coupling: str, noise=NOISE) -> Dense:
    q, k, o, v, S = (x.detach().numpy() for x in p)
    eye_q, eye_k = np.eye(len(q)), np.eye(len(k))
    if form == "exact":
        C = oracles.rbf(q, k) if coupling == "direct" else oracles.latent_cross(q, k, o, noise)
        K_q, noisy = oracles.rbf(q, q), oracles.rbf(k, k) + noise * eye_k
        covariance = oracles.conditional(K_q, C, oracles.rbf(k, k), noise)
        return Dense(C @ v, covariance, K_q + noise * eye_q, covariance + noise * eye_q, noisy @ v, noisy)
    Q_q, noisy = oracles.nystrom(q, S), oracles.nystrom(k, S) + noise * eye_k
    if coupling == "latent":
        mean, low_rank = oracles.sparse_latent(q, k, o, v, S, S, noise)
    else:
        inner = np.linalg.inv(oracles.rbf(S, S) + oracles.rbf(S, k) @ oracles.rbf(k, S) / noise)
        mean, low_rank = oracles.nystrom(q, S, k) @ v, oracles.rbf(q, S) @ inner @ oracles.rbf(S, q)
    unexplained = np.diag(1 - np.diag(Q_q)) if form == "dtc" else 0 * eye_q
    own = unexplained if form == "dtc" else noise * eye_q
    apart = unexplained + noise * eye_q
    targets = noisy @ v if coupling == "direct" else v  # CGPT's sparse targets are V itself
    return Dense(mean, low_rank + own, Q_q + apart, low_rank + apart, targets, noisy)


@every_form
@every_coupling
def test_posterior_and_objectives_match_dense_algebra(form, coupling):
    p = make_problem()
    posterior, expected = FORMS[form](p, coupling), dense(p, form, coupling)
    np.testing.assert_allclose(posterior.mean, expected.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.joint().covariance, expected.covariance, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(expected.covariance), rtol=1e-8, atol=1e-10)
    targets = posterior.keys.targets if form == "exact" else posterior.targets
    np.testing.assert_allclose(targets, expected.targets, rtol=1e-8)
    evidence = oracles.log_normal(expected.targets, expected.noisy_keys)
    marginal = oracles.log_normal(expected.mean, expected.outputs) + evidence
    joint = oracles.log_normal(0 * expected.mean, expected.given_keys) + evidence
    assert float(posterior.log_density("marginal")) == pytest.approx(marginal, rel=1e-8)
    assert float(posterior.log_density("joint")) == pytest.approx(joint, rel=1e-8)


@every_form
@every_coupling
def test_gradients(form, coupling):
    p = make_problem(sizes=(3, 4, 3), inducing=2, width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(*inputs):
        posterior = FORMS[form](Problem(*inputs[:-1]), coupling, inputs[-1])
        densities = (posterior.log_density(objective) for objective in OBJECTIVES)
        return posterior.mean, posterior.variance, posterior.joint().covariance, *densities

    assert torch.autograd.gradcheck(value, (*(x.requires_grad_() for x in p), noise))


@every_form
@every_coupling
@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
def test_padding_equals_removal(form, coupling, seed, real):
    full, padding = make_problem((5, 5, 5), seed=seed), torch.arange(5) >= real
    short = Problem(*(x[:real] for x in full[:4]), full.S)
    a = FORMS[form](full, coupling, query_padding=padding, key_padding=padding)
    b = FORMS[form](short, coupling)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.joint().covariance[:real, :real], b.joint().covariance, rtol=1e-8, atol=1e-10)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    for objective in OBJECTIVES:
        torch.testing.assert_close(a.log_density(objective), b.log_density(objective), rtol=1e-8, atol=1e-8)


def test_second_inverse_cancels_from_the_mean():
    """V⁺ = C (K_k + noise I)^-1 Z with Z = (K_k + noise I) V, CGPT (25); the mean needs no C."""
    p = make_problem()
    expected = dense(p, "exact", "latent")
    by_inverse = oracles.latent_cross(p.q, p.k, p.o, NOISE) @ np.linalg.inv(expected.noisy_keys) @ expected.targets
    mean = latent_coupling(gram(p.q, p.o), gram(p.o), gram(p.o, p.k) @ p.v, noise=NOISE)
    np.testing.assert_allclose(mean, by_inverse, rtol=1e-9)


@every_coupling
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([1e-4, 1e-2, 1.0]))
def test_joint_prior_is_positive_semi_definite_and_posterior_below_the_prior(coupling, seed, noise):
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


@every_coupling
def test_variance_returns_to_the_prior_for_far_queries_and_far_keys_with_dtc_only(coupling):
    p = make_problem(sizes=(6, 6, 6))
    far_queries, far_keys = p._replace(q=p.q + 100.0), p._replace(k=p.k + 100.0)
    for far in (far_queries, far_keys):
        torch.testing.assert_close(sparse(far, coupling).variance, ones(p.q))
    torch.testing.assert_close(sor(far_queries, coupling).variance, NOISE * ones(p.q))


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
    prior, own = normal(torch.zeros(4).double(), torch.eye(4).double()), inducing.location.mT
    divergence = sum(torch.distributions.kl_divergence(normal(m, inducing.covariance), prior) for m in own)
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


def test_only_what_is_asked_for_is_computed():
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
