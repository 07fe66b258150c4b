"""The numbers of every protocol, and the bins that calibration errors share."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.classification import calibration_error as torchmetrics_error

from experiments.evaluation import PROTOCOLS, classification_report
from experiments.evaluation.protocols import calibration_bins, calibration_error, reliability_bins
from tests.experiments.evaluation.simulated import draws


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


def brute_force(confidence, outcome, edges, *, closed):
    """Expected and maximum error by one loop over bins."""
    ece = mce = 0.0
    for low, high in itertools.pairwise(edges):
        above = confidence > low if closed == "right" else confidence >= low
        inside = above & (confidence <= high if closed == "right" else confidence < high)
        if inside.any():
            gap = abs(confidence[inside].mean() - outcome[inside].mean())
            ece += gap * inside.sum() / len(confidence)
            mce = max(mce, gap)
    return ece, mce


def test_bins_by_hand():
    bins = reliability_bins([0.0, 0.5, 0.75, 1.0], [0, 1, 0, 1], bins=4)
    assert bins.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert bins.counts.tolist() == [1, 1, 1, 1]
    assert bins.confidence.tolist() == [0, 0.5, 0.75, 1.0]
    assert bins.accuracy.tolist() == [0, 1, 0, 1]
    left = reliability_bins([0.0, 0.5, 0.75, 1.0], [0, 1, 0, 1], bins=4, closed="left")
    assert left.counts.tolist() == [1, 0, 1, 2]
    assert np.isnan(left.confidence[1])
    assert left.accuracy[3] == 0.5


def test_three_places_for_a_confidence_of_one():
    confidence, outcome = [0.95, 1.0, 1.0], [1, 1, 0]
    last, separate, dropped = (
        reliability_bins(confidence, outcome, bins=10, closed="left", ones=name) for name in ("last", "own", "dropped")
    )
    assert last.counts.tolist()[-1] == 3
    assert separate.counts.tolist()[-2:] == [1, 2]
    assert separate.edges[-2:].tolist() == [1, 1]
    assert dropped.counts.tolist()[-1] == dropped.counts.sum() == 1
    empty = reliability_bins([1.0], [0], ones="dropped")
    assert empty.expected_error == empty.maximum_error == 0


@given(
    st.lists(st.tuples(st.floats(0.001, 0.999), st.booleans()), min_size=1, max_size=30),
    st.sampled_from(["left", "right"]),
    st.integers(1, 20),
)
def test_core_matches_brute_force_and_order_does_not_matter(pairs, closed, size):
    confidence, outcome = map(np.array, zip(*pairs, strict=True))
    bins = reliability_bins(confidence, outcome, bins=size, closed=closed)
    expected = brute_force(confidence, outcome, np.linspace(0, 1, size + 1), closed=closed)
    np.testing.assert_allclose((bins.expected_error, bins.maximum_error), expected, atol=1e-12)
    back = reliability_bins(confidence[::-1], outcome[::-1], bins=size, closed=closed)
    np.testing.assert_allclose(back.confidence, bins.confidence)
    assert back.counts.tolist() == bins.counts.tolist()
    assert bins.counts.sum() == len(pairs)


def test_pooled_matches_torchmetrics_where_no_confidence_is_one():
    logits, labels = draws(samples=400)
    probabilities = torch.tensor(logits).softmax(-1).mean(0)
    for norm, value in zip(("l1", "max"), calibration_error(logits, labels), strict=True):
        options = {"task": "multiclass", "num_classes": 4, "n_bins": 15, "norm": norm}
        oracle = torchmetrics_error(probabilities, torch.tensor(labels), **options)
        assert value == pytest.approx(oracle.item(), abs=1e-6)


@pytest.mark.parametrize(("samples", "classes", "size"), [(2500, 10, 1000), (150, 2, 32)])
def test_cgpt_is_torchmetrics_on_batches(samples, classes, size):
    """Of ten classes every batch weighs the same, of two its size."""
    logits, labels = draws(samples=samples, classes=classes, scale=9.0, num_samples=1)
    p, y = torch.tensor(logits).softmax(-1).mean(0).float(), torch.tensor(labels)
    assert (p == 1).any()  # the case in which it matters
    task = {"task": "binary"} if classes == 2 else {"task": "multiclass", "num_classes": classes}
    parts = list(zip((p[:, 1] if classes == 2 else p).split(size), y.split(size), strict=True))
    weights = [len(labels) for _, labels in parts] if classes == 2 else None
    for norm, value in zip(("l1", "max"), calibration_error(logits, labels, protocol="cgpt"), strict=True):
        errors = [torchmetrics_error(a, b, n_bins=10, norm=norm, **task).item() for a, b in parts]
        assert value == pytest.approx(np.average(errors, weights=weights), abs=1e-6)


def test_kep_bins_the_softmax_of_mean_logits():
    logits, labels = draws(samples=300)
    probabilities = torch.tensor(logits).mean(0).softmax(-1).float()
    confidence, prediction = (values.numpy() for values in probabilities.max(-1))
    expected = brute_force(confidence.astype(float), prediction == labels, np.linspace(0, 1, 16), closed="right")
    np.testing.assert_allclose(calibration_error(logits, labels, protocol="kep"), expected, atol=1e-6)
    assert abs(calibration_error(logits, labels).ece - expected[0]) > 1e-3


def test_sgpa_bins_every_class_and_drops_ones():
    logits, labels = draws(samples=300)
    logits[:, :5] = 1e3 * np.eye(4)[labels[:5]]  # five samples whose label has probability exactly one
    flat = torch.tensor(logits).softmax(-1).mean(0).numpy().ravel()
    outcome = np.eye(4)[labels].ravel()
    kept = flat < 1
    assert (~kept).sum() == 5
    expected = brute_force(flat[kept], outcome[kept], np.linspace(0, 1, 11), closed="left")
    np.testing.assert_allclose(calibration_error(logits, labels, protocol="sgpa"), expected, atol=1e-6)
    ((_, bins),) = calibration_bins([[20.0, 0.0]], [0], protocol="sgpa")
    assert bins.counts.sum() == 1  # what single precision calls one is dropped


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_full_confidence_one_sample_and_weights(protocol):
    logits = np.array([[1e3, 0.0], [0.0, 1e3]])
    assert calibration_error(logits, [0, 1], protocol=protocol) == (0, 0)
    # By sgpa, too: the ones are dropped, and what is left are the zeros, all of which came true.
    assert calibration_error(logits, [1, 0], protocol=protocol) == (1, 1)
    assert calibration_error([[0.0, np.log(3.0)]], [1], protocol=protocol) == pytest.approx((0.25, 0.25))
    parts = calibration_bins(*draws(samples=70, classes=2), protocol=protocol)
    assert sum(weight for weight, _ in parts) == pytest.approx(1)
    assert len(parts) == (3 if protocol == "cgpt" else 1)
