"""Rate of false claims of an assessment; `python -m tests.null_claims` measures whole reports."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, t
from torch import nn

from cgp import Detector, assess, predict
from cgp.comparisons import LEVEL, Difference
from cgp.networks.assess.claims import (
    best_detector,
    compare_detectors,
    harm_seen,
    least_mean,
    of_groups,
)
from cgp.networks.model.tempering import log_probabilities
from cgp.networks.tasks import Classification
from tests import null_claims

TRIALS = 600


def null_scores(rng, inputs):
    """Seven scores that have something in common, each worth as much inside as outside."""
    common = rng.normal(size=inputs)
    names = ("1 - confidence", "entropy", "energy", "widest posterior's entropy", "epistemic")
    outputs = {name: common + 0.5 * rng.normal(size=inputs) for name in names}
    return outputs | {name: rng.normal(size=inputs) for name in ("Mahalanobis", "GP variance")}


def compared(known, others):
    """Nine detectors, two of them sums with the energy."""
    names = [*known, "Mahalanobis + energy", "GP variance + energy"]
    return compare_detectors([Detector(name).knowing(known) for name in names], known, {"other": others})["other"]


def reports(inside, outside):
    rng = np.random.default_rng(0)
    for _ in range(TRIALS):
        yield compared(null_scores(rng, inside), null_scores(rng, outside))


@pytest.mark.parametrize("sizes", [(20, 20), (400, 20), (100, 200)])
def test_false_claims_of_a_detector_are_at_most_a_twentieth(sizes):
    """Uncorrected, the best of nine passes two standard errors more often than that."""
    claims = uncorrected = 0
    for detectors in reports(*sizes):
        claims += best_detector(detectors, len(detectors) - 1) is not None
        uncorrected += any(d.gain.mean > 2 * d.gain.error for d in detectors.values())
    most = binom.ppf(0.999, TRIALS, 0.05)
    assert claims <= most
    assert uncorrected > most


def test_a_detector_that_is_better_is_claimed():
    rng = np.random.default_rng(1)
    moved = null_scores(rng, 200) | {"GP variance": rng.normal(1.5, size=200)}
    detectors = compared(null_scores(rng, 400), moved)
    assert best_detector(detectors, len(detectors) - 1) == "GP variance"
    assert best_detector({name: d._replace(num_inputs=19) for name, d in detectors.items()}, 8) is None


class Calibrated(nn.Module):
    """Logits that are the inputs."""

    def forward(self, x):
        return x


@pytest.mark.parametrize(("labels", "trials"), [(6, 60), (25, 60), (100, 30)])
def test_no_temperature_is_claimed_for_logits_that_are_calibrated(labels, trials):
    """Labels drawn from the model's own probabilities: the fewer there are, the surer it looks that they were right."""
    generator = torch.Generator().manual_seed(0)
    claims = 0
    for seed in range(trials):
        logits = 4 * torch.randn(labels, 2, generator=generator)
        y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        claims += assess(Calibrated(), [(logits, y)], seed=seed).method != "as trained"
    assert claims <= binom.ppf(0.99, trials, 0.05)


def test_a_temperature_is_claimed_for_logits_three_times_too_large():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 5, generator=generator)
    y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    assert assess(Calibrated(), [(3 * logits, y)]).method == "temperature"


def test_what_else_is_compared_does_not_matter_to_a_temperature():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 5, generator=generator)
    y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    model = nn.Sequential(nn.Dropout(0.1), Calibrated())
    alone, beside = (assess(model, [(2 * logits, y)], compare=compare) for compare in ([], ["dropout"]))
    assert "dropout + temperature" in beside.scores
    assert alone.least["temperature"] == beside.least["temperature"]
    assert alone.is_clear("temperature") == beside.is_clear("temperature")


def test_no_temperature_is_claimed_that_a_few_sure_and_wrong_answers_undo():
    """One of 74 is wrong with a logit of 30, the others are too unsure: T = .6, which they ask for, adds nats."""
    z, labels = null_claims.sure_and_wrong(400_000, 5, 4.0, 0.0135, torch.Generator().manual_seed(1))
    trained, sharp = (-log_probabilities(z, t).gather(1, labels[:, None]).mean() for t in (1.0, 0.6))
    assert sharp > trained
    claims = clear = 0
    generator = torch.Generator().manual_seed(0)
    for seed in range(30):
        report = assess(Calibrated(), [null_claims.sure_and_wrong(100, 5, 4.0, 0.0135, generator)], seed=seed)
        claims += report.method != "as trained"
        clear += report.has_enough_labels and report.is_clear("temperature", bounded=False)
        if report.is_clear("temperature", bounded=False):
            assert (
                "But no answer here is both sure and wrong; the few that labels can miss could cost" in report.sentence
            )
            assert report.sentence.endswith(
                ", and report.apply(model, 'temperature') takes the risk."
                if "although its claims" not in report.sentence
                else " more than its NLL, report.apply(model, 'temperature') mends them, with the same answers."
            )
    assert claims <= binom.ppf(0.99, 30, 0.05)
    assert clear > binom.ppf(0.99, 30, 0.05)  # by standard errors alone


