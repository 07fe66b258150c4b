"""The study of learning curves writes what it measured."""

import csv

import pytest

import experiments.studies.learning_curves as learning
from experiments.studies.learning_curves import learning_curves


def test_points_picture_and_table(tmp_path, capsys):
    files = {"csv": tmp_path / "curves.csv", "picture": tmp_path / "curves.png"}
    names = ["softmax", "cgp weights, former start"]
    learning_curves(names=names, depths=[1], seeds=2, epochs=2, count=100, **files)
    points = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [(p["form"], p["seed"], p["step"]) for p in points] == [
        (name, seed, step) for name in names for seed in "01" for step in "24"
    ]
    assert all(0.0 <= float(p["accuracy"]) <= 1.0 and float(p["seconds"]) > 0.0 for p in points)
    assert files["picture"].stat().st_size > 5000
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == names
    learning_curves(names=["softmax"], depths=[2], seeds=1, epochs=1, count=50, **files)
    again = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert again[: len(points)] == points  # of the other depth
    assert [p["depth"] for p in again[len(points) :]] == ["2"]


def test_a_run_that_ends_early_keeps_its_curves(tmp_path, monkeypatch):
    def breaks(width, heads):
        raise KeyboardInterrupt

    monkeypatch.setitem(learning.FORMS, "breaks", breaks)
    files = {"csv": tmp_path / "curves.csv", "picture": tmp_path / "curves.png"}
    with pytest.raises(KeyboardInterrupt):
        learning_curves(names=["softmax", "breaks"], depths=[1], seeds=1, epochs=1, count=50, **files)
    assert [point["form"] for point in csv.DictReader(files["csv"].read_text().splitlines())] == ["softmax"]


def test_unknown_forms_are_refused():
    with pytest.raises(ValueError, match="names: expected softmax and some of"):
        learning_curves(names=["softmax", "hard max"])
    with pytest.raises(ValueError, match="names: expected softmax"):
        learning_curves(names=["cgp"])
