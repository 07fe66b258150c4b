"""Detectors and their reports against pytorch-ood, torch-uncertainty and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_ood.detector import EnergyBased, Entropy, KLMatching, MaxSoftmax
from pytorch_ood.metrics import functional as oracle
from sklearn.metrics import roc_auc_score

from experiments.evaluation import DETECTORS, PROTOCOLS, detect, mean_logits, mean_probabilities
from experiments.evaluation.detection import detection_report, detector_scores
from tests.experiments.evaluation.simulated import draws

FPR95 = pytest.importorskip("torch_uncertainty.metrics.classification").FPR95  # not for Python 3.14 yet
# Few distinct values: ties are the rule.
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=25)
VALIDATION = draws(samples=300, seed=5)


def detection_of(detector, test, ood, **options):
    """The report of one set."""
    (report,) = detect(detector, test, [ood], **options)
    return report


def score(which, logits, validation, labels):
    return detector_scores(f"KLMatching-{which}", logits, validation=(validation, labels))


@given(SCORES, SCORES)
def test_report_matches_pytorch_ood(test, ood):
    report = detection_report(test, ood)
    scores = torch.tensor(test + ood, dtype=torch.float64)
    labels = torch.tensor([0] * len(test) + [-1] * len(ood))
    assert report.auroc == pytest.approx(oracle.auroc(scores, labels).item())
    assert report.aupr_in == pytest.approx(oracle.aupr(scores, labels, "id").item())
    assert report.aupr_out == pytest.approx(oracle.aupr(scores, labels, "ood").item())
    assert report.fpr95 == pytest.approx(oracle.fpr_at_tpr(scores, labels).item())
    fpr = FPR95(pos_label=1)
    fpr.update(scores, (labels < 0).long())
    assert report.fpr95 == pytest.approx(fpr.compute().item())


def test_kl_matching_by_predicted_class_by_hand():
    logits, _ = draws(classes=3, samples=20)
    validation, labels = draws(classes=3, samples=60, seed=1)
    probabilities = [torch.tensor(values).softmax(-1).mean(0) for values in (logits, validation)]
    typical = [probabilities[1][labels == k].mean(0) for k in range(3)]
    expected = [(p * (p / typical[p.argmax()]).log()).sum().item() for p in probabilities[0]]
    np.testing.assert_allclose(score("predicted", logits, validation, labels), expected, rtol=1e-9)


def test_kl_matching_needs_validation_samples_of_every_class():
    logits, labels = draws(classes=3)
    scores = score("predicted", logits, logits, np.minimum(labels, 1))
    np.testing.assert_array_equal(np.isnan(scores), mean_probabilities(logits).argmax(-1) == 2)
    validation = (logits, np.minimum(labels, 1))
    assert np.isnan(detection_of("KLMatching-predicted", logits, logits, validation=validation)).all()
    assert np.isfinite(detection_of("KLMatching-nearest", logits, logits, validation=validation)).all()
    saturated = np.array([[900.0, 0.0], [0.0, 900.0]])
    assert np.isfinite(score("predicted", saturated, saturated[:1].repeat(2, 0), [0, 1])).all()


@pytest.mark.parametrize("name", ["MaxSoftmax", "Entropy", "Energy", "KLMatching-nearest"])
def test_scores_are_pytorch_oods_on_one_draw(name):
    test, _ = draws(samples=200, num_samples=1, scale=3.0)
    oracles = {"MaxSoftmax": MaxSoftmax, "Entropy": Entropy, "Energy": EnergyBased, "KLMatching-nearest": KLMatching}
    detector = oracles[name](None)
    if name == "KLMatching-nearest":
        detector.fit_logits(torch.tensor(VALIDATION[0][0]))
    validation = (VALIDATION[0][:1], VALIDATION[1])
    expected = detector.predict_logits(torch.tensor(test[0]))
    np.testing.assert_allclose(detector_scores(name, test, validation=validation), expected, rtol=1e-9, atol=1e-5)


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_auroc_is_scikit_learns_of_the_scores(name, protocol):
    test, ood = draws(scale=3.0)[0], draws(seed=1, scale=1.0)[0]
    options = {"validation": VALIDATION, "protocol": protocol}
    scores = [detector_scores(name, logits, **options) for logits in (test, ood)]
    expected = roc_auc_score(np.repeat([0, 1], [len(s) for s in scores]), np.concatenate(scores))
    assert detection_of(name, test, ood, **options).auroc == pytest.approx(expected, abs=1e-6)
    if protocol == "kep":
        means = detector_scores(name, mean_logits(test), validation=(mean_logits(VALIDATION[0]), VALIDATION[1]))
        np.testing.assert_array_equal(scores[0], means)


def test_templates_are_chosen_by_the_class_that_the_protocol_predicts():
    # Three draws of 0.7 for the first class, one of nearly 0: mean probability 0.525, but the smaller mean logit.
    logits = np.log([[[0.7, 0.3]]] * 3 + [[[1e-9, 1.0]]])
    for protocol, known in (("pooled", 0), ("kep", 1)):
        for label in (0, 1):
            validation = ([[1.0, 0.0]], [label])
            scores = detector_scores("KLMatching-predicted", logits, validation=validation, protocol=protocol)
            assert np.isnan(scores[0]) == (label != known)


def test_one_sample_of_each_and_ties_of_single_precision():
    assert detection_of("Entropy", [[9.0, 0.0]], [[0.1, 0.0]]) == (1, 1, 1, 0)
    assert detection_of("Entropy", [[0.1, 0.0]], [[9.0, 0.0]]).auroc == 0
    test, ood = [[25.0, 0.0]], [[20.0, 0.0]]  # 1 − p is 1e-11 and 2e-9
    assert detection_of("MaxSoftmax", test, ood).auroc == 1
    assert detection_of("MaxSoftmax", test, ood, protocol="cgpt").auroc == 0.5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("KLMatching", {}, "detector: expected one of MaxSoftmax, .*, got 'KLMatching'"),
        ("KLMatching-nearest", {}, "validation: expected logits and labels for KLMatching-nearest"),
        ("KLMatching-nearest", {"validation": VALIDATION}, "validation: expected 2 classes like logits, got 4"),
        ("Entropy", {"protocol": "papers"}, "protocol: expected one of pooled, cgpt, kep, sgpa, got 'papers'"),
    ],
)
def test_refuses_invalid_detectors_and_inputs(name, options, message):
    with pytest.raises(ValueError, match=message):
        detector_scores(name, [[0.0, 1.0]], **options)
