import numpy as np
import pytest
import torch
import torch_uncertainty.metrics as tum
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_matthews_corrcoef

from experiments.evaluation import (
    accuracy,
    brier_score,
    matthews_correlation,
    mean_log_probabilities,
    mean_probabilities,
    negative_log_likelihood,
)
from tests.experiments.evaluation.simulated import draws


def test_match_scikit_learn_and_torch_uncertainty():
    logits, labels = draws()
    probabilities = mean_probabilities(logits)
    assert accuracy(probabilities, labels) == accuracy_score(labels, probabilities.argmax(-1))
    assert negative_log_likelihood(mean_log_probabilities(logits), labels) == pytest.approx(
        log_loss(labels, probabilities)
    )
    brier = tum.BrierScore(num_classes=4)
    brier.update(torch.tensor(probabilities), torch.tensor(labels))
    assert brier_score(probabilities, labels) == pytest.approx(brier.compute().item(), rel=1e-6)


def test_brier_score_of_two_classes_is_twice_the_binary_one():
    logits, labels = draws(classes=2)
    probabilities = mean_probabilities(logits)
    binary = brier_score_loss(labels, probabilities[:, 1])
    assert brier_score(probabilities, labels) == pytest.approx(2 * binary)


def test_confident_error_costs_what_it_costs():
    log_p = mean_log_probabilities([[1e4, 0.0]])
    assert negative_log_likelihood(log_p, [1]) == pytest.approx(1e4)
    assert negative_log_likelihood(log_p, [0]) == 0
    assert brier_score(np.exp(log_p), [1]) == 2
    assert brier_score(np.exp(log_p), [0]) == 0


def test_matthews_correlation_matches_torchmetrics_and_the_contingency_table():
    logits, labels = draws(scale=1.0)
    predictions = logits[0].argmax(-1)
    oracle = multiclass_matthews_corrcoef(torch.tensor(predictions), torch.tensor(labels), num_classes=4)
    assert matthews_correlation(predictions, labels) == pytest.approx(oracle.item(), abs=1e-6)
    # tp 3, tn 2, fp 1, fn 1
    table = matthews_correlation([1, 1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0, 1])
    assert table == pytest.approx((3 * 2 - 1 * 1) / np.sqrt(4 * 4 * 3 * 3))


@pytest.mark.parametrize("constant", [0, 1])
def test_constant_predictor_or_constant_labels_correlate_with_nothing(constant):
    labels = np.array([1, 1, 0, 1])
    assert matthews_correlation(np.full(4, constant), labels) == 0
    assert matthews_correlation(labels, np.full(4, constant)) == 0


def test_perfect_and_opposite_predictions():
    labels = np.array([0, 1, 1, 0])
    assert matthews_correlation(labels, labels) == 1
    assert matthews_correlation(1 - labels, labels) == -1


def test_batched_matthews_correlation_is_the_mean_over_batches():
    generator = np.random.default_rng(0)
    labels, predictions = generator.integers(2, size=(2, 70))
    parts = [slice(0, 32), slice(32, 64), slice(64, 70)]
    expected = np.mean([np.corrcoef(labels[part], predictions[part])[0, 1] for part in parts])  # = MCC for two classes
    assert matthews_correlation(predictions, labels, batch_size=32) == pytest.approx(expected)
