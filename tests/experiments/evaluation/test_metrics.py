"""Predictions, uncertainties and scores against torch, torch-uncertainty, scikit-learn, and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import log_loss, roc_auc_score
from torchmetrics.functional.classification import multiclass_matthews_corrcoef

from experiments.evaluation import (
    classification_report,
    matthews_correlation,
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    negative_log_likelihood,
    uncertainty,
)
from experiments.evaluation.detection import detection_report
from experiments.evaluation.protocols import reliability_bins, rules
from tests.experiments.evaluation.simulated import draws

tum = pytest.importorskip("torch_uncertainty.metrics")  # not for Python 3.14 yet
LOGITS = arrays(np.float64, st.tuples(*[st.integers(1, 4)] * 2, st.integers(2, 4)), elements=st.floats(-50, 50))


def test_matches_torch_and_torch_uncertainty():
    logits, labels = draws()
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
    assert negative_log_likelihood(logits, labels) == pytest.approx(log_loss(labels, mean_probabilities(logits)))
    assert negative_log_likelihood(mean_log_probabilities(logits), labels) == pytest.approx(
        negative_log_likelihood(logits, labels)
    )


@given(LOGITS, st.randoms(use_true_random=False))
def test_parts_add_up_and_order_of_draws_and_shift_of_logits_do_not_matter(logits, random):
    parts = uncertainty(logits)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-10)
    assert min(part.min() for part in parts) >= 0
    assert parts.total.max() <= np.log(logits.shape[-1]) + 1e-12
    assert parts.epistemic.max() <= np.log(len(logits)) + 1e-12
    order = random.sample(range(len(logits)), len(logits))
    for part, other in zip(parts, uncertainty(logits[order] + random.uniform(-5, 5)), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-10)


def test_extreme_logits_stay_finite_and_errors_keep_their_cost():
    logits = np.array([[[1e4, 0.0, -1e4]], [[-1e4, 0.0, 1e4]]])
    assert all(np.isfinite(part).all() for part in uncertainty(logits))
    np.testing.assert_allclose(uncertainty(logits).epistemic, np.log(2))
    np.testing.assert_allclose(mean_log_probabilities(logits), [[-np.log(2), -1e4, -np.log(2)]], rtol=1e-12)
    assert negative_log_likelihood([[1e4, 0.0]], [1]) == pytest.approx(1e4)
    assert negative_log_likelihood([[1e4, 0.0]], [0]) == 0


def test_matthews_correlation_matches_torchmetrics_and_its_table():
    logits, labels = draws(scale=1.0)
    predictions = logits[0].argmax(-1)
    oracle = multiclass_matthews_corrcoef(torch.tensor(predictions), torch.tensor(labels), num_classes=4)
    assert matthews_correlation(predictions, labels) == pytest.approx(oracle.item(), abs=1e-6)
    # tp 3, tn 2, fp 1, fn 1
    table = matthews_correlation([1, 1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0, 1])
    assert table == pytest.approx((3 * 2 - 1 * 1) / np.sqrt(4 * 4 * 3 * 3))
    for constant in (0, 1):
        assert matthews_correlation(np.full(4, constant), [1, 1, 0, 1]) == 0


def test_batched_matthews_correlation_is_the_mean_over_batches():
    generator = np.random.default_rng(0)
    labels, predictions = generator.integers(2, size=(2, 70))
    parts = [slice(0, 32), slice(32, 64), slice(64, 70)]
    expected = np.mean([np.corrcoef(labels[part], predictions[part])[0, 1] for part in parts])  # = MCC for two classes
    assert matthews_correlation(predictions, labels, batch_size=32) == pytest.approx(expected)


def test_failure_prediction_matches_counting():
    logits, labels = draws(samples=500, scale=1.0)
    log_p = mean_log_probabilities(logits[:1])
    confidence, correct = np.exp(log_p).max(-1), log_p.argmax(-1) == labels
    result = classification_report(logits[:1], labels)
    assert result.auroc == pytest.approx(roc_auc_score(correct, confidence))
    right, wrong = confidence[correct], confidence[~correct]
    threshold = np.sort(right)[::-1][int(np.ceil(0.95 * len(right))) - 1]
    assert result.fpr95 == pytest.approx((wrong >= threshold).mean())
    kept = correct[np.argsort(-confidence)]
    assert result.aurc == pytest.approx(np.mean([1 - kept[:count].mean() for count in range(1, 501)]))


def test_nearest_rule_may_stop_below_the_level_and_looks_at_corners_only():
    # Of nineteen right predictions, eighteen are nearest to 95 %, and only nineteen reach it.
    correct = np.array([True] * 18 + [False, True, False])
    confidence = np.linspace(0.9, 0.1, 21)
    first, nearest = (rules(protocol).fpr for protocol in ("pooled", "kep"))
    assert first(confidence[~correct], confidence[correct]) == 0.5
    assert nearest(confidence[~correct], confidence[correct]) == 0.0
    pairs = np.arange(40.0)  # of one right and one wrong: the ROC curve is the diagonal
    assert first(pairs, pairs) == 0.95
    assert nearest(pairs, pairs) == 1


THREE = np.zeros((1, 3, 2))
REFUSED = [
    (mean_probabilities, (np.zeros(3),), r"logits: expected shape .* got \(3,\)"),
    (mean_probabilities, (np.zeros((1, 1, 2, 2)),), "logits: expected shape"),
    (mean_probabilities, (np.zeros((0, 4, 2)),), "at least one draw"),
    (mean_probabilities, (np.zeros((2, 4, 1)),), "two classes"),
    (mean_probabilities, ([[0.0, np.nan]],), "logits: expected finite values, got 1 of 2"),
    (mean_probabilities, ([[0.0, np.inf]],), "logits: expected finite values"),
    (classification_report, (THREE, [0, 1]), r"labels: expected shape \(3,\), got \(2,\)"),
    (classification_report, (THREE, [[0], [1], [1]]), "labels: expected shape"),
    (classification_report, (THREE, [0, 1, 2]), r"integers in \[0, 2\)"),
    (classification_report, (THREE, [0, 1, -1]), r"integers in \[0, 2\)"),
    (negative_log_likelihood, (THREE, [0, 1, 0.5]), "integers"),
    (negative_log_likelihood, (THREE, [0, 1, np.nan]), "integers"),
    (reliability_bins, ([1.2], [1]), r"confidence: expected numbers in \[0, 1\]"),
    (reliability_bins, ([np.nan], [1]), "confidence: expected numbers"),
    (reliability_bins, ([0.5], [1, 0]), "one for each of 2 outcomes"),
    (detection_report, ([0.1], [np.nan]), "NaN"),
]


@pytest.mark.parametrize(("metric", "arguments", "message"), REFUSED)
def test_input_is_checked(metric, arguments, message):
    with pytest.raises(ValueError, match=message):
        metric(*arguments)


def test_tensors_of_any_kind_and_two_axes_equal_arrays():
    logits, labels = draws()
    tensor = torch.tensor(logits, requires_grad=True)
    assert classification_report(tensor, torch.tensor(labels)) == classification_report(logits, labels)
    half = torch.tensor(logits).bfloat16()
    assert classification_report(half, labels) == classification_report(half.float().numpy(), labels)
    assert classification_report(logits[0], labels) == classification_report(logits[:1], labels)
