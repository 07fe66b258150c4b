import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize_scalar
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from experiments.evaluation import (
    PROTOCOLS,
    calibration_bins,
    calibration_error,
    fit_temperature,
    mean_log_probabilities,
    negative_log_likelihood,
    reliability_bins,
)
from experiments.evaluation.calibration import _loss
from tests.experiments.evaluation.simulated import calibrated, draws


def brute_force(confidence, outcome, edges, *, closed):
    """Expected and maximum error by one loop over bins."""
    ece = mce = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (
            (confidence > low) & (confidence <= high)
            if closed == "right"
            else (confidence >= low) & (confidence < high)
        )
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


def test_left_closed_bins_by_hand():
    bins = reliability_bins([0.0, 0.5, 0.75, 1.0], [0, 1, 0, 1], bins=4, closed="left")
    assert bins.counts.tolist() == [1, 0, 1, 2]
    assert np.isnan(bins.confidence[1])
    assert bins.accuracy[3] == 0.5


def test_three_places_for_a_confidence_of_one():
    confidence, outcome = [0.95, 1.0, 1.0], [1, 1, 0]
    last, own, dropped = (
        reliability_bins(confidence, outcome, bins=10, closed="left", ones=name) for name in ("last", "own", "dropped")
    )
    assert last.counts.tolist()[-1] == 3
    assert own.counts.tolist()[-2:] == [1, 2]
    assert own.edges[-2:].tolist() == [1, 1]
    assert dropped.counts.tolist()[-1] == 1
    assert dropped.counts.sum() == 1


def test_empty_bins_count_for_nothing():
    bins = reliability_bins([0.9, 0.9], [1, 1], bins=10)
    assert (bins.counts == 0).sum() == 9
    assert bins.expected_error == pytest.approx(0.1)
    assert bins.maximum_error == pytest.approx(0.1)


def test_no_bin_filled_is_no_error():
    bins = reliability_bins([1.0], [0], ones="dropped")
    assert bins.expected_error == bins.maximum_error == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30), st.integers(1, 20))
def test_errors_lie_in_range_and_order_does_not_matter(pairs, size):
    confidence, outcome = map(np.array, zip(*pairs, strict=True))
    bins = reliability_bins(confidence, outcome, bins=size)
    ece, mce = bins.expected_error, bins.maximum_error
    assert 0 <= ece <= mce + 1e-12 <= 1 + 1e-12
    assert bins.counts.sum() == len(pairs)
    back = reliability_bins(confidence[::-1], outcome[::-1], bins=size)
    np.testing.assert_allclose(back.confidence, bins.confidence)
    assert back.counts.tolist() == bins.counts.tolist()


@given(
    st.lists(st.tuples(st.floats(0.001, 0.999), st.booleans()), min_size=1, max_size=30),
    st.sampled_from(["left", "right"]),
)
def test_core_matches_brute_force(pairs, closed):
    confidence, outcome = map(np.array, zip(*pairs, strict=True))
    bins = reliability_bins(confidence, outcome, bins=7, closed=closed)
    expected = brute_force(confidence, outcome, np.linspace(0, 1, 8), closed=closed)
    np.testing.assert_allclose((bins.expected_error, bins.maximum_error), expected, atol=1e-12)


def test_pooled_matches_torchmetrics_where_no_confidence_is_one():
    logits, labels = draws(samples=400)
    probabilities = torch.tensor(logits).softmax(-1).mean(0)
    for norm, value in zip(("l1", "max"), calibration_error(logits, labels), strict=True):
        oracle = multiclass_calibration_error(probabilities, torch.tensor(labels), num_classes=4, n_bins=15, norm=norm)
        assert value == pytest.approx(oracle.item(), abs=1e-6)


def test_cgpt_on_many_classes_is_torchmetrics_on_batches_of_1000():
    logits, labels = draws(samples=2500, classes=10, scale=9.0, num_samples=1)
    probabilities = torch.tensor(logits).softmax(-1).mean(0).float()
    assert (probabilities.max(-1).values == 1).sum() > 10  # the case in which it matters
    for norm, value in zip(("l1", "max"), calibration_error(logits, labels, protocol="cgpt"), strict=True):
        oracle = [
            multiclass_calibration_error(p, y, num_classes=10, n_bins=10, norm=norm).item()
            for p, y in zip(probabilities.split(1000), torch.tensor(labels).split(1000), strict=True)
        ]
        assert value == pytest.approx(np.mean(oracle), abs=1e-6)


