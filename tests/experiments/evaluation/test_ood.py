import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_ood.detector import EnergyBased, Entropy, KLMatching, MaxSoftmax
from pytorch_ood.metrics import functional as oracle
from sklearn.metrics import average_precision_score
from torch_uncertainty.metrics.classification import FPR95

from experiments.evaluation import (
    DETECTORS,
    average_precision,
    detection_report,
    energy,
    false_positive_rate,
    kl_matching_nearest,
    kl_matching_predicted,
    max_softmax,
    total_uncertainty,
)
from tests.experiments.evaluation.simulated import draws

# Few distinct values: ties are the rule.
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=25)


@given(SCORES, SCORES)
def test_report_matches_pytorch_ood(familiar, ood):
    report = detection_report(familiar, ood)
    scores = torch.tensor(familiar + ood, dtype=torch.float64)
    labels = torch.tensor([0] * len(familiar) + [-1] * len(ood))
    assert report.auroc == pytest.approx(oracle.auroc(scores, labels).item())
    assert report.aupr_in == pytest.approx(oracle.aupr(scores, labels, "id").item())
    assert report.aupr_out == pytest.approx(oracle.aupr(scores, labels, "ood").item())
    assert report.fpr95 == pytest.approx(oracle.fpr_at_tpr(scores, labels).item())
    fpr = FPR95(pos_label=1)
    fpr.update(scores, (labels < 0).long())
    assert report.fpr95 == pytest.approx(fpr.compute().item())


@given(SCORES, SCORES)
def test_auroc_is_the_probability_of_the_right_order(familiar, ood):
    pairs = np.subtract.outer(ood, familiar)
    assert detection_report(familiar, ood).auroc == pytest.approx(((pairs > 0) + (pairs == 0) / 2).mean())


def test_swapped_groups_swap_what_they_must():
    familiar = np.random.default_rng(0).normal(size=40)
    ood = 1 + np.random.default_rng(1).normal(size=40)
    report, swapped = detection_report(familiar, ood), detection_report(-ood, -familiar)
    assert report[:3] == pytest.approx((swapped.auroc, swapped.aupr_out, swapped.aupr_in))
    assert detection_report(ood, familiar).auroc == pytest.approx(1 - report.auroc)


def test_average_precision_is_scikit_learns():
    scores = np.random.default_rng(0).normal(size=50)
    positive = scores + np.random.default_rng(1).normal(size=50) > 0
    assert average_precision(scores, positive) == average_precision_score(positive, scores)


@pytest.mark.parametrize(("argument", "value"), [("rule", "last"), ("level", 0.0), ("level", 1.5)])
def test_false_positive_rate_refuses(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must"):
        false_positive_rate([0.1, 0.2], [True, False], **{argument: value})


def test_detectors_match_pytorch_ood_on_one_draw():
    logits = torch.tensor(draws(num_samples=1)[0])
    np.testing.assert_allclose(max_softmax(logits), MaxSoftmax(None).predict_logits(logits[0]), rtol=1e-12)
    np.testing.assert_allclose(energy(logits), EnergyBased(None).predict_logits(logits[0]), rtol=1e-12)
    np.testing.assert_allclose(total_uncertainty(logits), Entropy(None).predict_logits(logits[0]), atol=1e-5)
    validation = torch.tensor(draws(num_samples=1, seed=1)[0])
    detector = KLMatching(None).fit_logits(validation[0])
    expected = detector.predict_logits(logits[0])
    np.testing.assert_allclose(kl_matching_nearest(logits, validation), expected, rtol=1e-9, atol=1e-12)


def test_kl_matching_by_predicted_class_by_hand():
    logits, _ = draws(classes=3, samples=20)
    validation, labels = draws(classes=3, samples=60, seed=1)
    probabilities = [torch.tensor(values).softmax(-1).mean(0) for values in (logits, validation)]
    typical = [probabilities[1][labels == k].mean(0) for k in range(3)]
    expected = [(p * (p / typical[p.argmax()]).log()).sum().item() for p in probabilities[0]]
    np.testing.assert_allclose(kl_matching_predicted(logits, validation, labels), expected, rtol=1e-9)


def test_the_two_kl_matchings_differ_and_the_nearest_is_smaller_with_the_same_templates():
    logits, _ = draws(samples=100)
    validation, labels = draws(samples=300, seed=1)
    assert not np.allclose(kl_matching_predicted(logits, validation, labels), kl_matching_nearest(logits, validation))
    predicted = torch.tensor(validation).softmax(-1).mean(0).argmax(-1)
    same_templates = kl_matching_predicted(logits, validation, predicted)
    assert (kl_matching_nearest(logits, validation) <= same_templates + 1e-12).all()


def test_kl_matching_refuses_what_it_cannot_score():
    logits, labels = draws(classes=3)
    with pytest.raises(ValueError, match=r"missing \[2\]"):
        kl_matching_predicted(logits, logits, np.minimum(labels, 1))
    with pytest.raises(ValueError, match="validation_logits must have 3 classes"):
        kl_matching_nearest(logits, draws(classes=4)[0])


def test_kl_matching_of_saturated_predictions_is_finite():
    logits = np.array([[900.0, 0.0], [0.0, 900.0]])
    assert np.isfinite(kl_matching_predicted(logits, logits[:1].repeat(2, 0), [0, 1])).all()


def test_energy_needs_logits_not_probabilities():
    logits, _ = draws()
    shifted = logits + np.arange(logits.shape[1])[:, None]  # moves no probability
    np.testing.assert_allclose(max_softmax(shifted), max_softmax(logits), rtol=1e-9)
    assert np.ptp(energy(shifted) - energy(logits)) > 100


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_find_samples_on_which_draws_disagree(name):
    generator = np.random.default_rng(0)
    familiar = 8 * np.eye(4)[generator.integers(4, size=100)] + generator.normal(size=(10, 100, 4))
    ood = 3 * generator.normal(size=(10, 100, 4))
    assert detection_report(DETECTORS[name](familiar), DETECTORS[name](ood)).auroc > 0.9
