"""The demo end to end on a tiny model."""

import csv
import dataclasses
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from experiments.demo import demo
from experiments.evaluation import classification_report
from experiments.reports.results import COLUMNS
from experiments.runs import demo_runs as runs
from tests.experiments.tiny import CGP, EVALUATION, METHODS, MODEL, TRAINING

ARGUMENTS = {"model": MODEL, "training": TRAINING, "evaluation": EVALUATION, "workers": 1}


@pytest.fixture
def no_report(monkeypatch):
    """Leave out the pictures, which take most of the time."""
    monkeypatch.setattr("experiments.demo.write_report", lambda *args, **kwargs: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A complete run of all four methods with one seed."""
    return demo(**ARGUMENTS, methods=METHODS, seeds=1, out=tmp_path_factory.mktemp("demo") / "out")


def files(folder):
    """Every file with its content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_writes_what_it_promises(folder):
    names = {path.relative_to(folder).as_posix() for path in files(folder)}
    assert {"config.yaml", "provenance.json", "results.csv", "results.md", "shifts.csv", "ood.csv"} <= names
    assert {"report.html", "complete.json", "pictures/reliability.png", "pictures/patch-variance.png"} <= names
    assert {
        f"runs/{name}/seed-0/{file}" for name in METHODS for file in ("weights.safetensors", "diagnostics.npz")
    } <= names
    assert not any("ckpt" in name for name in names)
    assert yaml.safe_load((folder / "config.yaml").read_text())["methods"]["cgp"]["alpha"] == 0.1
    origin = json.loads((folder / "provenance.json").read_text())
    assert origin["seeds"] == [0]
    assert origin["versions"]["torch"] == torch.__version__.split("+")[0]


def test_table_follows_from_saved_predictions(folder):
    with (folder / "results.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(METHODS)
    for name, row in rows.items():
        with np.load(folder / "runs" / name / "seed-0" / "predictions" / "test.npz") as saved:
            report = classification_report(saved["logits"], saved["labels"])
        assert float(row["nll"]) == report.nll
        assert float(row["ece"]) == report.ece
        assert np.isnan(float(row["ood_epistemic"])) == (name in ("softmax", "kernel"))
    assert "| Softmax |" in (folder / "results.md").read_text()


@pytest.mark.usefixtures("no_report")
def test_says_where_attention_tells_no_tokens_apart(tmp_path, monkeypatch, capsys):
    def write(model, examples, path):
        np.savez(path, attention_similarity=[0.3, 0.999])

    monkeypatch.setattr(runs, "write_diagnostics", write)
    out = demo(**ARGUMENTS, methods={"softmax": METHODS["softmax"]}, seeds=1, out=tmp_path / "out")
    words = "Softmax: attention returns the same to every token (mean cosine similarity above 0.995) in layer 2."
    assert words in (out / "results.md").read_text()
    assert words in capsys.readouterr().out.replace("\n", " ")


class _Tags(HTMLParser):
    """Collects tags, and checks that they nest."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_valid_and_needs_nothing_but_itself(folder):
    text = (folder / "report.html").read_text()
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert "http" not in text
    assert not {"link", "script", "iframe"} & set(tags.seen)
    sources = [value for name, value in tags.attributes if name == "src"]
    assert len(sources) == len(list((folder / "pictures").iterdir())) == tags.seen.count("img") == 6
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(column.title in text for column in COLUMNS)


@pytest.mark.usefixtures("no_report")
def test_second_run_leaves_the_first_alone(folder, capsys):
    before = files(folder)
    second = demo(**ARGUMENTS, methods={"cgp": CGP}, seeds=1, out=folder)
    assert second == folder.with_name(f"{folder.name}-2")
    assert files(folder) == before
    assert "holds a complete run and is left as it is" in " ".join(capsys.readouterr().out.split())


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.usefixtures("no_report")
def test_goes_on_after_a_kill(tmp_path, monkeypatch):
    methods = {"cgp": CGP, "softmax": METHODS["softmax"]}
    expected = demo(**ARGUMENTS, methods=methods, seeds=1, out=tmp_path / "whole")

    perform = runs.perform

    def dies(run, root, report):
        def report_once(epochs):
            if run.name == "softmax":
                raise KilledError
            report(epochs)

        return perform(run, root, report_once)

    monkeypatch.setattr(runs, "perform", dies)
    with pytest.raises(KilledError):
        demo(**ARGUMENTS, methods=methods, seeds=1, out=tmp_path / "broken")
    done = tmp_path / "broken" / "runs" / "cgp" / "seed-0" / "run.json"
    stamp = done.stat().st_mtime_ns
    monkeypatch.setattr(runs, "perform", perform)
    resumed = demo(**ARGUMENTS, methods=methods, seeds=1, out=tmp_path / "broken")

    assert resumed == tmp_path / "broken"
    assert done.stat().st_mtime_ns == stamp
    for name in methods:
        one, other = (
            load_file(root / "runs" / name / "seed-0" / "weights.safetensors") for root in (expected, resumed)
        )
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.usefixtures("no_report")
def test_other_configuration_gets_another_folder(folder):
    changed = ARGUMENTS | {"training": dataclasses.replace(TRAINING, epochs=1)}
    assert demo(**changed, methods={"softmax": METHODS["softmax"]}, seeds=1, out=folder) != folder


def test_refuses_no_seed_and_no_worker(tmp_path):
    with pytest.raises(ValueError, match="seeds: expected at least 1, got 0"):
        demo(**ARGUMENTS, methods=METHODS, seeds=0, out=tmp_path / "out")
    with pytest.raises(ValueError, match="workers: expected at least 1, got 0"):
        demo(**(ARGUMENTS | {"workers": 0}), methods=METHODS, seeds=1, out=tmp_path / "out")
