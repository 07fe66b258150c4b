"""Small problems of the exact and sparse correlated posteriors, by the package and by dense float64 algebra."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from cgp.functional.correlated import OBJECTIVES, ExactPosterior, ObservedKeys, latent_coupling
from cgp.functional.kernels import squared_exponential as gram
from cgp.functional.sparse_correlated import SparseCorrelatedPosterior
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


FORMS: dict[str, Any] = {"exact": exact, "dtc": sparse, "sor": sor}
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
    residual = unexplained if form == "dtc" else noise * eye_q
    apart = unexplained + noise * eye_q
    targets = noisy @ v if coupling == "direct" else v  # CGPT's sparse targets are V itself
    return Dense(mean, low_rank + residual, Q_q + apart, low_rank + apart, targets, noisy)


def check_dense_algebra(form, coupling):
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


def check_gradients(form, coupling):
    p = make_problem(sizes=(3, 4, 3), inducing=2, width=2)
    noise = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)

    def value(*inputs):
        posterior = FORMS[form](Problem._make(inputs[:-1]), coupling, inputs[-1])
        densities = (posterior.log_density(objective) for objective in OBJECTIVES)
        return posterior.mean, posterior.variance, posterior.joint().covariance, *densities

    assert torch.autograd.gradcheck(value, (*(x.requires_grad_() for x in p), noise))


def check_padding_is_removal(form, coupling, seed, real):
    full, padding = make_problem((5, 5, 5), seed=seed), torch.arange(5) >= real
    q, k, o, v = (x[:real] for x in full[:4])
    short = Problem(q, k, o, v, full.S)
    a = FORMS[form](full, coupling, query_padding=padding, key_padding=padding)
    b = FORMS[form](short, coupling)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.joint().covariance[:real, :real], b.joint().covariance, rtol=1e-8, atol=1e-10)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    for objective in OBJECTIVES:
        torch.testing.assert_close(a.log_density(objective), b.log_density(objective), rtol=1e-8, atol=1e-8)
