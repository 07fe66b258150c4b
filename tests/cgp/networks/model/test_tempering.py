"""Probabilities with a temperature, and what it may cost."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax

from cgp import predict
from cgp.networks.model.fingerprints import set_logit_temperature
from cgp.networks.model.tempering import KEPT, harm_of_temperatures, log_probabilities, probabilities


def _heavy(count: int, scale: float) -> np.ndarray:
    return scale * np.random.default_rng(0).standard_t(2, (count, 6))


@pytest.mark.parametrize("temperature", [0.01, 0.3, 0.99, 1.0, 1.7, 50.0])
def test_they_are_scipys_and_below_one_keep_a_hundredth_of_those_without(temperature):
    logits = _heavy(200, 3.0)
    expected = softmax(logits / temperature, -1)
    if temperature < 1.0:
        expected = 0.99 * expected + 0.01 * softmax(logits, -1)
    given = torch.from_numpy(logits)
    torch.testing.assert_close(probabilities(given, temperature).numpy(), expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(log_probabilities(given, temperature).exp().numpy(), expected, rtol=1e-10, atol=0.0)


def test_their_logarithms_do_not_underflow():
    logits = np.array([[4000.0, 0.0, 1.0]])
    parts = [log_softmax(2.0 * logits, -1) + math.log(0.99), log_softmax(logits, -1) + math.log(0.01)]
    found = log_probabilities(torch.from_numpy(logits), 0.5).numpy()
    np.testing.assert_allclose(found, logsumexp(parts, 0), rtol=1e-14, atol=1e-15)


def test_a_masked_class_stays_impossible():
    logits = torch.tensor([1.0, -torch.inf, 0.0])
    for temperature in (0.5, 2.0):
        assert probabilities(logits, temperature)[1] == 0.0
        assert log_probabilities(logits, temperature)[1] == -torch.inf
        assert probabilities(logits, temperature).sum() == pytest.approx(1.0)


def test_a_sigmoid_is_a_softmax_of_two():
    logits = torch.from_numpy(_heavy(50, 5.0))
    pairs = torch.stack([torch.zeros_like(logits), logits], -1)
    for temperature in (0.4, 1.0, 3.0):
        both = probabilities(pairs, temperature)[..., 1]
        torch.testing.assert_close(probabilities(logits, temperature, binary=True), both)


@pytest.mark.parametrize("temperatures", [(3.0, 2.0), (0.5,), (0.001, 2.0), (1.0,)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_no_label_loses_more_by_a_temperature_than_the_bound(temperatures, scale):
    logits = torch.from_numpy(_heavy(2000, scale))
    harm = max(float((log_probabilities(logits, 1.0) - log_probabilities(logits, t)).max()) for t in temperatures)
    assert harm <= harm_of_temperatures(temperatures, 6) + 1e-12


def test_the_bound_is_reached():
    sure = torch.tensor([[500.0, 0.0, 0.0]], dtype=torch.float64)
    harm = float((log_probabilities(sure, 1.0) - log_probabilities(sure, 0.5)).max())
    assert harm == pytest.approx(harm_of_temperatures([0.5], 3)) == pytest.approx(-math.log(KEPT))
    assert harm_of_temperatures([3.0, 2.0], 6) == pytest.approx(2 / 3 * math.log(6))


@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_predict_gives_them(task):
    logits = torch.from_numpy(_heavy(40, 2.0)).float()
    model = torch.nn.Identity()
    set_logit_temperature(model, 0.4)
    prediction = predict(model, logits, task=task)
    expected = probabilities(logits, 0.4, binary=task == "multilabel")
    torch.testing.assert_close(prediction.probabilities, expected)
    torch.testing.assert_close(prediction.mean, logits / 0.4)
