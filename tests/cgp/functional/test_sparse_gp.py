"""Sparse Gaussian process attention against dense float64 algebra and divergences of explicit normals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from cgp.functional import sparse_gp, sparse_gp_standard
from cgp.functional.covariances import CANONICAL
from cgp.functional.sparse_gp import GlobalKeys

KERNELS = ("rbf", "exponential")


class Problem(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    w: Tensor
    roots: Tensor
    precision: Tensor


def make_problem(queries=5, keys=4, inducing=3, width=3, columns=2, seed=0, batch=()) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, *shape, dtype=torch.float64, generator=generator)

    roots = 0.3 * normal(columns, inducing, inducing).tril(-1)
    roots = roots + torch.diag_embed(normal(columns, inducing).exp() * 0.5)
    q, k, beta = normal(queries, width), normal(keys, width), normal(inducing, width)
    return Problem(q, k, normal(keys, columns), beta, normal(inducing, columns), roots, normal(keys).exp())


def exact_keys(p: Problem, gram) -> GlobalKeys:
    """Without the package's jitter, so that oracles can be met to 1e-9."""
    factor = torch.linalg.cholesky(gram(p.beta))
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype).expand_as(factor)
    return GlobalKeys(p.beta, factor, torch.linalg.solve_triangular(factor, identity, upper=False))


def decoupled(p: Problem, kernel="rbf", joint=True, **padding):
    gram = CANONICAL[kernel].gram
    keys = exact_keys(p, gram)
    T_q, T_k = (keys.whitening @ gram(p.beta, x) for x in (p.q, p.k))
    mean = sparse_gp.decoupled_mean(gram(p.q, p.k), T_q, T_k, p.v, p.w, **padding)
    of_queries = padding.get("query_padding")
    if joint:
        return sparse_gp.decoupled_joint(mean, T_q, p.roots, gram(p.q), of_queries)
    return sparse_gp.decoupled_marginals(mean, T_q, p.roots, CANONICAL[kernel].diagonal(p.q), of_queries)


def dense(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


@pytest.mark.parametrize("kernel", KERNELS)
def test_decoupled_posterior_is_the_papers(kernel):
    p, gram = make_problem(), CANONICAL[kernel].gram
    K = {
        a + b: dense(gram(x, y))
        for a, x in zip("qkb", p[:2] + p[3:4], strict=True)
        for b, y in zip("qkb", p[:2] + p[3:4], strict=True)
    }
    inverse, factor = np.linalg.inv(K["bb"]), np.linalg.cholesky(K["bb"])
    v_beta = np.linalg.solve(factor.T, dense(p.w))  # w = L' v_β
    mean = K["qk"] @ dense(p.v) - K["qb"] @ inverse @ K["bk"] @ dense(p.v) + K["qb"] @ v_beta
    posterior, marginals = decoupled(p, kernel), decoupled(p, kernel, joint=False)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-9, atol=1e-10)
    for c in range(2):
        S = factor @ dense(p.roots[c]) @ dense(p.roots[c]).T @ factor.T
        covariance = K["qq"] + K["qb"] @ (inverse @ S @ inverse - inverse) @ K["bq"]
        scale = np.abs(covariance).max()
        np.testing.assert_allclose(posterior.covariance[c], covariance, atol=3e-8 * scale)  # with its jitter of 1e-8
        np.testing.assert_allclose(marginals.variances[:, c], np.diag(covariance), rtol=1e-9)
        np.testing.assert_allclose(posterior.variances[:, c], np.diag(covariance), rtol=1e-9)


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
    own = sparse_gp.orthogonal_divergence(gram(p.k), T[:, 3:], p.v)
    value = own + sparse_gp.whitened_divergence(p.w.mT, p.roots).sum()
    torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-8)


def test_whitened_divergence_is_the_papers_formula():
    """½[tr RR' − m] − log|R| + ½ v' K v with w = L' v, summed over the columns."""
    p = make_problem()
    K, L = CANONICAL["rbf"].gram(p.beta), torch.linalg.cholesky(CANONICAL["rbf"].gram(p.beta))
    v = torch.linalg.solve_triangular(L.mT, p.w, upper=True)
    expected = 0.5 * (p.roots.square().sum() - 3 * 2) - p.roots.diagonal(dim1=-2, dim2=-1).log().sum()
    expected = expected + 0.5 * (v * (K @ v)).sum()
    torch.testing.assert_close(sparse_gp.whitened_divergence(p.w.mT, p.roots).sum(), expected)


