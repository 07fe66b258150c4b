"""Means and variances given observations with their gradients, against the dense Gaussian process in float64."""

import numpy as np
import pytest
import torch

import cgp.statespace.factors as factors_module
import cgp.statespace.moments as moments_module
from cgp.statespace.filter import Chain
from cgp.statespace.lane_factor import LaneTables
from cgp.statespace.lane_filter import FilteredLanes
from cgp.statespace.lane_variance import variance_slopes
from cgp.statespace.moments import posterior_moments
from tests.cgp.statespace.test_lanes import chain
from tests.cgp.statespace.test_space import noise_of, prior, problem, space_of


@pytest.mark.parametrize("lanes", [True, False])
def test_moments_and_their_gradients_are_dense(lanes, monkeypatch):
    """By inputs, noise, lengthscales, loadings and readings; observed cells have variances, too."""
    monkeypatch.setattr(factors_module, "lanes_are_faster", lambda *_: lanes)
    p = problem(rows=14, outputs=2)
    given = [value.clone().requires_grad_() for value in p.parameters]
    p = p._replace(times=given[0], noise=given[1], lengthscales=given[2], fast=given[3], slow=given[4])
    y, kept = p.y.clone().requires_grad_(), p.observed.flatten()
    moments = posterior_moments(space_of(p), y, noise_of(p), p.observed)
    K = prior(p)
    noisy = K[kept][:, kept] + noise_of(p).flatten()[kept].diag()
    mean = K[:, kept] @ torch.linalg.solve(noisy, y.flatten()[kept])
    variance = (K - K[:, kept] @ torch.linalg.solve(noisy, K[kept])).diagonal()
    for values, expected in zip(moments, (mean, variance), strict=True):
        torch.testing.assert_close(values.flatten(), expected, rtol=1e-9, atol=1e-9)
        weights = torch.randn(len(K), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        arguments = [*given, y] if values is moments.mean else given
        slopes = torch.autograd.grad(weights @ values.flatten(), arguments, retain_graph=True)
        wanted = torch.autograd.grad(weights @ expected, arguments, retain_graph=True)
        torch.testing.assert_close(slopes, wanted, rtol=1e-8, atol=1e-8)


def test_gradcheck():
    space, y, noise, observed = chain(7)
    arguments = [x.clone().requires_grad_() for x in (*space[:4], y, noise)]

    def moments(*values):
        fields, (residual, variances) = values[:4], values[4:]
        A, Q, P, loadings = fields
        symmetric = A, 0.5 * (Q + Q.transpose(1, 2)), 0.5 * (P + P.transpose(0, 1)), loadings
        return posterior_moments(type(space)(*symmetric, *space[4:]), residual, variances, observed)

    assert torch.autograd.gradcheck(moments, arguments)


@pytest.mark.parametrize("count", [2, 3, 5, 23])
def test_number_of_lanes_does_not_matter(count):
    space, _, noise, observed = chain()
    weights = np.random.default_rng(0).normal(size=(len(observed), 1, 1))
    answers = []
    for lanes in (1, count):
        tables = LaneTables(Chain(space, noise, observed), complete=True, count=lanes)
        filtered = FilteredLanes(tables.lanes, tables.first, keep=True)
        answers.append(tables.slopes(variance_slopes(filtered, tables.columns(weights)[:, 0])))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10)


def test_gradients_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(moments_module, "_MOST_ENTRIES", 100)
    space, y, noise, observed = chain()
    mean, variance = posterior_moments(space, y, noise.requires_grad_(), observed)
    with pytest.raises(ValueError, match="gradients of variances: expected at most"):
        variance.sum().backward(retain_graph=True)
    mean.sum().backward()  # of means alone nothing is needed that does not fit
    assert noise.grad.abs().max() > 0
