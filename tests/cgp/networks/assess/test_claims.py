"""Rate of false claims of an assessment; `python -m tests.null_claims` measures whole reports."""

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from cgp import Detector, assess
from cgp.networks.assess.claims import best_detector, compare_detectors

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
