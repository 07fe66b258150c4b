"""The search on validation NLL, on a tiny model."""

import csv
import json

import pytest
import yaml

from experiments.cli import parser
from experiments.select import SearchConfig, Variant, select
from tests.experiments.tiny import CGP, EVALUATION, MODEL, SOFTMAX, TRAINING

SEARCH = SearchConfig(
    seeds=2,
    learning_rates=[1e-4, 1e-2],
    variants={
        "softmax": [Variant()],
        "cgp": [Variant(alpha=0.1, options={"objective": "joint"})],
    },
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A complete search."""
    return select(
        model=MODEL,
        training=TRAINING,
        evaluation=EVALUATION,
        methods={"softmax": SOFTMAX, "cgp": CGP},
        search=SEARCH,
        workers=1,
        out=tmp_path_factory.mktemp("select") / "out",
    )


def test_chooses_the_smallest_mean_validation_nll(folder):
    with (folder / "trials.csv").open(newline="") as file:
        trials = list(csv.DictReader(file))
    assert len(trials) == 4
    chosen = yaml.safe_load((folder / "demo.yaml").read_text())["methods"]
    for name, method in chosen.items():
        own = [trial for trial in trials if trial["method"] == name]
        best = min(own, key=lambda trial: float(trial["validation_nll"]))
        assert method["learning_rate"] == float(best["learning_rate"])
    assert chosen["cgp"]["alpha"] == 0.1
    assert chosen["cgp"]["options"] == {"objective": "joint"}


def test_trials_are_means_over_seeds_and_touch_no_test_image(folder):
    scores = [
        json.loads((folder / "runs" / "softmax-0-0.01" / f"seed-{seed}" / "run.json").read_text())["validation_nll"]
        for seed in (0, 1)
    ]
    with (folder / "trials.csv").open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["method"] == "softmax" and float(r["learning_rate"]) == 0.01)
    assert float(row["validation_nll"]) == pytest.approx(sum(scores) / 2)
    assert not list(folder.rglob("*.npz"))


def test_written_configuration_is_one_of_the_demo(folder):
    values = parser("demo").parse_args(["demo", "--config", str(folder / "demo.yaml")]).demo
    assert set(values.methods) >= {"softmax", "cgp"}
    assert values.model.embed_dim == MODEL.embed_dim
    assert (folder / "demo.yaml").read_text().startswith("# Chosen on validation NLL by: python -m experiments")
