"""The state space against the dense Gaussian process in float64: evidence, gradients, posterior, draws, invariances."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import cgp.statespace.factors as factors_module
import cgp.statespace.filter as kalman_module
import cgp.statespace.products as products_module
from cgp.functional.kernels import matern
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.statespace.evidence import log_evidence
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import constant_process, harmonic_process, matern_process, periodic_weights
from cgp.statespace.products import bilinear_gradients, covariance_product, covariance_solve
from cgp.statespace.space import StateSpace, state_space
from tests.cgp.helpers import moments_of_draws

HARMONICS = 12


class Problem(NamedTuple):
    """Times, observations with gaps, and parameters: Matérn 5/2 and 3/2 copies, and a cycle of the first of them."""

    times: Tensor
    y: Tensor
    observed: Tensor
    noise: Tensor
    lengthscales: Tensor
    fast: Tensor
    slow: Tensor

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return self.times, self.noise, self.lengthscales, self.fast, self.slow


def problem(rows: int = 12, outputs: int = 3, *, seed: int = 0, share: float = 0.6) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    times = (10.0 * torch.rand(rows, generator=generator, dtype=torch.float64)).sort().values
    times[rows // 2] = times[rows // 2 - 1]  # repeated
    observed = torch.rand(rows, outputs, generator=generator) < share
    observed[rows // 3] = False  # a row without observations
    noise = 0.01 + 0.3 * torch.rand(outputs, generator=generator, dtype=torch.float64)
    return Problem(
        times,
        normal(rows, outputs),
        observed,
        noise,
        torch.tensor([0.7, 3.0], dtype=torch.float64),
        normal(outputs, 2),
        normal(outputs, 1),
    )


def space_of(p: Problem) -> StateSpace:
    lags = torch.cat([p.times.new_zeros(1), p.times.diff()])
    weights = periodic_weights(torch.tensor(1.0, dtype=torch.float64), HARMONICS)
    cycle = [constant_process(lags, weights[0])]
    cycle += [harmonic_process(lags / 2.0, j, weights[j]) for j in range(1, HARMONICS)]
    processes = [matern_process(lags / p.lengthscales[0], 2), matern_process(lags / p.lengthscales[1], 1), *cycle]
    return state_space(processes, [p.fast, p.slow, *[p.fast[:, :1]] * HARMONICS], torch.arange(len(lags)))


def kernels(p: Problem) -> list[tuple[Tensor, Tensor]]:
    """Covariances over the times, and over the outputs."""
    fast, slow = (p.times[:, None] / scale for scale in p.lengthscales)
    cycle = torch.exp(-2.0 * (torch.pi * (p.times[:, None] - p.times) / 2.0).sin().square())
    first = p.fast[:, :1]
    return [
        (matern(fast, degree=2), p.fast @ p.fast.mT),
        (matern(slow, degree=1), p.slow @ p.slow.mT),
        (cycle, first @ first.mT),
    ]


def prior(p: Problem) -> Tensor:
    """The dense covariance of all rows and outputs, row by row."""
    total = sum(torch.einsum("ij,pr->ipjr", over_times, over_outputs) for over_times, over_outputs in kernels(p))
    return total.reshape(p.y.numel(), -1)


def noise_of(p: Problem) -> Tensor:
    return p.noise.expand_as(p.y)


def dense_evidence(p: Problem) -> Tensor:
    kept = p.observed.flatten()
    noisy = prior(p)[kept][:, kept] + noise_of(p).flatten()[kept].diag()
    zero = noisy.new_zeros(len(noisy))
    return torch.distributions.MultivariateNormal(zero, noisy).log_prob(p.y.flatten()[kept])


def posterior_of(p: Problem) -> StateSpacePosterior:
    return StateSpacePosterior(space_of(p), p.y, noise_of(p), p.observed)


class Dense(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    inverse: np.ndarray  # of the observations' covariance
    kept: np.ndarray


def dense(p: Problem) -> Dense:
    K, kept, y = prior(p).numpy(), p.observed.flatten().numpy(), p.y.flatten().numpy()
    inverse = np.linalg.inv(K[np.ix_(kept, kept)] + np.diag(noise_of(p).flatten().numpy()[kept]))
    cross = K[:, kept]
    return Dense(cross @ inverse @ y[kept], K - cross @ inverse @ cross.T, inverse, kept)


@pytest.fixture(params=["block steps", "dense steps", "lanes"])
def step(request, monkeypatch):
    """All ways to take a step."""
    monkeypatch.setattr(kalman_module, "_DENSE", 64 * (request.param == "dense steps"))
    monkeypatch.setattr(factors_module, "lanes_are_faster", lambda *_: request.param == "lanes")
    monkeypatch.setattr(products_module, "_WORK", 10_000 * (request.param == "lanes"))


def test_evidence_and_its_gradients_are_dense(step):
    p = problem()
    given = [value.clone().requires_grad_() for value in p.parameters]
    p = p._replace(times=given[0], noise=given[1], lengthscales=given[2], fast=given[3], slow=given[4])
    expected, value = dense_evidence(p), log_evidence(space_of(p), p.y, noise_of(p), p.observed)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    pairs = zip(torch.autograd.grad(value, given), torch.autograd.grad(expected, given), strict=True)
    for slope, dense_slope in pairs:
        torch.testing.assert_close(slope, dense_slope, rtol=1e-7, atol=1e-7)


def test_gradients_are_those_of_finite_differences(step):
    """By every input of the function, one by one: also where two processes are of one kind."""
    p = problem(rows=4, outputs=2, seed=1)
    lags = torch.cat([p.times.new_zeros(1), p.times.diff()])
    space = state_space([matern_process(lags, 1)], [p.fast], torch.tensor([0, 1, 1, 3]))
    inputs = [value.clone().requires_grad_() for value in (*space[:4], p.y, noise_of(p))]

    def by_blocks(transition, noise, stationary, loadings, residual, variances):
        sym = [0.5 * (value + value.transpose(-3, -2)) for value in (noise, stationary)]  # as a covariance is
        return log_evidence(StateSpace(transition, *sym, loadings, *space[4:]), residual, variances, p.observed)

    assert torch.autograd.gradcheck(by_blocks, inputs)


def test_posterior_is_dense(step):
    p = problem()
    posterior, expected = posterior_of(p), dense(p)
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    close(posterior.mean.flatten(), expected.mean)
    close(posterior.variance.flatten(), expected.covariance.diagonal())
    close(posterior.covariance, expected.covariance)
    cells = torch.tensor([7, 31, 4, 30, 7, 18])  # in any order, also twice
    close(posterior.covariance_of(cells), expected.covariance[np.ix_(cells, cells)])
    close(posterior.precision.flatten()[expected.kept], expected.inverse.diagonal())
    close(posterior.weights.flatten()[expected.kept], expected.inverse @ p.y.flatten().numpy()[expected.kept])
    close(posterior.log_evidence, dense_evidence(p))
    columns = torch.randn(*p.y.shape, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    solved = posterior.solve(columns).reshape(-1, 3)
    close(solved[expected.kept], expected.inverse @ columns.reshape(-1, 3).numpy()[expected.kept])
    assert not solved[~expected.kept].any()
    assert not posterior.precision.flatten()[~expected.kept].any()


def test_draws_are_of_the_posterior(step):
    p = problem(rows=6, outputs=2)
    posterior, expected = posterior_of(p), dense(p)
    mean, covariance = moments_of_draws(lambda count: posterior.draw(count).flatten(1))
    np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), outputs=st.integers(1, 4), rows=st.integers(3, 9), share=st.floats(0.0, 1.0))
def test_any_pattern_of_observations(seed, outputs, rows, share):
    p = problem(rows, outputs, seed=seed, share=share)
    posterior, expected = posterior_of(p), dense(p)
    np.testing.assert_allclose(posterior.mean.flatten(), expected.mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(posterior.variance.flatten(), expected.covariance.diagonal(), rtol=1e-7, atol=1e-7)


def test_what_is_missing_is_not_read():
    p = problem()
    hidden = p._replace(y=torch.where(p.observed, p.y, torch.nan))
    torch.testing.assert_close(posterior_of(hidden).mean, posterior_of(p).mean, rtol=0, atol=0)
    y = hidden.y.clone().requires_grad_()
    value = log_evidence(space_of(p), y, noise_of(p), p.observed)
    (slope,) = torch.autograd.grad(value, y)
    assert slope.isfinite().all()
    assert not slope[~p.observed].any()


def test_order_of_outputs_does_not_matter():
    p, order = problem(), torch.tensor([2, 0, 1])
    other = Problem(
        p.times, p.y[:, order], p.observed[:, order], p.noise[order], p.lengthscales, p.fast[order], p.slow[order]
    )
    torch.testing.assert_close(posterior_of(other).mean, posterior_of(p).mean[:, order])
    torch.testing.assert_close(posterior_of(other).log_evidence, posterior_of(p).log_evidence)


def test_row_may_be_split_into_two_without_a_lag():
    p = problem()
    row = int(p.observed.sum(-1).argmax())
    twice = torch.arange(len(p.times)).repeat_interleave((torch.arange(len(p.times)) == row) + 1)
    observed = p.observed[twice].clone()
    observed[row, 1:], observed[row + 1, :1] = False, False
    split = p._replace(times=p.times[twice], y=p.y[twice], observed=observed)
    torch.testing.assert_close(posterior_of(split).mean, posterior_of(p).mean[twice])
    torch.testing.assert_close(posterior_of(split).log_evidence, posterior_of(p).log_evidence)


def test_later_rows_go_on_from_the_last_state(step):
    p, space, cut = problem(), space_of(problem()), 5
    first, second = slice(None, cut), slice(cut, None)
    past = StateSpacePosterior(
        space._replace(steps=space.steps[first]), p.y[first], noise_of(p)[first], p.observed[first]
    )
    further = [p.y[second], noise_of(p)[second], p.observed[second]]
    later = StateSpacePosterior(space._replace(steps=space.steps[second]), *further, start=past.last)
    whole = posterior_of(p)
    torch.testing.assert_close(later.mean, whole.mean[second])
    torch.testing.assert_close(later.variance, whole.variance[second])
    torch.testing.assert_close(past.log_evidence + later.log_evidence, whole.log_evidence)
    covariance = dense(p).covariance[cut * p.y.shape[1] :, cut * p.y.shape[1] :]
    np.testing.assert_allclose(later.covariance, covariance, atol=1e-9)
    of_draws = moments_of_draws(lambda count: later.draw(count).flatten(1))
    torch.testing.assert_close(of_draws[0], later.mean.flatten())
    np.testing.assert_allclose(of_draws[1], covariance, atol=1e-9)


def test_covariance_that_cannot_be_factored_is_refused():
    p = problem()
    with pytest.raises(NotPositiveDefiniteError, match=r"row \d+: the covariance of its observations cannot"):
        StateSpacePosterior(space_of(p), p.y, -100.0 * noise_of(p), p.observed)


def test_products_and_solutions_are_dense(step):
    p = problem()
    kept, K, noise = p.observed.flatten(), prior(p), noise_of(p)
    columns = torch.randn(*p.y.shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    product = covariance_product(space_of(p), columns).reshape(-1, 2)
    torch.testing.assert_close(product, K @ columns.reshape(-1, 2), rtol=1e-9, atol=1e-9)
    noisy = K[kept][:, kept] + noise.flatten()[kept].diag()
    solved = covariance_solve(space_of(p), columns, noise, p.observed).reshape(-1, 2)
    torch.testing.assert_close(solved[kept], torch.linalg.solve(noisy, columns.reshape(-1, 2)[kept]))
    assert not solved[~kept].any()


def test_products_and_solutions_have_their_gradients(step):
    p = problem(rows=4, outputs=2, seed=1)
    lags = torch.cat([p.times.new_zeros(1), p.times.diff()])
    space = state_space([matern_process(lags, 1)], [p.fast], torch.tensor([0, 1, 1, 3]))
    columns = torch.randn(4, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    inputs = [value.clone().requires_grad_() for value in (*space[:4], columns, noise_of(p))]

    def both(transition, noise, stationary, loadings, columns, variances):
        sym = [0.5 * (value + value.transpose(-3, -2)) for value in (noise, stationary)]
        other = StateSpace(transition, *sym, loadings, *space[4:])
        return covariance_product(other, columns), covariance_solve(other, columns, variances, p.observed)

    assert torch.autograd.gradcheck(both, inputs)
    left = torch.randn(4, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    value = (left * covariance_product(space._replace(transition=inputs[0]), columns)).sum()
    expected = torch.autograd.grad(value, inputs[0])[0]
    torch.testing.assert_close(bilinear_gradients(space, left, columns)[0], expected)


def test_lanes_draw_what_rows_draw(monkeypatch):
    p, draws = problem(), []
    for lanes in (False, True):
        monkeypatch.setattr(factors_module, "lanes_are_faster", lambda *_, lanes=lanes: lanes)
        draws.append(posterior_of(p).draw(3, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(draws[0], draws[1])


def test_one_state_and_few_rows_in_lanes(monkeypatch):
    """Where arrays of lanes and of states look alike, nothing is written into what is still read."""
    lags = torch.tensor([0.0, 0.4, 1.0, 0.2], dtype=torch.float64)
    space = state_space([matern_process(lags, 0)], [torch.ones(1, 1, dtype=torch.float64)], torch.arange(4))
    y, noise = torch.tensor([[0.0], [1.0], [0.0], [0.0]], dtype=torch.float64), torch.full((4, 1), 0.1).double()
    parts = []
    for lanes in (False, True):
        monkeypatch.setattr(factors_module, "lanes_are_faster", lambda *_, lanes=lanes: lanes)
        posterior = StateSpacePosterior(space, y, noise, y > 0)
        parts.append([posterior.mean, posterior.variance, posterior.weights, posterior.precision])
    torch.testing.assert_close(*parts)
