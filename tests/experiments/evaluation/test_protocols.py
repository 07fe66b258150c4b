"""The metrics of each protocol, and their values in undefined cases."""

import math

import numpy as np
import pytest

from experiments.evaluation import PROTOCOLS, classification_report


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("classes", [2, 3])
def test_certain_of_everything_and_half_right(protocol, classes):
    logits = 1e4 * np.eye(classes)[[0, 0, 1, 1]]
    report = classification_report(logits, [0, 1, 1, 0], protocol=protocol)
    assert (report.accuracy, report.mcc) == (0.5, 0)
    assert report.brier == 1
    assert report.nll == pytest.approx(5000)
    assert report.auroc == 0.5  # ties count half
    assert report.fpr95 == 1
    # By sgpa every one is dropped and the zeros remain: of two classes half come true, of three a third do.
    expected = {"sgpa": 2 / (4 * (classes - 1))}.get(protocol, 0.5)
    assert report.ece == pytest.approx(expected)
    assert report.mce == pytest.approx(expected)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_equal_scores_are_the_first_class(protocol):
    report = classification_report(np.zeros((4, 2)), [0, 0, 0, 1], protocol=protocol)
    assert report.accuracy == 0.75
    assert report.nll == pytest.approx(math.log(2))
    assert report.brier == pytest.approx(0.5)
    assert report.mcc == 0
    # Ties keep the order of the samples: risks 0, 0, 0, 1/4.
    assert report.aurc == pytest.approx(1 / 16)
    # P(y = 1) is one half and came true once in four; the top label three times in four; all classes half the time.
    assert report.ece == pytest.approx(0 if protocol == "sgpa" else 0.25)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_right_and_all_wrong(protocol):
    logits = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    right, wrong = (classification_report(logits, labels, protocol=protocol) for labels in ([0, 1, 0], [1, 0, 1]))
    assert (right.accuracy, right.aurc) == (1, 0)
    assert (wrong.accuracy, wrong.aurc) == (0, 1)
    assert (right.mcc, wrong.mcc) == pytest.approx((1, -1))
    for report in (right, wrong):
        assert math.isnan(report.auroc)
        assert math.isnan(report.fpr95)
