"""Tidy rows: the paper's number beside ours, over seeds, with deviations."""

import csv
import math
from collections import Counter

import numpy as np
import pytest

from experiments.reports.papers.specification import CATEGORIES, METRICS, STANDARD_KINDS, TABLES
from experiments.reports.papers.tables import find_tables
from experiments.reports.papers.tidy import REPORTED, reported, rows
from tests.experiments.reports.saved import confident, find_runs, random_logits, write_run


def binary(samples, right, num_samples=1):
    """Two classes, labels in turn, the first `right` samples predicted rightly."""
    labels = np.arange(samples) % 2
    return confident(labels, np.arange(samples) < right, classes=2, num_samples=num_samples), labels


def table(name, root, protocol=None):
    spec = TABLES[name]
    return rows(spec, find_runs([root]), protocol or spec.paper.protocol)


def row(rows, method, metric, setting=None):
    (match,) = [r for r in rows if (r.method, r.metric) == (method, metric) and setting in (None, r.setting)]
    return match


def test_mean_and_deviation_over_seeds_beside_the_paper(tmp_path):
    for seed, right in enumerate((1000, 1100, 1200)):
        write_run(tmp_path, "cola-pooled", "sgpa", seed, sets={"test": binary(1816, right, 10)})
    result = table("cgpt-I", tmp_path)
    mcc = row(result, "sgpa", "mcc", "CoLA")
    # Labels in turn and errors in turn: the correlation of two balanced classes is 2 accuracy - 1.
    mccs = [2 * right / 1816 - 1 for right in (1000, 1100, 1200)]
    assert mcc.ours == pytest.approx(np.mean(mccs))
    assert mcc.ours_sd == pytest.approx(np.std(mccs, ddof=1))
    assert (mcc.printed, mcc.printed_sd, mcc.scale, mcc.digits) == pytest.approx((0.28826, 0.00982, 100, 3))
    assert (mcc.seeds, mcc.protocol, mcc.deviations) == (3, "cgpt", ())
    away = row(result, "sgpa", "mcc", "CoLA-OOD")
    assert math.isnan(away.ours)
    assert away.seeds == 0


def test_protocol_can_be_ours(tmp_path):
    logits, labels = random_logits(samples=1816, classes=2)
    write_run(tmp_path, "cola-pooled", "sgpa", sets={"test": (logits, labels)})
    theirs, ours = (row(table("cgpt-I", tmp_path, p), "sgpa", "mce", "CoLA") for p in ("cgpt", "pooled"))
    assert (theirs.protocol, ours.protocol) == ("cgpt", "pooled")
    assert math.isnan(theirs.ours_sd)  # of one seed
    assert theirs.ours > ours.ours + 0.1  # batches of 32 inflate it


def test_our_further_methods_follow_in_order_without_variants(tmp_path):
    ours = ("mine", "temperature_softmax", "ensemble_softmax", "scgp_direct", "softmax")
    for method in (*ours, "cgpt", "cgpt-alpha-0.7"):
        write_run(tmp_path, "cola-pooled", method, sets={"test": binary(1816, 1500)})
    result = [r for r in table("cgpt-I", tmp_path) if (r.setting, r.metric) == ("CoLA", "mcc")]
    assert [r.method for r in result] == [
        *("sgpa", "cgpt", "scgpt"),
        *("softmax", "scgp_direct", "mine", "ensemble_softmax", "temperature_softmax"),
    ]
    assert math.isnan(result[-1].printed)
    assert result[-1].scale == 100


def test_ablations_show_the_papers_rows_alone(tmp_path):
    write_run(tmp_path, "cifar10-kep", "softmax", sets={"test": random_logits()})
    assert {r.method for r in table("kep-6", tmp_path)} == {
        *("kep_svgp", "kep_svgp-eta-1", "kep_svgp-eta-0.1", "kep_svgp-eta-0.01"),
        *("kep_svgp_add", "kep_svgp_add-eta-10", "kep_svgp_add-eta-0.1", "kep_svgp_add-eta-0.01"),
    }


