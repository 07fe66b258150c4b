import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch_uncertainty.metrics.classification import AURC

from experiments.evaluation import (
    area_under_risk_coverage,
    excess_area_under_risk_coverage,
    failure_prediction,
    risk_coverage_curve,
)
from tests.experiments.evaluation.simulated import draws

# Distinct confidences: with ties the order of the samples decides, on purpose.
PREDICTIONS = st.lists(
    st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=25, unique_by=lambda pair: pair[0]
)


@given(PREDICTIONS)
def test_curve_and_area_match_brute_force(pairs):
    confidence, correct = map(np.array, zip(*pairs, strict=True))
    kept = sorted(pairs, reverse=True)
    risks = [sum(not right for _, right in kept[:k]) / k for k in range(1, len(kept) + 1)]
    curve = risk_coverage_curve(confidence, correct)
    np.testing.assert_allclose(curve.risk, risks)
    np.testing.assert_allclose(curve.coverage, np.arange(1, len(kept) + 1) / len(kept))
    assert area_under_risk_coverage(confidence, correct) == pytest.approx(np.mean(risks))


@given(PREDICTIONS, st.randoms(use_true_random=False))
def test_order_and_monotone_scale_do_not_matter(pairs, random):
    confidence, correct = map(np.array, zip(*pairs, strict=True))
    order = random.sample(range(len(pairs)), len(pairs))
    value = area_under_risk_coverage(confidence, correct)
    assert area_under_risk_coverage(confidence[order], correct[order]) == pytest.approx(value)
    assert area_under_risk_coverage(3 * confidence - 1, correct) == pytest.approx(value)
    assert 0 <= value <= 1


def test_ties_keep_the_order_of_the_samples():
    assert risk_coverage_curve([0.5, 0.5, 0.5], [True, False, True]).risk == pytest.approx([0, 1 / 2, 1 / 3])
    assert risk_coverage_curve([0.5, 0.5, 0.5], [False, True, True]).risk == pytest.approx([1, 1 / 2, 1 / 3])


def test_curve_of_torch_uncertainty_has_the_same_area_but_for_its_rule():
    logits, labels = draws(samples=300)
    probabilities = torch.tensor(logits[0]).softmax(-1)
    confidence, prediction = probabilities.max(-1)
    oracle = AURC()
    oracle.update(probabilities, torch.tensor(labels))
    risk = risk_coverage_curve(confidence, prediction.numpy() == labels).risk
    np.testing.assert_allclose(risk, oracle.partial_compute(), atol=1e-6)
    # Theirs is the trapezoidal area over [1/N, 1], rescaled: the mean with half weights at both ends.
    trapezoid = (risk.sum() - (risk[0] + risk[-1]) / 2) / (len(risk) - 1)
    assert oracle.compute().item() == pytest.approx(trapezoid, abs=1e-6)


def test_excess_is_zero_in_the_limits():
    assert excess_area_under_risk_coverage([0.9, 0.8], [True, True]) == 0
    assert excess_area_under_risk_coverage([0.9, 0.8], [False, False]) == 0
    correct = np.arange(20_000) < 15_000  # a perfect ranking, many samples
    assert excess_area_under_risk_coverage(-np.arange(20_000.0), correct) == pytest.approx(0, abs=1e-4)
    # A ranking that says nothing costs the error rate itself.
    useless = np.arange(20_000) % 4 > 0
    expected = 0.25 - (0.25 + 0.75 * np.log(0.75))
    assert excess_area_under_risk_coverage(-np.arange(20_000.0), useless) == pytest.approx(expected, abs=1e-3)


def test_one_sample():
    assert area_under_risk_coverage([0.7], [False]) == 1
    assert area_under_risk_coverage([0.7], [True]) == 0


def test_failure_prediction_matches_counting():
    logits, labels = draws(samples=500)
    probabilities = torch.tensor(logits[0]).softmax(-1)
    confidence, correct = probabilities.max(-1).values.numpy(), probabilities.argmax(-1).numpy() == labels
    result = failure_prediction(confidence, correct)
    assert result.auroc == pytest.approx(roc_auc_score(~correct, -confidence))
    right, wrong = confidence[correct], confidence[~correct]
    threshold = np.sort(right)[::-1][int(np.ceil(0.95 * len(right))) - 1]
    assert result.fpr95 == pytest.approx((wrong >= threshold).mean())


def test_nearest_rule_may_stop_below_the_level():
    # Of nineteen right predictions, eighteen are nearest to 95 %, and only nineteen reach it.
    correct = np.array([True] * 18 + [False, True, False])
    confidence = np.linspace(0.9, 0.1, 21)
    assert failure_prediction(confidence, correct, rule="first").fpr95 == 0.5
    assert failure_prediction(confidence, correct, rule="nearest").fpr95 == 0.0


@pytest.mark.parametrize("correct", [[True, True], [False, False]])
def test_nothing_to_separate_is_not_a_number(correct):
    assert np.isnan(failure_prediction([0.4, 0.6], correct)).all()


def test_many_ties_keep_the_order_too():
    correct = np.random.default_rng(0).random(500) < 0.7
    risk = risk_coverage_curve(np.repeat([0.5, 0.9], 250), correct).risk
    reordered = np.concatenate([correct[250:], correct[:250]])
    np.testing.assert_allclose(risk, np.cumsum(~reordered) / np.arange(1, 501))


def test_first_rule_looks_at_every_threshold_not_at_corners_only():
    confidence = np.repeat(np.arange(40.0), 2)  # pairs of one right and one wrong: the ROC curve is the diagonal
    correct = np.tile([True, False], 40)
    assert failure_prediction(confidence, correct, rule="first").fpr95 == 0.95
    assert failure_prediction(confidence, correct, rule="nearest").fpr95 == 1
