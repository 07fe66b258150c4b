import numpy as np
import pytest
import torch

from experiments.evaluation import (
    area_under_risk_coverage,
    brier_score,
    classification_report,
    detection_report,
    fit_temperature,
    matthews_correlation,
    mean_probabilities,
    negative_log_likelihood,
    reliability_bins,
    separation,
)
from tests.experiments.evaluation.simulated import draws


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros(3), r"logits must have shape .* got \(3,\)"),
        (np.zeros((1, 1, 2, 2)), "logits must have shape"),
        (np.zeros((0, 4, 2)), "at least one draw"),
        (np.zeros((2, 4, 1)), "two classes"),
        (np.array([[0.0, np.nan]]), "logits must be finite, got 1 values of 2"),
        (np.array([[0.0, np.inf]]), "logits must be finite"),
    ],
)
def test_logits_are_refused_at_the_door(logits, message):
    with pytest.raises(ValueError, match=message):
        mean_probabilities(logits)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"labels must have shape \(3,\), got \(2,\)"),
        ([[0], [1], [1]], "labels must have shape"),
        ([0, 1, 2], r"integers in \[0, 2\)"),
        ([0, 1, -1], r"integers in \[0, 2\)"),
        ([0, 1, 0.5], "integers"),
        ([0, 1, np.nan], "labels must be finite"),
    ],
)
@pytest.mark.parametrize("metric", [classification_report, fit_temperature])
def test_labels_are_refused_at_the_door(metric, labels, message):
    with pytest.raises(ValueError, match=message):
        metric(np.zeros((1, 3, 2)), labels)


def test_other_inputs_are_refused_at_the_door():
    with pytest.raises(ValueError, match="protocol must be one of pooled, cgpt, kep, sgpa, got 'kepp'"):
        classification_report(np.zeros((3, 2)), [0, 1, 1], protocol="kepp")
    with pytest.raises(ValueError, match="sum to one"):
        brier_score([[2.0, -1.0]], [0])
    with pytest.raises(ValueError, match=r"exp\(log_probabilities\)"):
        negative_log_likelihood([[3.0, 2.0]], [0])
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\]"):
        reliability_bins([1.2], [1])
    with pytest.raises(ValueError, match="bins must be at least 1"):
        reliability_bins([0.2], [1], bins=0)
    with pytest.raises(ValueError, match="booleans"):
        area_under_risk_coverage([0.5], [2])
    with pytest.raises(ValueError, match=r"correct must have shape \(1,\)"):
        area_under_risk_coverage([0.5], [1, 0])
    with pytest.raises(ValueError, match="at least one sample"):
        area_under_risk_coverage([], [])
    with pytest.raises(ValueError, match="both groups"):
        separation([0.1, 0.2], [True, True])
    with pytest.raises(ValueError, match="ood must be finite"):
        detection_report([0.1], [np.nan])
    with pytest.raises(ValueError, match="predictions must have shape"):
        matthews_correlation([0, 1], [0, 1, 1])


def test_tensors_of_any_kind_give_what_arrays_give():
    logits, labels = draws()
    tensor = torch.tensor(logits, requires_grad=True)
    assert classification_report(tensor, torch.tensor(labels)) == classification_report(logits, labels)
    half = torch.tensor(logits).bfloat16()
    assert classification_report(half, labels) == classification_report(half.float().numpy(), labels)


def test_two_axes_are_one_draw():
    logits, labels = draws()
    assert classification_report(logits[0], labels) == classification_report(logits[:1], labels)