def test_the_papers_setting_comes_first_and_a_substitute_is_named(tmp_path):
    write_run(tmp_path, "cifar10", "softmax", sets={"test": random_logits(samples=10_000, num_samples=1)})
    substitute = row(table("kep-1", tmp_path), "softmax", "accuracy", "CIFAR-10")
    assert substitute.deviations == ("the setting cifar10, the paper's is cifar10-kep",)
    write_run(tmp_path, "cifar10-kep", "softmax", sets={"test": random_logits(samples=10_000, num_samples=1, seed=1)})
    measured_row = row(table("kep-1", tmp_path), "softmax", "accuracy", "CIFAR-10")
    assert measured_row.deviations == ()
    assert measured_row.ours != substitute.ours


def test_quality_and_cost_share_a_table_with_ensembles_of_any_size(tmp_path):
    write_run(tmp_path, "imdb", "sgpa", sets={"test": binary(10_000, 9000)}, record={"seconds_per_epoch": 100.0})
    result = table("kep-4", tmp_path)
    assert row(result, "sgpa", "seconds_per_epoch", "IMDB").printed == pytest.approx(1662.36)
    assert row(result, "sgpa", "accuracy", "IMDB").ours == pytest.approx(0.9)
    write_run(tmp_path, "cola-official", "ensemble_softmax", sets={"test": random_logits(samples=527, num_samples=5)})
    assert row(table("kep-1", tmp_path), "ensemble_softmax", "mcc", "CoLA").deviations == ()


def test_what_took_no_training_has_no_row_of_costs(tmp_path):
    write_run(tmp_path, "cifar10", "softmax", record={"seconds_per_epoch": 100.0})
    write_run(tmp_path, "cifar10", "cgp_direct", record={"seconds_per_epoch": 300.0})
    write_run(tmp_path, "cifar10", "temperature")
    methods = {row.method for row in table("sgpa-cost", tmp_path)}
    assert methods == {"softmax", "sgpa-standard", "sgpa", "cgp_direct"}


def test_collapsed_attention_is_reported(tmp_path):
    sets = {"test": binary(1816, 1500)}
    for method, similarity in (("sgpa", [0.3, 0.99]), ("cgpt", [0.2, 1.0]), ("scgpt", [0.999, 1.0])):
        write_run(tmp_path, "cola-pooled", method, sets=sets, diagnostics={"attention_similarity": similarity})
    notes = {
        method: [word for word in row(table("cgpt-I", tmp_path), method, "mcc", "CoLA").deviations if "same" in word]
        for method in ("sgpa", "cgpt", "scgpt")
    }
    words = "attention returns the same to every token (mean cosine similarity above 0.995) in"
    assert notes == {"sgpa": [], "cgpt": [f"{words} layer 2"], "scgpt": [f"{words} layers 1, 2"]}


FEW = random_logits(samples=300, num_samples=8)
BINARY = binary(1816, 1500)
TOGETHER, APART = "80 : 20 of train and dev together", "8,551 : 527"
FEWER = "1,816 test samples, the paper's 527"
COLA = "CoLA split 70 : 10 : 20 of train and dev together, selected on the 10 %"


@pytest.mark.parametrize(
    ("place", "sets", "record", "wanted", "deviation"),
    [
        (
            ("cifar10", "cgpt"),
            {"corrupted-shot_noise-3": FEW, "corrupted-gaussian_noise-3": FEW},
            {"deviations": ["5 epochs of 600"], "corruptions": "generated"},
            ("cgpt-II", "accuracy", "CIFAR-10-C · Noise"),
            (
                *("5 epochs of 600", "generated corruptions, not the published files", "8 draws, the paper's 10"),
                *("300 test samples, the paper's 10,000", "2 of 4 corruptions", "severities 3 of 1 to 5"),
            ),
        ),
        (
            ("cifar10-kep", "softmax"),
            {"test": random_logits(samples=200), "ood-lsun_resize": random_logits(samples=200)},
            {"sources": {"ood-lsun_resize": "made from tiny_imagenet", "test": "x"}},
            ("kep-3", "auroc", "CIFAR-10 · LSUN"),
            ("lsun_resize: made from tiny_imagenet", "200 test samples, the paper's 10,000"),
        ),
        (("cola", "cgpt"), {"test": BINARY}, {}, ("cgpt-I", "mcc", "CoLA"), (f"{COLA}, the paper's is {TOGETHER}",)),
        (("cola", "cgpt"), {"test": BINARY}, {}, ("kep-1", "mcc", "CoLA"), (f"{COLA}, the paper's is {APART}", FEWER)),
    ],
)
def test_every_deviation_is_named(tmp_path, place, sets, record, wanted, deviation):
    write_run(tmp_path, *place, sets=sets, record=record)
    name, metric, setting = wanted
    assert row(table(name, tmp_path), place[1], metric, setting).deviations == deviation


