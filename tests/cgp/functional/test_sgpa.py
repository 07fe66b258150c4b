"""Sparse Gaussian process attention against dense float64 algebra and divergences of explicit normals."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.functional import sgpa
from cgp.functional.kernels import CANONICAL
from cgp.functional.padding import mask_tokens
from cgp.functional.sgpa import GlobalKeys

KERNELS = ("rbf", "exponential")


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    w: Tensor
    roots: Tensor
    precision: Tensor


def make_problem(queries=5, keys=4, inducing=3, width=3, columns=2, seed=0) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    roots = 0.3 * normal(columns, inducing, inducing).tril(-1)
    roots = roots + torch.diag_embed(normal(columns, inducing).exp() * 0.5)
    q, k, beta = normal(queries, width), normal(keys, width), normal(inducing, width)
    return Problem(q, k, normal(keys, columns), beta, normal(inducing, columns), roots, normal(keys).exp())


def exact_keys(p: Problem, gram) -> GlobalKeys:
    """Without the package's jitter, so that oracles can be met to 1e-9."""
    factor = torch.linalg.cholesky(gram(p.beta))
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype).expand_as(factor)
    return GlobalKeys(p.beta, factor, torch.linalg.solve_triangular(factor, identity, upper=False))


def features(p: Problem, x: Tensor, kernel="rbf") -> Tensor:
    return exact_keys(p, CANONICAL[kernel].gram).whitening @ CANONICAL[kernel].gram(p.beta, x)


def decoupled(p: Problem, kernel="rbf", query_padding=None, key_padding=None):
    canonical = CANONICAL[kernel]
    values, T_q = mask_tokens(p.v, key_padding), features(p, p.q, kernel)
    mean = sgpa.decoupled_mean(canonical.gram(p.q, p.k) @ values, T_q, features(p, p.k, kernel) @ values, p.w)

    def residual_root() -> Tensor:
        return sgpa.unexplained_root(canonical.gram(p.q), T_q, query_padding)

    prior = canonical.diagonal(p.q)
    return sgpa.decoupled_posterior(mean, T_q, p.roots, prior, residual_root, query_padding)


def divergence(p: Problem, kernel="rbf", padding=None) -> Tensor:
    """The tokens' own part."""
    values = mask_tokens(p.v, padding)
    return sgpa.decoupled_divergence(values, CANONICAL[kernel].gram(p.k) @ values, features(p, p.k, kernel) @ values)


def dense(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


@pytest.mark.parametrize("kernel", KERNELS)
def test_decoupled_posterior_is_the_papers(kernel):
    p, gram = make_problem(), CANONICAL[kernel].gram
    points = {"q": p.q, "k": p.k, "b": p.beta}
    K = {a + b: dense(gram(points[a], points[b])) for a in points for b in points}
    inverse, factor = np.linalg.inv(K["bb"]), np.linalg.cholesky(K["bb"])
    v_beta = np.linalg.solve(factor.T, dense(p.w))  # w = L' v_β
    mean = K["qk"] @ dense(p.v) - K["qb"] @ inverse @ K["bk"] @ dense(p.v) + K["qb"] @ v_beta
    posterior = decoupled(p, kernel)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-9, atol=1e-10)
    for c in range(2):
        S = factor @ dense(p.roots[c]) @ dense(p.roots[c]).T @ factor.T
        covariance = K["qq"] + K["qb"] @ (inverse @ S @ inverse - inverse) @ K["bq"]
        scale = np.abs(covariance).max()
        np.testing.assert_allclose(posterior.covariance[c], covariance, atol=3e-8 * scale)  # with its jitter of 1e-8
        np.testing.assert_allclose(posterior.column_variances[:, c], np.diag(covariance), rtol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_decoupled_divergence_is_that_of_its_own_posterior(kernel):
    """KL of the process at the points that carry it, by torch's divergence of explicit normals."""
    p, gram = make_problem(), CANONICAL[kernel].gram
    points = torch.cat([p.beta, p.k])
    posterior = decoupled(p._replace(q=points), kernel)
    T = exact_keys(p, gram).whitening @ gram(p.beta, points)
    prior = gram(points)
    expected = 0.0
    for c in range(2):
        exact = prior - T.mT @ T + T.mT @ p.roots[c] @ p.roots[c].mT @ T
        q = MultivariateNormal(posterior.mean[:, c], (exact + exact.mT) / 2)
        expected += kl_divergence(q, MultivariateNormal(torch.zeros(len(points)).double(), prior))
    value = divergence(p, kernel) + sgpa.whitened_divergence(p.w.mT, p.roots).sum()
    torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-8)


