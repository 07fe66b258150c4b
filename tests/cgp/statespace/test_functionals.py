"""Readings and weighted sums together, against the dense Gaussian process in float64."""

from functools import partial

import numpy as np
import pytest
import torch

from cgp.statespace.accumulators import AccumulatedPosterior
from cgp.statespace.filter import Chain
from cgp.statespace.functionals import FunctionalPosterior, Functionals, total_log_evidence
from cgp.statespace.processes import matern_process
from cgp.statespace.products import covariance_columns
from cgp.statespace.space import state_space
from cgp.statespace.totals import Terms
from tests.cgp.helpers import moments_of_draws
from tests.cgp.statespace.test_space import noise_of, posterior_of, prior, problem, space_of

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)


def sums(p, noise=0.01, of_readings=False):
    """Of one output, of two that overlap it, and a mean of everything; of the process, or of unknown readings."""
    outputs = p.y.shape[1]
    parts = [(range(2, 7), [0], 1.0), (range(5, 10), [0, 1], 0.5), (range(12), range(outputs), 1.0 / p.y.numel())]
    terms = [
        (row, output, weight, k)
        for k, (rows, which, weight) in enumerate(parts)
        for row in rows
        for output in which
        if not (of_readings and p.observed[row, output])
    ]
    rows, which, weights, numbers = (np.array(each) for each in zip(*terms, strict=True))
    cells, readings = np.unique(rows * outputs + which, return_inverse=True)
    readings = torch.as_tensor(readings) if of_readings else torch.full((len(rows),), -1)
    variances = noise_of(p).flatten()[cells] if of_readings else torch.zeros(0, dtype=torch.float64)
    values = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
    own = torch.full((3,), noise, dtype=torch.float64)
    return Functionals(Terms(rows, which, weights, numbers), values, own, readings, variances), cells


def dense(p, functionals):
    """Covariance of all cells with what is observed, and of what is observed, in order: readings, then sums."""
    K, kept = prior(p), p.observed.flatten()
    weights = functionals.columns(tuple(p.y.shape)).flatten(0, 1).mT
    W = torch.cat([torch.eye(len(K), dtype=torch.float64)[kept], weights])
    noise = torch.block_diag(noise_of(p).flatten()[kept].diag(), functionals.errors)
    return K @ W.mT, W @ K @ W.mT + noise, torch.cat([p.y.flatten()[kept], functionals.values])


@pytest.fixture(params=[FunctionalPosterior, AccumulatedPosterior], ids=["columns", "states"])
def posterior(request):
    return lambda p, functionals: request.param(space_of(p), p.y, noise_of(p), p.observed, functionals)


@pytest.mark.parametrize("of_readings", [False, True])
def test_evidence_and_its_gradients_are_dense(of_readings):
    p = problem()
    given = [value.clone().requires_grad_() for value in p.parameters]
    p = p._replace(times=given[0], noise=given[1], lengthscales=given[2], fast=given[3], slow=given[4])
    functionals, _ = sums(p, of_readings=of_readings)
    value = total_log_evidence(space_of(p), p.y, noise_of(p), p.observed, functionals)
    _, covariance, observed = dense(p, functionals)
    expected = torch.distributions.MultivariateNormal(torch.zeros_like(observed), covariance).log_prob(observed)
    CLOSE(value, expected)
    CLOSE(torch.autograd.grad(value, given, retain_graph=True), torch.autograd.grad(expected, given))


def test_posterior_is_dense(posterior):
    p = problem()
    functionals, _ = sums(p)
    cross, covariance, observed = dense(p, functionals)
    law = torch.distributions.MultivariateNormal(torch.zeros_like(observed), covariance)
    CLOSE(posterior(p, functionals).log_evidence, law.log_prob(observed))
    all_cells, found = torch.arange(p.y.numel()), posterior(p, functionals)
    mean, variance = found.marginals(all_cells)
    CLOSE(mean, cross @ torch.linalg.solve(covariance, observed))
    expected = prior(p) - cross @ torch.linalg.solve(covariance, cross.mT)
    CLOSE(variance, expected.diagonal())
    CLOSE(posterior_of(p).covariance - found.explained_covariance(all_cells), expected)


def test_sums_of_unknown_readings_are_dense(posterior):
    """Of a normal vector of the outputs and the noise of these readings: moments, sums, draws."""
    p = problem()
    functionals, cells = sums(p, of_readings=True)
    found, cells, readings = posterior(p, functionals), torch.as_tensor(cells), torch.arange(len(cells))
    cross, covariance, observed = dense(p, functionals)
    noise = functionals.variances.diag() @ functionals.shares
    cross = cross[cells]
    cross[:, -3:] += noise  # of readings with the sums
    both = prior(p)[cells][:, cells] + functionals.variances.diag()
    expected = both - cross @ torch.linalg.solve(covariance, cross.mT)
    mean, variance = found.marginals(cells, readings)
    CLOSE(mean, cross @ torch.linalg.solve(covariance, observed))
    CLOSE(variance, expected.diagonal())
    weights = torch.linspace(-1.0, 2.0, len(cells), dtype=torch.float64)
    terms = Terms(*np.divmod(cells.numpy(), p.y.shape[1]), weights.numpy(), np.zeros(len(cells), dtype=int))
    CLOSE(found.total_variances(cells, terms, readings), (weights @ expected @ weights)[None])
    CLOSE(moments_of_draws(lambda count: found.draw(count, cells, readings)), (mean, expected))


