import numpy as np
import pytest
import torch
import torch_uncertainty.metrics as tum
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss, roc_auc_score
from torch_uncertainty.metrics.classification import AURC
from torchmetrics.functional.classification import multiclass_matthews_corrcoef

from experiments.evaluation import (
    accuracy,
    area_under_risk_coverage,
    brier_score,
    excess_area_under_risk_coverage,
    false_positive_rate,
    matthews_correlation,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    negative_log_likelihood,
    predictive_log_probabilities,
    risk_coverage_curve,
    separation,
    uncertainty,
)
from tests.experiments.evaluation.simulated import draws

LOGITS = arrays(np.float64, st.tuples(*[st.integers(1, 4)] * 2, st.integers(2, 4)), elements=st.floats(-50, 50))


def test_matches_torch_and_torch_uncertainty():
    logits, _ = draws()
    probabilities = torch.tensor(logits).softmax(-1)
    parts = uncertainty(logits)
    np.testing.assert_allclose(mean_probabilities(logits), probabilities.mean(0), rtol=1e-12)
    np.testing.assert_allclose(mean_logits(logits), torch.tensor(logits).mean(0), rtol=1e-12)
    total = torch.distributions.Categorical(probabilities.mean(0)).entropy()
    aleatoric = torch.distributions.Categorical(probabilities).entropy().mean(0)
    np.testing.assert_allclose(parts.total, total, rtol=1e-9)
    np.testing.assert_allclose(parts.aleatoric, aleatoric, rtol=1e-9)
    mutual_information = tum.MutualInformation(reduction="none")
    mutual_information.update(probabilities.transpose(0, 1))
    np.testing.assert_allclose(parts.epistemic, mutual_information.compute(), atol=1e-9)


@given(LOGITS)
def test_parts_add_up_and_stay_in_range(logits):
    parts = uncertainty(logits)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-10)
    assert min(part.min() for part in parts) >= 0
    assert parts.total.max() <= np.log(logits.shape[-1]) + 1e-12
    assert parts.epistemic.max() <= np.log(len(logits)) + 1e-12


@given(LOGITS, st.randoms(use_true_random=False))
def test_order_of_draws_and_shift_of_logits_do_not_matter(logits, random):
    order = random.sample(range(len(logits)), len(logits))
    shifted = logits[order] + random.uniform(-5, 5)
    for part, other in zip(uncertainty(logits), uncertainty(shifted), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-10)


def test_one_draw_and_equal_draws_have_no_epistemic_uncertainty():
    logits, _ = draws()
    assert uncertainty(logits[0]).epistemic.max() < 1e-14
    assert uncertainty(np.repeat(logits[:1], 3, 0)).epistemic.max() < 1e-14


def test_extreme_logits_stay_finite():
    logits = np.array([[[1e4, 0.0, -1e4]], [[-1e4, 0.0, 1e4]]])
    assert all(np.isfinite(part).all() for part in uncertainty(logits))
    np.testing.assert_allclose(uncertainty(logits).epistemic, np.log(2))
    np.testing.assert_allclose(mean_log_probabilities(logits), [[-np.log(2), -1e4, -np.log(2)]], rtol=1e-12)


@pytest.mark.parametrize("protocol", ["pooled", "cgpt", "sgpa"])
def test_only_kep_averages_logits(protocol):
    logits = np.array([[[4.0, 0.0]], [[0.0, 2.0]]])
    by_probability = torch.tensor(logits).softmax(-1).mean(0).log()
    by_logit = torch.tensor(logits).mean(0).log_softmax(-1)
    np.testing.assert_allclose(predictive_log_probabilities(logits, protocol=protocol), by_probability, rtol=1e-12)
    np.testing.assert_allclose(predictive_log_probabilities(logits, protocol="kep"), by_logit, rtol=1e-12)


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
    result = separation(confidence, correct)
    assert result.auroc == pytest.approx(roc_auc_score(~correct, -confidence))
    assert result.average_precision_negative == average_precision_score(~correct, -confidence)
    right, wrong = confidence[correct], confidence[~correct]
    threshold = np.sort(right)[::-1][int(np.ceil(0.95 * len(right))) - 1]
    assert result.fpr95 == pytest.approx((wrong >= threshold).mean())


def test_nearest_rule_may_stop_below_the_level():
    # Of nineteen right predictions, eighteen are nearest to 95 %, and only nineteen reach it.
    correct = np.array([True] * 18 + [False, True, False])
    confidence = np.linspace(0.9, 0.1, 21)
    assert separation(confidence, correct, rule="first").fpr95 == 0.5
    assert separation(confidence, correct, rule="nearest").fpr95 == 0.0


@pytest.mark.parametrize(("argument", "value"), [("rule", "last"), ("level", 0.0), ("level", 1.5)])
def test_false_positive_rate_refuses(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must"):
        false_positive_rate([0.1, 0.2], [True, False], **{argument: value})


def test_many_ties_keep_the_order_too():
    correct = np.random.default_rng(0).random(500) < 0.7
    risk = risk_coverage_curve(np.repeat([0.5, 0.9], 250), correct).risk
    reordered = np.concatenate([correct[250:], correct[:250]])
    np.testing.assert_allclose(risk, np.cumsum(~reordered) / np.arange(1, 501))


def test_first_rule_looks_at_every_threshold_not_at_corners_only():
    confidence = np.repeat(np.arange(40.0), 2)  # pairs of one right and one wrong: the ROC curve is the diagonal
    correct = np.tile([True, False], 40)
    assert separation(confidence, correct, rule="first").fpr95 == 0.95
    assert separation(confidence, correct, rule="nearest").fpr95 == 1
