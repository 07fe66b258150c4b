"""Readings and weighted sums together, against the dense Gaussian process in float64."""

from functools import partial

import numpy as np
import torch

from cgp.statespace.functionals import (
    FunctionalPosterior,
    functionals_of,
    sums_of_readings,
    total_log_evidence,
)
from cgp.statespace.totals import Terms
from tests.cgp.statespace.test_space import noise_of, prior, problem, space_of

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)


def sums(p, noise=0.01):
    """Of one output, of two that overlap it, and a mean of everything."""
    outputs = p.y.shape[1]
    parts = [(range(2, 7), [0], 1.0), (range(5, 10), [0, 1], 0.5), (range(12), range(outputs), 1.0 / p.y.numel())]
    terms = [
        (row, output, weight, k) for k, (rows, which, weight) in enumerate(parts) for row in rows for output in which
    ]
    rows, which, weights, numbers = (np.array(each) for each in zip(*terms, strict=True))
    values = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
    return functionals_of(Terms(rows, which, weights, numbers), values, torch.full((3,), noise), tuple(p.y.shape))


def dense(p, functionals):
    """Covariance of all cells with what is observed, and of what is observed, in order: readings, then sums."""
    K, kept = prior(p), p.observed.flatten()
    W = torch.cat([torch.eye(len(K), dtype=torch.float64)[kept], functionals.weights.flatten(0, 1).mT])
    noise = torch.block_diag(noise_of(p).flatten()[kept].diag(), functionals.noise)
    return K @ W.mT, W @ K @ W.mT + noise, torch.cat([p.y.flatten()[kept], functionals.values])


def test_evidence_and_its_gradients_are_dense():
    p = problem()
    given = [value.clone().requires_grad_() for value in p.parameters]
    p = p._replace(times=given[0], noise=given[1], lengthscales=given[2], fast=given[3], slow=given[4])
    value = total_log_evidence(space_of(p), p.y, noise_of(p), p.observed, sums(p))
    _, covariance, observed = dense(p, sums(p))
    expected = torch.distributions.MultivariateNormal(torch.zeros_like(observed), covariance).log_prob(observed)
    CLOSE(value, expected)
    CLOSE(torch.autograd.grad(value, given), torch.autograd.grad(expected, given), rtol=1e-6, atol=1e-7)


def test_posterior_is_dense():
    p = problem()
    posterior = FunctionalPosterior(space_of(p), p.y, noise_of(p), p.observed, sums(p))
    cross, covariance, observed = dense(p, sums(p))
    CLOSE(posterior.mean.flatten(), cross @ torch.linalg.solve(covariance, observed))
    explained = cross @ torch.linalg.solve(covariance, cross.mT)
    CLOSE(posterior.variance.flatten(), (prior(p) - explained).diagonal())
    count, expected = 20_000, prior(p) - explained
    draws = posterior.draw(count, torch.Generator().manual_seed(0)).flatten(1)
    variance = expected.diagonal().clamp(min=0)
    assert ((draws.mean(0) - posterior.mean.flatten()).abs() <= 6 * (variance / count).sqrt() + 1e-9).all()
    spread = ((variance[:, None] * variance + expected**2) / count).sqrt()
    assert ((draws.T.cov() - expected).abs() <= 6 * spread + 1e-9).all()


def test_sums_known_exactly_are_had_by_mean_and_draws():
    p, known = problem(), sums(problem(), noise=0.0)
    posterior = FunctionalPosterior(space_of(p), p.y, noise_of(p), p.observed, known)
    CLOSE(torch.einsum("npm,np->m", known.weights, posterior.mean), known.values)
    draws = posterior.draw(3, torch.Generator().manual_seed(0))
    CLOSE(torch.einsum("npm,snp->sm", known.weights, draws), known.values.expand(3, -1))


def test_sums_of_readings_have_their_noise():
    """As sums of a dense normal vector of readings, of which some are known."""
    p = problem()
    of_readings = sums_of_readings(sums(p), p.y, noise_of(p), p.observed)
    posterior = FunctionalPosterior(space_of(p), p.y, noise_of(p), p.observed, of_readings)
    K, kept = prior(p), p.observed.flatten()
    readings = K + noise_of(p).flatten().diag()
    W = torch.cat([torch.eye(len(K), dtype=torch.float64)[kept], sums(p).weights.flatten(0, 1).mT])
    covariance = W @ readings @ W.mT + torch.block_diag(torch.zeros(int(kept.sum()), int(kept.sum())), sums(p).noise)
    observed = torch.cat([p.y.flatten()[kept], sums(p).values])
    CLOSE(posterior.mean.flatten(), K @ W.mT @ torch.linalg.solve(covariance, observed), rtol=1e-7, atol=1e-7)