@pytest.mark.parametrize("of_readings", [False, True])
def test_sums_known_exactly_are_had_by_mean_and_draws(posterior, of_readings):
    p = problem()
    known, _ = sums(p, noise=0.0, of_readings=of_readings)
    found, rows, outputs = posterior(p, known), torch.as_tensor(known.terms.rows), torch.as_tensor(known.terms.outputs)
    places, readings = rows * p.y.shape[1] + outputs, known.readings if of_readings else None
    values = [found.marginals(places, readings)[0], *found.draw(3, places, readings, torch.Generator().manual_seed(0))]
    for value in values:
        total = torch.zeros(3, dtype=torch.float64)
        CLOSE(
            total.index_add(0, torch.as_tensor(known.terms.sums), torch.as_tensor(known.terms.weights) * value),
            known.values,
        )
    assert found.total_variances(places, known.terms, readings).tolist() == [0.0, 0.0, 0.0]


def test_leaving_one_reading_out_is_dense(posterior):
    """Also of a reading that a sum has: the sum then tells of it."""
    p = problem()
    functionals, _ = sums(p, of_readings=True)
    seen = p.observed.flatten()
    known = torch.zeros(int(seen.sum()), 3, dtype=torch.float64)
    known[0, 0], known[3, 1] = 1.0, 0.5
    weights, precision = posterior(p, functionals).leave_one_out(known)
    _, covariance, observed = dense(p, functionals)
    turn = torch.eye(len(observed), dtype=torch.float64)
    turn[-3:, :-3] = known.mT  # the sums with the known readings
    inverse = torch.linalg.inv(turn @ covariance @ turn.mT)
    CLOSE(precision, inverse.diagonal()[:-3])
    CLOSE(weights, (inverse @ (turn @ observed))[:-3])
    inverse = torch.linalg.inv(covariance)
    weights, precision = posterior(p, functionals).leave_one_out()
    CLOSE(precision, inverse.diagonal()[:-3])
    CLOSE(weights, (inverse @ observed)[:-3])


@pytest.mark.parametrize("stationary", [True, False])
def test_columns_without_gradients_are_dense(stationary):
    p = problem()
    space = space_of(p)
    if not stationary:
        space = space._replace(stationary=2.0 * space.stationary)
    columns = torch.randn(*p.y.shape, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    columns[2:5] = 0.0
    K = torch.as_tensor(Chain(space).prior_covariance())
    CLOSE(covariance_columns(space, columns).flatten(0, 1), K @ columns.flatten(0, 1))


def test_quarters_and_a_monthly_indicator_are_chow_and_lin():
    r"""Least squares, :math:`\hat y = x\beta + VC^\top(CVC^\top)^{-1}(t - Cx\beta)`, V that of an AR(1) residual.

    Source: Chow & Lin (1971), Best linear unbiased interpolation, distribution, and extrapolation of time series.
    """
    months, rho, scale, spread = 24, 0.8, 1.7, 0.6
    rng = np.random.default_rng(0)
    x, quarters = 3.0 * rng.normal(size=months).cumsum(), rng.normal(10.0, 4.0, size=months // 3)
    C, lags = np.kron(np.eye(months // 3), np.ones(3)), np.abs(np.subtract.outer(np.arange(months), np.arange(months)))
    V = rho**lags
    weights = V @ C.T @ np.linalg.inv(C @ V @ C.T)
    precise = np.linalg.solve(C @ V @ C.T, C @ x)
    beta = (precise @ quarters) / (precise @ C @ x)
    expected = x * beta + weights @ (quarters - C @ x * beta)
    steps = torch.full((months,), -np.log(rho), dtype=torch.float64)
    steps[0] = 0.0
    loadings = torch.tensor([[scale, 0.0], [beta * scale, spread]], dtype=torch.float64)
    space = state_space([matern_process(steps, 0)], [loadings], torch.arange(months))
    residual = torch.stack([torch.as_tensor(x), torch.zeros(months, dtype=torch.float64)], -1)
    observed = torch.tensor([[True, False]]).expand(months, -1)
    rows, nothing = np.arange(months), torch.zeros(0, dtype=torch.float64)
    terms = Terms(rows, np.ones(months, dtype=int), np.ones(months), rows // 3)
    exact, process = torch.zeros(months // 3, dtype=torch.float64), torch.full((months,), -1)
    known = Functionals(terms, torch.as_tensor(quarters), exact, process, nothing)
    found = FunctionalPosterior(space, residual, torch.zeros_like(residual), observed, known)
    mean, variance = found.marginals(2 * torch.arange(months) + 1)
    CLOSE(mean, torch.as_tensor(expected))
    CLOSE(variance, torch.as_tensor(spread**2 * np.diag(V - weights @ C @ V)))