def test_cgpt_on_two_classes_is_torchmetrics_on_weighted_batches_of_32():
    logits, labels = draws(samples=150, classes=2, scale=9.0, num_samples=1)
    positive = torch.tensor(logits).softmax(-1).mean(0).float()[:, 1]
    for norm, value in zip(("l1", "max"), calibration_error(logits, labels, protocol="cgpt"), strict=True):
        oracle = [
            binary_calibration_error(p, y, n_bins=10, norm=norm).item() * len(y) / 150
            for p, y in zip(positive.split(32), torch.tensor(labels).split(32), strict=True)
        ]
        assert value == pytest.approx(sum(oracle), abs=1e-6)


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_right_and_all_wrong_with_full_confidence(protocol):
    logits = np.array([[1e3, 0.0], [0.0, 1e3]])
    assert calibration_error(logits, [0, 1], protocol=protocol) == (0, 0)
    # By sgpa, too: the ones are dropped, and what is left are the zeros, all of which came true.
    assert calibration_error(logits, [1, 0], protocol=protocol) == (1, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_sample(protocol):
    ece, mce = calibration_error([[0.0, np.log(3.0)]], [1], protocol=protocol)
    assert ece == pytest.approx(0.25)
    assert mce == pytest.approx(0.25)


def test_weights_of_batches_sum_to_one():
    logits, labels = draws(samples=70, classes=2)
    for protocol in PROTOCOLS:
        parts = calibration_bins(logits, labels, protocol=protocol)
        assert sum(weight for weight, _ in parts) == pytest.approx(1)
        assert len(parts) == (3 if protocol == "cgpt" else 1)


def test_small_batches_inflate_the_error_of_calibrated_predictions():
    logits, labels = calibrated(samples=10_000, classes=10)
    pooled, batched = (calibration_error(logits, labels, protocol=name) for name in ("pooled", "cgpt"))
    assert pooled.ece < 0.015
    assert batched.ece > 2 * pooled.ece
    logits, labels = calibrated(samples=516, classes=2)
    assert calibration_error(logits, labels).ece < 0.06
    assert calibration_error(logits, labels, protocol="cgpt").mce > 0.4


def test_sgpa_drops_what_single_precision_calls_one():
    ((_, bins),) = calibration_bins([[20.0, 0.0]], [0], protocol="sgpa")
    assert bins.counts.sum() == 1


def loss_at(log_temperature, logits, labels):
    return negative_log_likelihood(mean_log_probabilities(logits / np.exp(log_temperature)), labels)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("num_samples", [1, 5])
def test_matches_a_bracketing_search(scale, num_samples):
    logits, labels = draws(num_samples=num_samples)
    logits = scale * logits
    oracle = minimize_scalar(loss_at, bounds=(-9, 9), args=(logits, labels), method="bounded", options={"xatol": 1e-10})
    assert np.log(fit_temperature(logits, labels)) == pytest.approx(oracle.x, abs=1e-5)


def test_matches_torch():
    logits, labels = draws(num_samples=1)
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [log_temperature], max_iter=200, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.tensor(logits[0]) / log_temperature.exp(), torch.tensor(labels))
        loss.backward()
        return loss

    optimiser.step(closure)
    assert fit_temperature(logits, labels) == pytest.approx(log_temperature.exp().item(), rel=1e-6)


def test_gradient():
    logits, labels = draws()
    for start in (-1.0, 0.0, 2.0):
        error = check_grad(
            lambda x: _loss(x, logits, labels)[0], lambda x: _loss(x, logits, labels)[1], np.array([start])
        )
        assert error < 1e-6


def test_undoes_a_known_overconfidence():
    logits, labels = calibrated(samples=20_000, classes=5)
    assert fit_temperature(3 * logits, labels) == pytest.approx(3, rel=0.05)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(-3, 3))
def test_positive_and_never_worse_than_before(seed, log_scale):
    logits, labels = draws(samples=20, seed=seed)
    logits = logits * np.exp(log_scale)
    temperature = fit_temperature(logits, labels)
    assert 1e-5 < temperature < 1e5
    assert loss_at(np.log(temperature), logits, labels) <= loss_at(0.0, logits, labels) + 1e-12


def test_where_the_data_have_no_optimum():
    logits = np.array([[1.0, 0.0], [0.0, 1.0]])
    cold, hot = fit_temperature(logits, [0, 1]), fit_temperature(logits, [1, 0])
    assert 1e-4 <= cold < 0.05
    assert loss_at(np.log(cold), logits, np.array([0, 1])) < 1e-8
    assert hot == pytest.approx(1e4)


def test_constant_logits_have_nothing_to_fit():
    assert fit_temperature(np.zeros((3, 2)), [0, 1, 1]) == 1
