import numpy as np
import pytest
import torch

from experiments.evaluation import (
    PROTOCOLS,
    area_under_risk_coverage,
    calibration_error,
    classification_report,
    failure_prediction,
    matthews_correlation,
)
from tests.experiments.evaluation.simulated import draws


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_holds_each_metric_of_its_protocol(protocol):
    logits, labels = draws(samples=100, classes=2)
    tensor = torch.tensor(logits)
    probabilities = tensor.mean(0).softmax(-1) if protocol == "kep" else tensor.softmax(-1).mean(0)
    confidence, predictions = (values.numpy() for values in probabilities.max(-1))
    correct = predictions == labels
    report = classification_report(logits, labels, protocol=protocol)
    assert report.accuracy == pytest.approx(correct.mean())
    assert report.nll == pytest.approx(torch.nn.functional.nll_loss(probabilities.log(), torch.tensor(labels)).item())
    assert (report.ece, report.mce) == calibration_error(logits, labels, protocol=protocol)
    assert report.mcc == matthews_correlation(predictions, labels, batch_size=32 if protocol == "kep" else None)
    assert report.aurc == pytest.approx(area_under_risk_coverage(confidence, correct))
    expected = failure_prediction(confidence, correct, rule="nearest" if protocol == "kep" else "first")
    assert report[-4:] == pytest.approx(expected)


def test_papers_protocols_see_ties_where_single_precision_is_saturated():
    # Both confidences round to 1 in float32: the order of the samples then decides, and the wrong one comes first.
    logits = np.array([[20.0, 0.0], [25.0, 0.0]])
    assert classification_report(logits, [1, 0]).aurc == 0.25
    assert classification_report(logits, [1, 0], protocol="kep").aurc == 0.75


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_right_all_wrong_and_a_single_sample(protocol):
    logits = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    right = classification_report(logits, [0, 1, 2], protocol=protocol)
    wrong = classification_report(logits, [1, 2, 0], protocol=protocol)
    single = classification_report(logits[:1], [0], protocol=protocol)
    assert (right.accuracy, right.aurc, right.eaurc, right.mcc) == (1, 0, 0, 1)
    assert (wrong.accuracy, wrong.aurc, wrong.eaurc) == (0, 1, 0)
    assert (single.accuracy, single.aurc, single.mcc) == (1, 0, 0)
    assert np.isnan([right.auroc, wrong.fpr95, single.aupr_error]).all()


@pytest.mark.parametrize("protocol", ["pooled", "sgpa"])
def test_order_of_samples_does_not_matter(protocol):
    logits, labels = draws()
    order = np.random.default_rng(0).permutation(len(labels))
    report, other = (classification_report(logits[:, o], labels[o], protocol=protocol) for o in (slice(None), order))
    np.testing.assert_allclose(report, other, rtol=1e-9)


def test_row_of_a_table():
    logits, labels = draws()
    row = classification_report(logits, labels)._asdict()
    assert list(row)[:6] == ["accuracy", "nll", "ece", "mce", "brier", "mcc"]
    assert all(type(value) is float for value in row.values())