def test_the_mean_at_the_global_keys_depends_on_weights_alone():
    p = make_problem()
    at_keys = p._replace(q=p.beta)
    keys = exact_keys(p, CANONICAL["rbf"].gram)
    for values in (p.v, 7.0 * p.v):
        torch.testing.assert_close(decoupled(at_keys._replace(v=values)).mean, keys.factor @ p.w)


def test_far_queries_return_to_the_prior():
    p = make_problem()
    far = decoupled(p._replace(q=p.q + 100.0), joint=False)
    torch.testing.assert_close(far.variances, torch.ones_like(far.variances))
    assert not far.mean.any()


def test_global_keys_factorise_their_covariance():
    p = make_problem()
    K = CANONICAL["rbf"].gram(p.beta)
    keys = sparse_gp.global_keys(p.beta, K)
    torch.testing.assert_close(keys.factor @ keys.factor.mT, K, rtol=0, atol=1e-7)
    torch.testing.assert_close(keys.whitening @ keys.factor, torch.eye(3, dtype=torch.float64))


def standard(p: Problem, form: str, kernel="rbf", **padding):
    gram = CANONICAL[kernel].gram
    amortised = p.precision if form == "sites" else triangle(p)
    terms = sparse_gp_standard.site_terms if form == "sites" else sparse_gp_standard.triangular_terms
    return terms(gram(p.q, p.k), gram(p.k), p.v, amortised, **padding)


def triangle(p: Problem) -> Tensor:
    product = p.k @ p.k.mT
    return 0.2 * product.tril(-1) + torch.diag_embed(p.precision)


def inducing_covariance(p: Problem, form: str, kernel: str) -> np.ndarray:
    K = dense(CANONICAL[kernel].gram(p.k))
    if form == "sites":
        return np.linalg.inv(np.linalg.inv(K) + np.diag(dense(p.precision)))
    root = np.linalg.cholesky(K) @ dense(triangle(p))
    return root @ root.T


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["sites", "triangular"])
def test_standard_posterior_and_divergence_are_the_papers(form, kernel):
    p, gram = make_problem(), CANONICAL[kernel].gram
    S, K_kk, K_qk, K_qq = (
        inducing_covariance(p, form, kernel),
        *(dense(gram(a, b)) for a, b in ((p.k, p.k), (p.q, p.k), (p.q, p.q))),
    )
    inverse = np.linalg.inv(K_kk)
    covariance = K_qq + K_qk @ (inverse @ S @ inverse - inverse) @ K_qk.T
    terms = standard(p, form, kernel)
    tolerance = 1e-10 if form == "sites" else 2e-6  # the triangle rests on the factor of K with its jitter of 1e-8
    scale = np.abs(covariance).max()
    np.testing.assert_allclose(terms.mean, K_qk @ dense(p.v), rtol=1e-10)
    np.testing.assert_allclose(
        sparse_gp_standard.standard_joint(terms, gram(p.q)).covariance, covariance, atol=tolerance * scale
    )
    variance = sparse_gp_standard.standard_marginals(terms, CANONICAL[kernel].diagonal(p.q)).variance
    np.testing.assert_allclose(variance, np.diag(covariance), atol=tolerance * scale)
    prior = MultivariateNormal(torch.zeros(4, dtype=torch.float64), gram(p.k))
    expected = sum(
        kl_divergence(MultivariateNormal(gram(p.k) @ p.v[:, c], torch.from_numpy((S + S.T) / 2)), prior)
        for c in range(2)
    )
    torch.testing.assert_close(terms.divergence, expected, rtol=1e-5 if form == "triangular" else 1e-8, atol=1e-8)


@pytest.mark.parametrize("form", ["sites", "triangular"])
def test_at_the_keys_the_standard_covariance_is_the_amortised_one(form):
    p = make_problem()
    at_keys = p._replace(q=p.k)
    joint = sparse_gp_standard.standard_joint(standard(at_keys, form), CANONICAL["rbf"].gram(p.k))
    np.testing.assert_allclose(joint.covariance, inducing_covariance(p, form, "rbf"), atol=1e-6)