def test_scores_without_an_overlap_have_an_error():
    """Of which the exact bound is two: ten of ten inputs in order are seen of an AUROC of .69 in one of forty cases."""
    found = assess(Calibrated(), [separated(20)], ood={"far": torch.zeros(10, 2)}).detection["far"]["1 - confidence"]
    assert found.auroc == 1.0
    assert found.error == pytest.approx(0.5 * (1 - 0.025**0.1))
    figure = assess(Calibrated(), [separated(40)], ood={"far": torch.zeros(30, 2)}).plot()
    (ends,) = figure.axes[-1].containers[0].lines[2][0].get_segments()
    assert ends[:, 0] == pytest.approx([0.025 ** (1 / 30), 1.0])


def separated(count):
    """Logits that are surer than those of zeros, and labels of which a quarter is another."""
    y = torch.arange(count) % 2
    return 4.0 * torch.eye(2)[y] + torch.rand(count, 2), torch.where(torch.arange(count) % 4 == 0, 1 - y, y)


def test_how_many_labels_more_would_make_a_gain_clear():
    """At which the test of a report passes, if the labels that there are come again, and not long before."""
    generator = torch.Generator().manual_seed(1)
    logits = 3.0 * torch.randn(300, 10, generator=generator)
    y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    report = assess(Calibrated(), [(0.75 * logits, y)])
    assert report.method == "as trained"
    assert "although its claims are too low: these 300 labels are too few to say" in report.sentence
    more = int(re.search(r"About (\d+) labels more would make it clear", report.sentence)[1])
    gains = report.outcomes["as trained"].losses - report.outcomes["temperature"].losses
    for count, is_clear in ((300 + more, True), (300 + more // 3, False)):
        assert (least_mean(np.resize(gains, count), -report.harms["temperature"], LEVEL) > 0) == is_clear


def test_what_gets_worse_by_a_recommendation_is_said():
    """Of 100 classes with a few sure mistakes, a temperature lowers the NLL and spoils the calibration of the rest."""
    generator = torch.Generator().manual_seed(0)
    logits = 3.0 * torch.randn(1500, 100, generator=generator)
    y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    sure = torch.rand(1500, generator=generator) < 0.02
    logits[sure] = 30.0 * torch.eye(100)[(y[sure] + 1) % 100]
    report = assess(Calibrated(), [(logits, y)])
    assert report.method == "temperature"
    before, after = (report.scores[name]["ece"] for name in ("as trained", "temperature"))
    assert after > before + 0.01
    assert f" For that, its calibration error (ECE) rises from {before:.3f} to {after:.3f}" in report.sentence


def test_accuracy_is_no_nothing():
    """A read-out with as good a likelihood that answers more questions rightly."""
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(0, 2, 900))
    features = torch.from_numpy(rng.normal(size=(900, 2)) + 1.4 * np.eye(2)[labels.numpy()])
    logits = torch.where(torch.from_numpy(rng.random((900, 1)) < 0.2), -2.0, 2.0) * (2.0 * torch.eye(2)[labels] - 1.0)
    logits = 0.6 * logits.double()
    x = torch.cat([logits, features], 1)

    class Saved(nn.Module):
        def forward(self, x):
            return x[:, :2]

    task = Classification(features=lambda model, x: x[:, 2:])
    report = assess(Saved(), [(x[:600], labels[:600])], train=[(x[600:], labels[600:])], task=task)
    gain = report.differences["GP read-out + temperature"]["accuracy"]
    worded = dataclasses.replace(
        report,
        differences={
            **report.differences,
            "GP read-out + temperature": {
                **report.differences["GP read-out + temperature"],
                "accuracy": Difference(0.034, 0.008),
            },
        },
        beyond={"GP read-out + temperature": Difference(0.001, 0.004)},
    )
    assert isinstance(gain, Difference)
    assert "But the GP read-out changes the accuracy by +3.4 ± 0.8 points: where right" in worded.sentence
    assert "shows no gain" not in worded.sentence
    near = worded.differences["GP read-out + temperature"] | {"accuracy": Difference(0.0112, 0.00552)}
    near = dataclasses.replace(worded, differences=worded.differences | {"GP read-out + temperature": near})
    assert "the accuracy by +1.12 ± 0.55 points: where" in near.sentence  # not 1.1 ± 0.6, below two errors
    better = worded.differences["GP read-out + temperature"] | {"brier": Difference(-0.02, 0.006)}
    scores = {**worded.scores, "GP read-out + temperature": {**worded.scores["temperature"]}}
    scores["GP read-out + temperature"]["brier"] = scores["temperature"]["brier"] - 0.01
    worded = dataclasses.replace(
        worded,
        scores=scores,
        differences={**worded.differences, "GP read-out + temperature": better},
        beyond={"GP read-out + temperature": Difference(-0.009, 0.004)},
        least=dict.fromkeys(worded.least, -0.1),
    )
    assert " It changes the Brier score by -0.0200 ± 0.0060." in worded.sentence
    for gain, count, why in (
        (Difference(0.009, 0.004), 8, "which may be chance: it is 2.2 errors, where the best of 8 methods needs 2.5."),
        (Difference(0.0012, 0.0004), 1, "which is below 0.002 nats."),
        (Difference(0.009, 0.003), 1, "but the few sure mistakes that these labels can miss could cost more. "),
    ):
        others = {f"other {index}": Difference(0.0, 0.01) for index in range(count - 1)}
        unsure = dataclasses.replace(
            worded,
            beyond={"GP read-out + temperature": -gain, **others},
            choices=worded.choices | dict.fromkeys(others, worded.choices["temperature"]),
            differences=worded.differences | dict.fromkeys(others, worded.differences["temperature"]),
            scores=worded.scores | dict.fromkeys(others, worded.scores["temperature"]),
            least=dict.fromkeys(["GP read-out + temperature", "temperature", *others], -0.1),
        )
        assert f"the GP read-out lowers the NLL by {gain.mean:.4f} ± {gain.error:.4f} nats, {why}" in unsure.sentence


@pytest.mark.parametrize(("ones", "count"), [(0, 40), (3, 40), (39, 40), (40, 40), (280, 300)])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(ones, count):
    values = np.r_[np.ones(ones), np.zeros(count - ones)]
    exact = beta.ppf(0.05, ones, count - ones + 1) if ones else 0.0
    assert least_mean(values, 0.0, 0.05) == pytest.approx(exact, abs=0.006)


@pytest.mark.parametrize("count", [500, 5000])
def test_of_normal_numbers_it_is_nearly_students(count):
    values = np.random.default_rng(0).normal(0.3, 1.0, count)
    student = values.mean() - t.ppf(0.975, count - 1) * values.std(ddof=1) / count**0.5
    assert least_mean(values, -5.0, 0.025) == pytest.approx(student, abs=0.1 * (0.3 - student) + 10.0 / count)


@pytest.mark.parametrize(("rare", "count"), [(0.03, 30), (0.01, 60), (0.01, 100)])
def test_a_loss_that_few_draws_show_is_counted(rare, count):
    """Gains of .1 ± .3 that an event of probability p undoes exactly: their mean is 0, Student claims one too often."""
    rng, worst = np.random.default_rng(0), -0.1 * (1 - rare) / rare
    broken = student = 0
    for _ in range(150):
        values = np.where(rng.random(count) < rare, worst, rng.normal(0.1, 0.3, count))
        broken += least_mean(values, worst, 0.05) > 0
        student += values.mean() > 2 * values.std(ddof=1) / count**0.5
    assert broken <= binom.ppf(0.999, 150, 0.05)
    assert student > binom.ppf(0.999, 150, 0.05)


def test_a_method_may_do_as_much_harm_as_it_ever_changes_a_loss():
    assert harm_seen(np.array([-3.0, 2.0])) == 3.0
    assert harm_seen(np.zeros(2)) == 1.0


def test_groups_have_the_mean_of_their_values():
    values, groups = np.array([1.0, 2.0, 6.0, -1.0]), np.array([0, 0, 0, 1])
    sums, largest = of_groups(values, groups)
    assert sums.mean() == values.mean()
    assert largest == 1.5
    alone, largest = of_groups(values, np.arange(4))
    np.testing.assert_array_equal(alone, values)
    assert largest == 1.0


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, torch.zeros(2, 4))])
def test_torchscript_is_assessed_and_not_changed(make):
    """A copy as a whole predicts by the temperature; the network itself stays as trained."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x, network = torch.randn(300, 4), make(plain)
    y = torch.multinomial((0.3 * plain(x)).softmax(-1), 1)[:, 0]
    report, expected = (assess(model, [(x, y)]) for model in (network, plain))
    assert report.scores["temperature"] == pytest.approx(expected.scores["temperature"], rel=1e-5)
    advised = report.apply(network, "temperature")
    assert predict(advised, x).method.startswith("temperature ")
    assert predict(network, x).method == "as trained"


def test_detectors_of_too_few_labels_say_that_they_flag_nothing():
    """Two at 5 % together need 39 labels, one 19."""
    torch.manual_seed(0)
    logits = 2.0 * torch.randn(36, 4)
    y = torch.multinomial(logits.softmax(-1), 1)[:, 0]
    report = assess(Calibrated(), [(logits, y)], ood={"flat": 0.01 * torch.randn(40, 4)})
    message = r"report.apply: expected at least 39 labelled inputs for 2 detectors, got 36: no input is flagged by e"
    with pytest.warns(UserWarning, match=message):
        report.apply(Calibrated(), None, ["energy", "entropy"])
    report.apply(Calibrated(), None, ["energy"])
