"""The temperature under which labels are likeliest, against searches of scipy and derivatives of torch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from cgp.networks.methods.temperature_scaling import (
    LARGEST_TEMPERATURE,
    SMALLEST_TEMPERATURE,
    fit_temperature,
    minimise_over_temperature,
    precision_slopes,
)


def draws(*, samples=200, classes=4, num_samples=5, seed=0, scale=2.0):
    """Logits (S, N, C) that know something of their labels, and the labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=samples)
    noise = generator.normal(size=(num_samples, samples, classes))
    return scale * (np.eye(classes)[labels] + noise), labels


def loss_at(log_temperature, logits, labels):
    """The mean negative log-likelihood, by scipy, at one temperature or each of several."""
    temperature = np.exp(log_temperature)[..., None, None, None]
    log_p = log_softmax(logits / temperature, axis=-1)[..., np.arange(len(labels)), labels]
    return math.log(len(logits)) - logsumexp(log_p, axis=-2).mean(axis=-1)


@pytest.mark.parametrize("scale", [0.1, 1.0, 60.0, 3000.0])
@pytest.mark.parametrize("num_samples", [1, 5])
def test_temperature_is_that_of_a_bracketing_search(scale, num_samples):
    logits, labels = draws(num_samples=num_samples, scale=2 * scale)
    oracle = minimize_scalar(loss_at, bounds=(-9, 9), args=(logits, labels), method="bounded", options={"xatol": 1e-10})
    assert math.log(fit_temperature(logits, labels)) == pytest.approx(oracle.x, abs=1e-5)
    two = torch.tensor(logits) if num_samples > 1 else torch.tensor(logits[0])
    assert fit_temperature(two, torch.tensor(labels)) == fit_temperature(logits, labels)


def test_slopes_are_derivatives_of_the_loss():
    """Also where a class is masked, and where a label is, which has no slope."""
    logits, labels = (torch.tensor(part) for part in draws(samples=30))
    logits[:, ::3, 1] = -torch.inf
    masked = (logits.gather(-1, labels.expand(5, 30)[..., None])[..., 0] == -torch.inf).all(0)
    assert 0 < masked.sum() < 10

    def loss(precision):
        log_p = (logits[:, ~masked].clamp(min=-1e30) * precision).log_softmax(-1)
        return -log_p.gather(-1, labels[~masked].expand(5, -1)[..., None])[..., 0].logsumexp(0).sum()

    for start in (0.3, 1.0, 7.0):
        at = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(loss(at), at, create_graph=True)
        (second,) = torch.autograd.grad(first, at)
        torch.testing.assert_close(precision_slopes(logits, labels, start), torch.stack([first.detach(), second]))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(-3, 3), st.integers(1, 3))
def test_temperature_is_never_worse_than_none(seed, log_scale, num_samples):
    logits, labels = draws(samples=20, seed=seed, scale=2 * math.exp(log_scale), num_samples=num_samples)
    temperature = fit_temperature(logits, labels)
    assert SMALLEST_TEMPERATURE <= temperature <= LARGEST_TEMPERATURE
    others = np.linspace(-7, 7, 11) if num_samples == 1 else (0.0, 0.9 * math.log(temperature))
    here = loss_at(math.log(temperature), logits, labels)
    assert all(here <= loss_at(other, logits, labels) + 1e-9 for other in others)


@pytest.mark.parametrize("scale", [1.0, 0.05, 0.02])
def test_of_two_minima_the_one_downhill_from_one_is_taken(scale):
    """Averages of draws may have several: here two draws of three labels, both sharp in one place only."""
    margins = scale * np.array([[-0.1, 1400.0, -70.0], [400.0, 0.09, 1.0]])
    logits, labels = np.stack([margins, 0 * margins], -1), np.zeros(3, int)
    grid = np.linspace(-9, 9, 7201)
    losses = loss_at(grid, logits, labels)
    minima = grid[1:-1][(losses[1:-1] < losses[:-2]) & (losses[1:-1] < losses[2:])]
    assert len(minima) == 2
    downhill = 1 if loss_at(0.01, logits, labels) < loss_at(0.0, logits, labels) else -1
    expected = min(minima[downhill * minima > 0], key=abs)
    assert math.log(fit_temperature(logits, labels)) == pytest.approx(expected, abs=2.5e-3)


def test_temperature_where_the_data_have_no_optimum():
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    cold, hot = fit_temperature(logits, [0, 1]), fit_temperature(logits, [1, 0])
    assert SMALLEST_TEMPERATURE <= cold < 0.05
    assert loss_at(math.log(cold), logits[None], np.array([0, 1])) < 1e-8
    assert hot == pytest.approx(LARGEST_TEMPERATURE)
    assert fit_temperature(np.zeros((3, 2)), [0, 1, 1]) == 1
    assert fit_temperature(logits, [0, 1], least=0.25) == pytest.approx(0.25)


def test_examples_without_label_or_masked_have_no_effect():
    logits, labels = draws(samples=40)
    expected = fit_temperature(logits[:, :30], labels[:30])
    labels[30:35] = -100
    logits[:, np.arange(35, 40), labels[35:]] = -np.inf
    assert fit_temperature(logits, labels) == pytest.approx(expected, rel=1e-9)


def test_newton_ends_at_the_nearer_end_in_few_steps():
    seen = []

    def slopes(precision):
        seen.append(precision)
        return torch.tensor([-1.0, 1.0])

    assert minimise_over_temperature(slopes, 1.0, 1.0, 2.0, tolerance=1e-3) == 1.0
    assert seen == [1.0]


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((1, 3, 2)), [[0], [1], [1]], r"labels: expected labels of shape \(3,\)"),
        (np.zeros((1, 3, 2)), [0, 1, 2], "class indices from 0 to 1"),
        (np.zeros((3, 2)), [-100, -100, -100], "labels: expected labels, got none"),
        (np.zeros(3), [0, 1, 1], r"logits: expected shape \(S, N, C\)"),
        ([[0.0, np.nan]], [0], "logits: expected finite values, got nan in row 0"),
    ],
)
def test_input_is_checked(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(logits, labels)
