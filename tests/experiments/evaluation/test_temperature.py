import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize_scalar

from experiments.evaluation import fit_temperature, mean_log_probabilities, negative_log_likelihood
from experiments.evaluation.temperature import _loss
from tests.experiments.evaluation.simulated import calibrated, draws


def loss_at(log_temperature, logits, labels):
    return negative_log_likelihood(mean_log_probabilities(logits / np.exp(log_temperature)), labels)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("num_samples", [1, 5])
def test_matches_a_bracketing_search(scale, num_samples):
    logits, labels = draws(num_samples=num_samples)
    logits = scale * logits
    oracle = minimize_scalar(loss_at, bounds=(-9, 9), args=(logits, labels), method="bounded", options={"xatol": 1e-10})
    assert np.log(fit_temperature(logits, labels)) == pytest.approx(oracle.x, abs=1e-5)


def test_matches_torch():
    logits, labels = draws(num_samples=1)
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [log_temperature], max_iter=200, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.tensor(logits[0]) / log_temperature.exp(), torch.tensor(labels))
        loss.backward()
        return loss

    optimiser.step(closure)
    assert fit_temperature(logits, labels) == pytest.approx(log_temperature.exp().item(), rel=1e-6)


def test_gradient():
    logits, labels = draws()
    for start in (-1.0, 0.0, 2.0):
        error = check_grad(
            lambda x: _loss(x, logits, labels)[0], lambda x: _loss(x, logits, labels)[1], np.array([start])
        )
        assert error < 1e-6


def test_undoes_a_known_overconfidence():
    logits, labels = calibrated(samples=20_000, classes=5)
    assert fit_temperature(3 * logits, labels) == pytest.approx(3, rel=0.05)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(-3, 3))
def test_positive_and_never_worse_than_before(seed, log_scale):
    logits, labels = draws(samples=20, seed=seed)
    logits = logits * np.exp(log_scale)
    temperature = fit_temperature(logits, labels)
    assert 1e-5 < temperature < 1e5
    assert loss_at(np.log(temperature), logits, labels) <= loss_at(0.0, logits, labels) + 1e-12


def test_where_the_data_have_no_optimum():
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    cold, hot = fit_temperature(logits, [0, 1]), fit_temperature(logits, [1, 0])
    assert 1e-4 <= cold < 0.05
    assert loss_at(np.log(cold), logits, np.array([0, 1])) < 1e-8
    assert hot == pytest.approx(1e4)


def test_constant_logits_have_nothing_to_fit():
    assert fit_temperature(np.zeros((3, 2)), [0, 1, 1]) == 1
