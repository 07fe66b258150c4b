import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_ood.detector import EnergyBased, Entropy, KLMatching, MaxSoftmax
from pytorch_ood.metrics import OODMetrics
from sklearn.metrics import roc_auc_score

from experiments.evaluation import (
    DETECTOR_NAMES,
    DETECTORS,
    PROTOCOLS,
    detect,
    detector_scores,
    has_templates,
    kl_matching_nearest,
    kl_matching_predicted,
    mean_logits,
)
from tests.experiments.evaluation.simulated import draws

VALIDATION = draws(samples=300, seed=5)


@pytest.mark.parametrize("name", ["MaxSoftmax", "Entropy", "Energy", "KLMatching-nearest"])
def test_report_is_pytorch_oods_on_one_draw(name):
    familiar, labels = draws(samples=200, num_samples=1, scale=3.0)
    ood = draws(samples=150, num_samples=1, seed=1, scale=1.0)[0]
    oracle = {"MaxSoftmax": MaxSoftmax, "Entropy": Entropy, "Energy": EnergyBased, "KLMatching-nearest": KLMatching}
    detector = oracle[name](None)
    if name == "KLMatching-nearest":
        detector.fit_logits(torch.tensor(VALIDATION[0][0]))
    metrics = OODMetrics()
    metrics.update(detector.predict_logits(torch.tensor(familiar[0])), torch.tensor(labels))
    metrics.update(detector.predict_logits(torch.tensor(ood[0])), torch.full((150,), -1))
    expected = metrics.compute()
    report = detect(name, familiar, ood, validation=(VALIDATION[0][:1], VALIDATION[1]))
    np.testing.assert_allclose(
        report, [expected[key] for key in ("AUROC", "AUPR-IN", "AUPR-OUT", "FPR95TPR")], atol=1e-5
    )


@pytest.mark.parametrize("name", DETECTOR_NAMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_auroc_is_scikit_learns_of_the_scores(name, protocol):
    familiar, ood = draws(scale=3.0)[0], draws(seed=1, scale=1.0)[0]
    options = {"validation": VALIDATION, "protocol": protocol}
    scores = [detector_scores(name, logits, **options) for logits in (familiar, ood)]
    expected = roc_auc_score(np.repeat([0, 1], [len(s) for s in scores]), np.concatenate(scores))
    assert detect(name, familiar, ood, **options).auroc == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", DETECTOR_NAMES)
def test_kep_sees_mean_logits_only(name):
    logits, _ = draws()
    seen = detector_scores(name, logits, validation=VALIDATION, protocol="kep")
    mean = mean_logits(logits)
    expected = {
        "KLMatching-nearest": lambda: kl_matching_nearest(mean, mean_logits(VALIDATION[0])),
        "KLMatching-predicted": lambda: kl_matching_predicted(mean, mean_logits(VALIDATION[0]), VALIDATION[1]),
    }.get(name, lambda: DETECTORS[name](mean))()
    np.testing.assert_array_equal(seen, expected)


def test_templates_are_asked_for_by_the_class_that_the_protocol_predicts():
    # Three draws of 0.7 for the first class, one of nearly 0: mean probability 0.525, but the smaller mean logit.
    logits = np.log([[[0.7, 0.3]]] * 3 + [[[1e-9, 1.0]]])
    for protocol, known in (("pooled", 0), ("kep", 1)):
        assert has_templates("KLMatching-predicted", logits, validation_labels=[known], protocol=protocol)
        assert not has_templates("KLMatching-predicted", logits, validation_labels=[1 - known], protocol=protocol)


@given(st.integers(0, 1000))
def test_one_group_against_itself_is_not_separated(seed):
    logits, _ = draws(samples=30, seed=seed)
    for name in DETECTOR_NAMES:
        assert detect(name, logits, logits, validation=VALIDATION).auroc == pytest.approx(0.5)


def test_one_sample_of_each():
    assert detect("Entropy", [[9.0, 0.0]], [[0.1, 0.0]]) == (1, 1, 1, 0)
    assert detect("Entropy", [[0.1, 0.0]], [[9.0, 0.0]]).auroc == 0


def test_single_precision_ties_what_it_cannot_tell_apart():
    familiar, ood = [[25.0, 0.0]], [[20.0, 0.0]]  # 1 − p is 1e-11 and 2e-9
    assert detect("MaxSoftmax", familiar, ood).auroc == 1
    assert detect("MaxSoftmax", familiar, ood, protocol="cgpt").auroc == 0.5


def test_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="detector must be one of MaxSoftmax, .*, got 'KLMatching'"):
        detector_scores("KLMatching", [[0.0, 1.0]])
    with pytest.raises(ValueError, match="validation must hold logits and labels for KLMatching-nearest"):
        detector_scores("KLMatching-nearest", [[0.0, 1.0]])
    with pytest.raises(ValueError, match="protocol must be one of"):
        detector_scores("Entropy", [[0.0, 1.0]], protocol="papers")