def test_sites_do_not_know_the_order_of_the_tokens():
    p, order = make_problem(), torch.tensor([2, 0, 3, 1])
    shuffled = p._replace(k=p.k[order], v=p.v[order], precision=p.precision[order])
    a, b = standard(p, "sites"), standard(shuffled, "sites")
    torch.testing.assert_close(a.divergence, b.divergence)
    joints = [sparse_gp_standard.standard_joint(t, CANONICAL["rbf"].gram(p.q)).covariance for t in (a, b)]
    torch.testing.assert_close(*joints)


@given(seed=st.integers(0, 10_000), real=st.integers(1, 4))
@pytest.mark.parametrize("form", ["decoupled", "sites", "triangular"])
def test_padding_equals_removal(form, seed, real):
    full = make_problem(queries=5, keys=5, seed=seed)
    full = full._replace(k=full.q)
    padding = torch.arange(5) >= real
    short = full._replace(q=full.q[:real], k=full.k[:real], v=full.v[:real], precision=full.precision[:real])
    masks = {"query_padding": padding, "key_padding": padding}
    gram = CANONICAL["rbf"].gram
    if form == "decoupled":
        a, b = decoupled(full, **masks), decoupled(short)
        T = [exact_keys(full, gram).whitening @ gram(full.beta, x) for x in (full.k, short.k)]
        divergences = (
            sparse_gp.orthogonal_divergence(gram(full.k), T[0], full.v, padding),
            sparse_gp.orthogonal_divergence(gram(short.k), T[1], short.v),
        )
    else:
        terms = standard(full, form, **masks), standard(short, form)
        a, b = (sparse_gp_standard.standard_joint(t, gram(x.q)) for t, x in zip(terms, (full, short), strict=True))
        divergences = tuple(t.divergence for t in terms)
    torch.testing.assert_close(a.mean[:real], b.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(a.covariance[..., :real, :real], b.covariance, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(*divergences, rtol=1e-7, atol=1e-8)
    assert not a.mean[real:].any()
    assert not a.covariance[..., real:, :].any()
    assert not a.variance[..., real:].any()


@pytest.mark.parametrize("form", ["decoupled", "sites", "triangular"])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batch_equals_loop(form, batch):
    p, gram = make_problem(batch=batch), CANONICAL["rbf"].gram

    def value(problem):
        if form == "decoupled":
            posterior = decoupled(problem)
            return posterior.mean, posterior.covariance
        terms = standard(problem, form)
        return terms.mean, sparse_gp_standard.standard_joint(terms, gram(problem.q)).covariance, terms.divergence

    together = value(p)
    for index in np.ndindex(*batch):
        alone = value(Problem(*(x[index] for x in p)))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[index], b)


@pytest.mark.parametrize("form", ["decoupled", "sites", "triangular"])
def test_gradients(form):
    p, gram = make_problem(queries=3, keys=3, inducing=2, width=2, columns=1), CANONICAL["rbf"].gram
    inputs = [x.clone().requires_grad_() for x in p]

    def value(*tensors):
        problem = Problem(*tensors)
        if form == "decoupled":
            posterior = decoupled(problem)
            T = exact_keys(problem, gram).whitening @ gram(problem.beta, problem.k)
            own = sparse_gp.orthogonal_divergence(gram(problem.k), T, problem.v)
            return (
                posterior.mean,
                posterior.covariance,
                own + sparse_gp.whitened_divergence(problem.w.mT, problem.roots),
            )
        terms = standard(problem, form)
        return terms.mean, sparse_gp_standard.standard_joint(terms, gram(problem.q)).covariance, terms.divergence

    if form == "decoupled":
        assert torch.autograd.gradcheck(lambda *t: value(*t, p.precision), inputs[:-1])
    else:
        assert torch.autograd.gradcheck(lambda q, k, v, pi: value(q, k, v, *p[3:6], pi), (*inputs[:3], inputs[-1]))


def test_float32_joint_draws_survive_queries_at_the_global_keys():
    """There the residual vanishes; the prior, not the residual, sets the scale of the jitter."""
    beta = torch.randn(16, 2)
    K = CANONICAL["rbf"].gram(beta)
    keys = sparse_gp.global_keys(beta, K)
    T = keys.whitening @ K
    posterior = sparse_gp.decoupled_joint(torch.zeros(16, 1), T, 0.1 * torch.eye(16)[None], K)
    assert torch.isfinite(posterior.rsample("joint")).all()
