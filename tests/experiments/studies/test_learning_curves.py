"""The study of learning curves writes what it measured."""

import csv
import re
from pathlib import Path

import pytest

import experiments.studies.learning_curves as learning
from experiments.grids import as_markdown
from experiments.studies.learning_curves import learning_curves

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def test_points_picture_and_table(tmp_path, capsys):
    files = {"csv": tmp_path / "curves.csv", "picture": tmp_path / "curves.png"}
    names = ["softmax", "cgp weights, former start"]
    learning_curves(names=names, depths=[1], seeds=(0, 1), epochs=2, count=100, **files)
    points = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [(p["form"], p["seed"], p["step"]) for p in points] == [
        (name, seed, step) for name in names for seed in "01" for step in "24"
    ]
    assert all(0.0 <= float(p["accuracy"]) <= 1.0 and float(p["seconds"]) > 0.0 for p in points)
    assert files["picture"].stat().st_size > 5000
    shown, told = capsys.readouterr()
    assert told.splitlines()[-1] == "digits, layers 1, cgp weights, former start, seed 1: done"
    assert all(
        re.search(rf"^ ?{re.escape(name)} +\d", shown, re.MULTILINE)
        for name in ("softmax", "CGP (weights), former start")
    )
    learning_curves(names=["softmax"], depths=[2], seeds=0, epochs=1, count=50, **files)
    assert "±" in shown
    assert "±" not in capsys.readouterr().out  # one seed has no deviation
    again = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert again[: len(points)] == points  # of the other depth
    assert [p["depth"] for p in again[len(points) :]] == ["2"]


def tables(name):
    """Those of a CSV file, by number of layers."""
    points = learning._read(RESULTS / name)
    return {depth: learning.table([p for p in points if p.depth == depth]) for depth in {p.depth: 0 for p in points}}


def test_bands_that_lie_over_each_other_are_pale():
    axes = learning._figure(learning._read(RESULTS / "learning-curves.csv")).axes
    assert [len(axis.collections) for axis in axes] == [5, 5]
    assert all(band.get_alpha() < 0.1 for axis in axes for band in axis.collections)


def test_the_results_page_has_the_tables_of_its_csvs():
    page = (RESULTS / "learning-curves.md").read_text(encoding="utf-8")
    for grid in [*tables("learning-curves.csv").values(), *tables("dinov2-learning.csv").values()]:
        assert as_markdown(grid) in page


def test_the_readme_has_the_figures_of_the_page():
    readme = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    rows = [
        {row[0].text: [cell.text for cell in row[4:]] for row in grid.rows}
        for _, grid in sorted(tables("learning-curves.csv").items())
    ]
    forms = "CGP (observations)", "Sparse CGP (observations)"
    one, three = (" and ".join(of_depth[form][0] for form in forms) for of_depth in rows)
    assert f"{one} of these steps with one layer, {three} with three." in readme
    times = sorted(float(of_depth[form][2]) for of_depth in rows for form in forms)
    assert f"after {times[0]:.1f} to {times[-1]:.1f} times softmax's processor time" in readme


def test_a_run_that_ends_early_keeps_its_curves(tmp_path, monkeypatch):
    def breaks(width, heads):
        raise KeyboardInterrupt

    monkeypatch.setitem(learning.FORMS, "breaks", breaks)
    files = {"csv": tmp_path / "curves.csv", "picture": tmp_path / "curves.png"}
    with pytest.raises(KeyboardInterrupt):
        learning_curves(names=["softmax", "breaks"], depths=[1], seeds=0, epochs=1, count=50, **files)
    assert [point["form"] for point in csv.DictReader(files["csv"].read_text().splitlines())] == ["softmax"]


def test_unknown_forms_are_refused():
    with pytest.raises(ValueError, match="names: expected softmax and some of"):
        learning_curves(names=["softmax", "hard max"])
    with pytest.raises(ValueError, match="names: expected softmax"):
        learning_curves(names=["cgp"])