def standard(p: Problem, kernel="rbf", **padding) -> sgpa.StandardPosterior:
    canonical = CANONICAL[kernel]
    K_qk, K_kk, prior = canonical.gram(p.q, p.k), canonical.gram(p.k), canonical.diagonal(p.q)
    return sgpa.StandardPosterior(K_qk, K_kk, p.v, p.precision, prior, lambda: canonical.gram(p.q), **padding)


@pytest.mark.parametrize("kernel", KERNELS)
def test_standard_posterior_and_divergence_are_the_papers(kernel):
    p, gram = make_problem(), CANONICAL[kernel].gram
    K_kk, K_qk, K_qq = (dense(gram(a, b)) for a, b in ((p.k, p.k), (p.q, p.k), (p.q, p.q)))
    inverse = np.linalg.inv(K_kk)
    S = np.linalg.inv(inverse + np.diag(dense(p.precision)))
    covariance = K_qq + K_qk @ (inverse @ S @ inverse - inverse) @ K_qk.T
    result = standard(p, kernel)
    np.testing.assert_allclose(result.mean, K_qk @ dense(p.v), rtol=1e-10)
    np.testing.assert_allclose(result.joint().covariance, covariance, atol=1e-10 * np.abs(covariance).max())
    np.testing.assert_allclose(result.variance, np.diag(covariance), atol=1e-10 * np.abs(covariance).max())
    prior = MultivariateNormal(torch.zeros(4, dtype=torch.float64), gram(p.k))
    expected = sum(
        kl_divergence(MultivariateNormal(gram(p.k) @ p.v[:, c], torch.from_numpy((S + S.T) / 2)), prior)
        for c in range(2)
    )
    torch.testing.assert_close(result.divergence, expected, rtol=1e-8, atol=1e-8)


FORMS = {"decoupled": decoupled, "standard": standard}


@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
@pytest.mark.parametrize("form", FORMS)
def test_padding_equals_removal(form, seed, real):
    full = make_problem(queries=5, keys=5, seed=seed)
    full = full._replace(k=full.q)
    padding = torch.arange(5) >= real
    short = full._replace(q=full.q[:real], k=full.k[:real], v=full.v[:real], precision=full.precision[:real])
    masks = {"query_padding": padding, "key_padding": padding}
    a, b = FORMS[form](full, **masks), FORMS[form](short)
    covariances = a.joint().covariance, b.joint().covariance
    if form == "decoupled":
        divergences = divergence(full, padding=padding), divergence(short)
    else:
        divergences = a.divergence, b.divergence
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(covariances[0][..., :real, :real], covariances[1], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(*divergences, rtol=1e-7, atol=1e-8)
    assert not a.mean[real:].any()
    assert not a.variance[real:].any()
    assert not covariances[0][..., real:, :].any()


def everything(p: Problem, form: str) -> tuple[Tensor, ...]:
    posterior = FORMS[form](p)
    value = divergence(p) if form == "decoupled" else posterior.divergence
    return posterior.mean, posterior.joint().covariance, value


@pytest.mark.parametrize("form", FORMS)
def test_gradients(form):
    p = make_problem(queries=3, keys=3, inducing=2, width=2, columns=1)
    inputs = [x.clone().requires_grad_() for x in p]
    if form == "decoupled":
        assert torch.autograd.gradcheck(
            lambda *t: (*everything(Problem(*t, p.precision), form), sgpa.whitened_divergence(t[4].mT, t[5])),
            inputs[:-1],
        )
    else:
        assert torch.autograd.gradcheck(
            lambda q, k, v, pi: everything(Problem(q, k, v, *p[3:6], pi), form), (*inputs[:3], inputs[-1])
        )


@pytest.mark.parametrize("spread", [1.0, 0.2, 0.02])
def test_float32_joint_draws_survive_queries_that_the_global_keys_explain(spread):
    """There the residual vanishes; the prior, not the residual, sets the scale of the jitter."""
    generator = torch.Generator().manual_seed(0)
    beta = spread * torch.randn(16, 2, generator=generator)
    x = torch.cat([beta, spread * torch.randn(80, 2, generator=generator)])
    gram = CANONICAL["rbf"].gram
    features = torch.linalg.solve_triangular(sgpa.global_keys(beta, gram(beta)).factor, gram(beta, x), upper=False)
    root = sgpa.unexplained_root(gram(x), features)
    jittered = gram(torch.cat([beta, x]).double()) + 1e-5 * torch.eye(112)
    exact = torch.linalg.cholesky(jittered)[16:, 16:]
    torch.testing.assert_close((root @ root.mT).double(), exact @ exact.mT, rtol=0, atol=1e-5)