SIZES = {("cgpt", "I"): 24, ("cgpt", "II"): 100, ("cgpt", "III"): 80, ("cgpt", "IV"): 60, ("cgpt", "V"): 40}
SIZES |= {("kep-svgp", table): size for table, size in zip("123456", (210, 84, 72, 36, 28, 56), strict=True)}


def test_file_is_whole():
    with REPORTED.open(newline="", encoding="utf-8") as file:
        content = list(csv.DictReader(file))
    assert Counter((line["paper"], line["table"]) for line in content) == SIZES
    assert sum("repeats Table" in line["note"] for line in content) == 59
    keys = [tuple(line[key] for key in list(line)[:7]) for line in content]
    assert len(set(keys)) == len(keys)


def test_numbers_are_in_natural_units():
    for number in (number for table in SIZES for number in reported(*table)):
        assert number.metric in METRICS
        if number.metric not in ("nll", "seconds_per_epoch"):
            assert 0 <= number.mean <= 1
        assert math.isnan(number.sd) or 0 <= number.sd < 0.7


def test_repeated_rows_repeat():
    first, fourth = reported("cgpt", "II"), reported("cgpt", "IV")
    printed = {(row.method, row.shift, row.metric): (row.mean, row.sd) for row in first}
    same = {"SGPA": "SGPA", r"CGPT ($\alpha = 0.5 \rightarrow 1.0$)": "CGPT (ours)"}
    repeated = [row for row in fourth if row.method in same]
    assert len(repeated) == 40
    assert all((row.mean, row.sd) == printed[same[row.method], row.shift, row.metric] for row in repeated)


def test_every_printed_number_stands_in_exactly_one_row_of_its_table():
    for (paper, number), size in SIZES.items():
        (spec,) = [spec for spec in TABLES.values() if (spec.paper.key, spec.number) == (paper, number)]
        printed = [row for row in rows(spec, [], "pooled") if not math.isnan(row.printed)]
        result = Counter((row.setting, row.method, row.metric) for row in printed)
        twice = 16 if spec.name == "cgpt-III" else 0  # both definitions of KLMatching beside the printed one
        assert sum(result.values()) == size + twice
        assert max(result.values()) == 1
    for spec in TABLES.values():
        assert len({block.title for block in spec.blocks}) == len(spec.blocks)
        assert all(metric in METRICS for block in spec.blocks for metric in block.metrics)


def test_fifteen_of_the_nineteen_corruptions_are_standard():
    assert [len(kinds) for kinds in CATEGORIES.values()] == [4, 5, 5, 5]
    kinds = {kind for kinds in CATEGORIES.values() for kind in kinds}
    assert kinds - set(STANDARD_KINDS) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


def test_tables_are_found_by_name_paper_or_all():
    assert [spec.name for spec in find_tables("KEP-1")] == ["kep-1"]
    assert [spec.name for spec in find_tables("sgpa")] == [name for name in TABLES if name.startswith("sgpa")]
    assert len(find_tables("all")) == len(TABLES)
    with pytest.raises(ValueError, match="name: expected list, all, cgpt, kep, sgpa or one of cgpt-I, .* got 'cgpt-X'"):
        find_tables("cgpt-X")
