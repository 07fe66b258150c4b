"""Metrics of a run recomputed from files: by hand, by protocol, and where something is missing."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from experiments.evaluation import PROTOCOLS, classification_report, detect
from experiments.reports.papers.measure import measure
from experiments.reports.papers.specification import Block
from tests.experiments.reports.saved import confident, find_runs, random_logits, write_run


def block_of(kind, members=(), detectors=()):
    """A block of one question."""
    return Block("CIFAR-10", ("cifar10",), {}, (), kind, members, detectors)


TEST = block_of("test")


def measured(root, block, protocol="pooled", place=0):
    return measure(find_runs([root])[place], block, protocol)


def rightly(samples, share):
    labels = np.arange(samples) % 10
    return confident(labels, np.arange(samples) < round(share * samples)), labels


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_of_a_test_set_are_those_of_its_predictions(tmp_path, protocol):
    logits, labels = random_logits()
    write_run(tmp_path, "cifar10", "cgpt", sets={"test": (logits, labels), "out-of-domain": rightly(10, 0.3)})
    expected = classification_report(logits, labels, protocol=protocol)._asdict()
    assert measured(tmp_path, TEST, protocol).numbers == expected
    assert measured(tmp_path, block_of("out-of-domain")).numbers["accuracy"] == pytest.approx(0.3)
    assert measured(tmp_path, block_of("corrupted", ("snow",))) == ({}, (), None)


def test_corruptions_are_averaged_over_kinds_by_hand(tmp_path):
    # fog at severities 1 and 3 has 20 and 40 images, snow at 1 has 10: pooled means differ from joined ones.
    sets = {
        "corrupted-fog-1": rightly(20, 1.0),
        "corrupted-fog-3": rightly(40, 0.5),
        "corrupted-snow-1": rightly(10, 0.2),
    }
    sets |= {f"corrupted-rain-{severity}": rightly(10, 0.5) for severity in range(1, 6)}
    write_run(tmp_path, "cifar10", "cgpt", sets=sets)
    question = block_of("corrupted", ("fog", "snow", "frost"))
    apart, joined = (measured(tmp_path, question, protocol) for protocol in ("kep", "cgpt"))
    assert apart.numbers["accuracy"] == pytest.approx((1.0 + 0.5 + 0.2) / 3)
    assert joined.numbers["accuracy"] == pytest.approx(((20 + 20) / 60 + 0.2) / 2)
    assert measured(tmp_path, question, "pooled").numbers["accuracy"] == apart.numbers["accuracy"]
    assert measured(tmp_path, question, "sgpa").numbers["accuracy"] == joined.numbers["accuracy"]
    assert apart.partial == ("2 of 3 corruptions", "severities 1, 3 of 1 to 5")
    whole = measured(tmp_path, block_of("corrupted", ("rain",)))
    assert (whole.partial, whole.shape) == ((), (1, 10))


def test_ood_sets_are_averaged_over_sets_and_detectors(tmp_path):
    test = random_logits(signal=4.0)
    strange = {name: random_logits(seed=seed, signal=0.5)[0] for seed, name in enumerate(("textures", "svhn"), start=1)}
    sets = {"test": test, "validation": random_logits(seed=9, signal=4.0)}
    sets |= {f"ood-{name}": (logits, None) for name, logits in strange.items()}
    write_run(tmp_path, "cifar10", "cgpt", sets=sets)
    result = measured(tmp_path, block_of("ood", ("textures", "svhn", "lsun"), ("Entropy", "Energy")))
    expected = [report for name in ("Entropy", "Energy") for report in detect(name, test[0], list(strange.values()))]
    assert result.numbers["auroc"] == pytest.approx(np.mean([report.auroc for report in expected]))
    assert result.numbers["aupr"] == result.numbers["aupr_in"] != result.numbers["aupr_out"]
    assert result.partial == ("mean over textures, svhn only",)
    result = measured(tmp_path, block_of("ood", ("svhn",), ("MaxSoftmax",)), "kep")
    means = [logits.astype(float).mean(0) for logits in (test[0], strange["svhn"])]
    confidence = [np.exp(m - np.logaddexp.reduce(m, axis=-1, keepdims=True)).max(-1) for m in means]
    positive = np.repeat([1, 0], [len(c) for c in confidence])
    assert result.numbers["auroc"] == pytest.approx(roc_auc_score(positive, np.concatenate(confidence)), abs=1e-4)


def test_kl_matching_needs_validation_predictions_and_templates(tmp_path):
    question = block_of("ood", ("svhn",), ("KLMatching-predicted",))
    sets = {"test": random_logits(), "ood-svhn": (random_logits(seed=1)[0], None)}
    write_run(tmp_path, "cifar10", "without", sets=sets)
    assert measured(tmp_path, question) == ({}, (), None)
    few = rightly(3, 1.0)  # three classes only: others are predicted
    write_run(tmp_path, "cifar100", "few", sets=sets | {"validation": few})
    assert all(math.isnan(value) for value in measured(tmp_path, question, "cgpt", place=1).numbers.values())


def test_cost_is_read_from_the_record_and_labels_must_be_there(tmp_path):
    write_run(tmp_path, "cifar10", "sgpa", record={"seconds_per_epoch": 12.5, "peak_memory_bytes": 3 * 2**30})
    assert measured(tmp_path, block_of("cost")).numbers == {"seconds_per_epoch": 12.5, "peak_memory": 3.0}
    sets = {"test": (random_logits()[0], None)}
    write_run(tmp_path, "cifar100", "sgpa", record={"seconds_per_epoch": None}, sets=sets)
    assert measured(tmp_path, block_of("cost"), place=1).numbers == {}
    with pytest.raises(ValueError, match="seed-0: expected labels"):
        measured(tmp_path, TEST, place=1)
