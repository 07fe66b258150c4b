"""Paired differences against scipy's paired tests and bootstrap."""

import numpy as np
import pytest
from scipy.stats import bootstrap, sem, ttest_rel
from sklearn.metrics import matthews_corrcoef

from cgp.networks.tasks.metrics import delong_error, placements
from experiments.evaluation.paired import MEASURES, Scored, auroc_difference, difference, mean_difference


def scored(seed, versions=(), classes=3):
    generator = np.random.default_rng(seed)
    labels = np.random.default_rng(0).integers(classes, size=300)  # the same inputs
    logits = 2 * np.eye(classes)[labels] + generator.normal(size=(*versions, 300, classes))
    p = np.exp(logits)
    return Scored.of(p / p.sum(-1, keepdims=True), labels)


def numbers(text):
    return [float(part) for part in text.split(" ± ")]


def test_a_mean_has_the_error_of_a_paired_test():
    ours, theirs = scored(1), scored(2)
    mean, error = numbers(difference(MEASURES["NLL"], {0: ours}, {0: theirs, 1: scored(3)}))
    assert mean == pytest.approx((ours.loss - theirs.loss).mean(), abs=5e-5)
    assert mean / error == pytest.approx(ttest_rel(ours.loss, theirs.loss).statistic, rel=0.01)


def test_seeds_that_agree_leave_the_error_over_inputs():
    values = np.random.default_rng(0).normal(size=(3, 50))
    same = np.broadcast_to(values[0], values.shape)
    np.testing.assert_allclose(mean_difference(same), (values[0].mean(), sem(values[0])))
    apart = values + 10.0 * np.arange(3)[:, None]
    np.testing.assert_allclose(mean_difference(apart), (apart.mean(), sem(apart.mean(1))))


def test_versions_of_an_input_are_no_inputs_of_their_own():
    ours, theirs = (scored(seed, versions=(40,)) for seed in (1, 2))
    same = [Scored(*(np.broadcast_to(part[:1], part.shape) for part in version)) for version in (ours, theirs)]
    once = [Scored(*(part[0] for part in version)) for version in same]
    for name in ("NLL", "ECE %"):
        repeated = difference(MEASURES[name], {0: same[0]}, {0: same[1]})
        assert repeated == difference(MEASURES[name], {0: once[0]}, {0: once[1]})


@pytest.mark.parametrize("name", ["ECE %", "AURC ‰", "MCC %"])
def test_another_measure_has_the_error_of_resamples(name):
    ours, theirs, measure = scored(1), scored(2), MEASURES[name]
    mean, error = numbers(difference(measure, {0: ours}, {0: theirs}))

    def change(rows):
        return measure(ours.resampled(rows)) - measure(theirs.resampled(rows))

    options = {"n_resamples": 400, "vectorized": False, "method": "percentile"}
    oracle = bootstrap((np.arange(300),), change, **options, random_state=1)  # scipy 1.13 has no rng
    assert mean == pytest.approx(measure(ours) - measure(theirs), abs=0.01)
    assert error == pytest.approx(oracle.standard_error, rel=0.2)  # 200 resamples know it to 5 %


def test_the_larger_error_counts():
    near, far = scored(1), scored(2)
    wide = {seed: far._replace(loss=far.loss + 10 * seed) for seed in range(3)}
    _, error = numbers(difference(MEASURES["NLL"], wide, dict.fromkeys(range(3), near)))
    assert error == pytest.approx(10 / np.sqrt(3), rel=1e-4)


def test_measures_are_those_of_scikit_learn():
    result = scored(1)
    assert MEASURES["MCC %"](result) == pytest.approx(100 * matthews_corrcoef(result.labels, result.predicted))
    assert MEASURES["accuracy %"](result) == pytest.approx(100 * (result.predicted == result.labels).mean())


def test_auroc_has_delongs_error():
    generator = np.random.default_rng(0)
    ours, theirs = ((generator.normal(size=80), generator.normal(0.5, size=60)) for _ in range(2))
    sides = [a - b for a, b in zip(placements(*ours), placements(*theirs), strict=True)]
    _, error = numbers(auroc_difference({0: ours}, {0: theirs}))
    assert error == pytest.approx(delong_error(*sides), abs=5e-5)
    assert auroc_difference({0: ours}, {}) == ""
