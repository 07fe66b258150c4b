"""A state space before any observation, against its covariance step by step."""

import pytest
import torch

from cgp.statespace.prior import prior_draws, prior_variances
from cgp.statespace.processes import constant_process, integrated_wiener_process, matern_process, trend_process
from cgp.statespace.space import state_space
from tests.cgp.helpers import moments_of_draws
from tests.cgp.statespace.test_space import prior, problem, space_of

TIMES = torch.tensor([0.3, 0.3, 0.8, 1.0, 2.5, 2.6, 4.0], dtype=torch.float64)


def growing(lags, start):
    processes = [integrated_wiener_process(lags, start), trend_process(lags, start, 0.5), matern_process(lags, 0)]
    loadings = [torch.tensor([[1.0], [0.3]], dtype=torch.float64) for _ in processes]
    return state_space([*processes, constant_process(lags, 2.0)], [*loadings, loadings[0]], torch.arange(len(lags)))


def test_variances_are_the_diagonal():
    p = problem()
    torch.testing.assert_close(prior_variances(space_of(p)).flatten(), prior(p).diagonal())


def test_variances_that_grow_and_their_gradients():
    lags, start = torch.cat([torch.zeros(1).double(), TIMES.diff()]), TIMES[0]
    expected = TIMES**3 / 3 + 0.5 * TIMES**2 + 1.0 + 2.0
    weights = torch.tensor([1.0, 0.09], dtype=torch.float64)
    torch.testing.assert_close(prior_variances(growing(lags, start)), expected[:, None] * weights)
    inputs = lags.clone().requires_grad_(), start.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda lags, start: prior_variances(growing(lags, start)), inputs)


@pytest.mark.parametrize("most", [0, 128], ids=["rows", "lanes"])
def test_draws_are_of_the_prior(most, monkeypatch):
    monkeypatch.setattr("cgp.statespace.prior._MOST_STATES", most)
    p = problem(rows=6, outputs=2)
    mean, covariance = moments_of_draws(lambda count: prior_draws(space_of(p), count).flatten(0, 1).mT)
    torch.testing.assert_close((mean, covariance), (torch.zeros_like(mean), prior(p)))
