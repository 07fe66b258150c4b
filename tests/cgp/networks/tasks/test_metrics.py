"""Scores against scikit-learn, torchmetrics and torch-uncertainty."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, log_loss
from torchmetrics.functional.classification import multiclass_auroc, multiclass_calibration_error

from cgp.networks.tasks import metrics


def predictions(seed: int, count: int = 200, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.5), count), rng.integers(0, classes, count)


@given(st.integers(0, 999))
def test_scores_are_those_of_the_libraries(seed):
    p, y = predictions(seed)
    scores = metrics.classification_scores(p, y)
    assert scores["nll"] == pytest.approx(log_loss(y, p, labels=range(4)))
    assert scores["brier"] == pytest.approx(np.square(p - np.eye(4)[y]).sum(-1).mean())
    expected = multiclass_calibration_error(torch.tensor(p), torch.tensor(y), 4, n_bins=15, norm="l1")
    assert scores["ece"] == pytest.approx(float(expected), abs=1e-6)
    assert scores["accuracy"] == pytest.approx((p.argmax(-1) == y).mean())


def test_agreement_is_kappa_with_its_deviation_over_all_orders():
    classes, labels = np.array([0, 0, 1, 2, 2, 2, 1]), np.array([0, 0, 2, 2, 2, 1, 0])
    kappa, error = metrics.agreement(classes, labels)
    assert kappa == pytest.approx(cohen_kappa_score(classes, labels))
    orders = np.array([cohen_kappa_score(classes, labels[list(order)]) for order in permutations(range(7))])
    assert (orders.mean(), orders.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(error))
    assert metrics.agreement(np.zeros(7, int), labels) == metrics.agreement(labels, np.full(7, 2)) == (0.0, 0.0)


def test_selection_is_that_of_torch_uncertainty():
    functional = pytest.importorskip("torch_uncertainty.metrics.classification")
    p, y = predictions(3, 500)
    scores = metrics.classification_scores(p, y)
    area, at_80 = functional.AURC(), functional.RiskAt80Cov()
    for metric in (area, at_80):
        metric.update(torch.tensor(p), torch.tensor(y))
    assert scores["aurc"] == pytest.approx(float(area.compute()), abs=2e-3)
    assert scores["risk80"] == pytest.approx(float(at_80.compute()), abs=2e-3)


@given(st.integers(0, 999), st.integers(1, 30), st.integers(1, 30))
def test_detection_is_that_of_torchmetrics(seed, inside, outside):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=inside).round(1), rng.normal(0.5, size=outside).round(1)
    scores = torch.tensor(np.concatenate([a, b]))
    labels = torch.tensor([0] * inside + [1] * outside)
    expected = multiclass_auroc(torch.stack([-scores, scores], -1).softmax(-1), labels, 2)
    assert metrics.auroc(a, b) == pytest.approx(float(expected), abs=1e-5)
    threshold = np.sort(b)[len(b) - int(np.ceil(0.95 * len(b) - 1e-9))]  # 95 % of those outside reach it
    assert metrics.fpr95(a, b) == pytest.approx((a >= threshold).mean())


@given(st.integers(0, 999), st.integers(2, 30), st.integers(2, 30))
def test_errors_of_areas_are_those_of_delong(seed, inside, outside):
    rng = np.random.default_rng(seed)
    known, others = rng.normal(size=(2, inside)).round(1), rng.normal(0.5, size=(2, outside)).round(1)
    wins = 1.0 * (others[:, None] > known[..., None]) + 0.5 * (others[:, None] == known[..., None])
    covariance = np.cov(wins.mean(2)) / inside + np.cov(wins.mean(1)) / outside
    placed = [metrics.placements(*pair) for pair in zip(known, others, strict=True)]
    for score, pair in enumerate(placed):
        assert [part.mean() for part in pair] == pytest.approx([metrics.auroc(known[score], others[score])] * 2)
        assert metrics.delong_error(*pair) ** 2 == pytest.approx(covariance[score, score], abs=1e-12)
    difference = metrics.delong_error(*(a - b for a, b in zip(*placed, strict=True)))
    assert difference**2 == pytest.approx(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1], abs=1e-12)


def test_an_area_over_one_input_has_no_finite_error():
    assert metrics.delong_error(*metrics.placements([0.0], [1.0, 2.0])) == np.inf


def test_calibrated_predictions_are_at_the_level_of_chance():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 400)
    errors = [metrics.calibration_error(confidence, rng.random(400) < confidence) for _ in range(100)]
    assert metrics.chance_calibration_error(confidence) == pytest.approx(np.mean(errors), rel=0.1)


def test_small_confidences_have_bins_of_their_own():
    assert metrics.calibration_error([0.05, 0.1], [0, 1]) == pytest.approx((0.05 + 0.9) / 2)


def test_scores_hold_one_calibration_error():
    """And its level by chance, of the same measure; another one beside it was read as their difference."""
    scores = metrics.classification_scores(*predictions(0))
    assert [name for name in scores if name.startswith("ece")] == ["ece", "ece_chance"]


def test_what_has_no_score_is_refused():
    with pytest.raises(ValueError, match="outside: expected scores that are numbers, got NaN"):
        metrics.auroc([0.0, 1.0], [np.nan])
    with pytest.raises(ValueError, match="inside: expected scores that are numbers, got none"):
        metrics.fpr95([], [1.0])
    with pytest.raises(ValueError, match="class indices from 0 to 1, got -1"):
        metrics.classification_scores([[0.8, 0.2], [0.4, 0.6]], [0, -1])
    with pytest.raises(ValueError, match="probabilities: expected finite numbers, got nan"):
        metrics.classification_scores([[0.8, 0.2], [np.nan, 0.6]], [0, 1])
