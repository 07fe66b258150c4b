"""What a series costs as it grows: its rows and its picture."""

import csv
import importlib.util
from multiprocessing import get_context

import pytest

from experiments.studies.regression.growth import METHODS, growth, growth_figure

OURS = ["evidence and gradient", "evidence", "fill", "update and forecast"]
EXACT = ["ExactGP evidence and gradient", "ExactGP fill"]


def test_rows_and_picture(tmp_path):
    """In a process of its own: methods are measured in forks, which threads of autograd, if there are some, forbid."""
    process = get_context("spawn").Process(target=growth, args=(tmp_path, [60, 120], [1, 2], OURS))
    process.start()
    process.join()
    assert process.exitcode == 0
    with (tmp_path / "regression-growth.csv").open(encoding="utf-8") as file:
        rows = {(row["method"], int(row["outputs"]), int(row["n"])): row for row in csv.DictReader(file)}
    assert set(rows) == {(method, count, size) for method in OURS for count in (1, 2) for size in (60, 120)}
    for count in (1, 2):
        with_gradient, alone = (float(rows[method, count, 120]["evidence"]) for method in OURS[:2])
        assert with_gradient == pytest.approx(alone, rel=1e-12)
        assert 0.0 < float(rows["fill", count, 120]["variance"]) < 0.1
    assert (tmp_path / "regression-growth.png").read_bytes().startswith(b"\x89PNG")


def test_an_exact_gp_of_one_output_has_the_evidence_of_the_regressor():
    ours, theirs = METHODS[OURS[1]](60, 1), METHODS[EXACT[0]](60, 1)
    assert theirs["evidence"] == pytest.approx(ours["evidence"], rel=1e-10)
    assert METHODS[EXACT[1]](60, 1)["variance"] == pytest.approx(METHODS["fill"](60, 1)["variance"], rel=1e-8)
    assert METHODS[EXACT[1]](20, 2)["variance"] > 0.0


def test_the_picture_has_a_panel_a_task_and_a_colour_a_package():
    names = ["fill", "ExactGP fill", "tinygp fill", "evidence and gradient", "evidence", "celerite2 evidence"]
    keys = [*((name, 1) for name in names), ("fill", 10), ("ExactGP fill", 10)]
    rows = [{"method": name, "outputs": count, "n": n, "evaluation_seconds": n} for name, count in keys for n in (1, 2)]
    figure = growth_figure(rows)
    gradient, evidence, fill = figure.axes
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["evidence and gradient", "evidence", "fill"]
    (legend,) = figure.legends
    packages = ["cgp's regressor", "celerite2", "GPyTorch's ExactGP with cgp's Markov", "tinygp"]
    assert [text.get_text() for text in legend.get_texts()] == packages
    assert [line.get_linestyle() for line in fill.lines] == ["-", "-", "-", "--"]
    regressor, exact = fill.lines[:2]  # which are on each other: both are seen
    assert exact.get_zorder() < regressor.get_zorder()
    assert exact.get_linewidth() > 2 * regressor.get_linewidth()
    assert [text.get_text() for text in fill.texts] == ["10 outputs"]
    assert (len(gradient.lines), len(evidence.lines)) == (1, 2)


def test_what_needs_more_memory_is_left_out(tmp_path):
    growth(tmp_path, sizes=[60], outputs=[1], methods=OURS[1:2], most_gigabytes=1e-9)
    assert "| evidence |" not in (tmp_path / "regression-growth.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["tinygp", "celerite2"])
def test_peers_have_the_same_parameters(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    ours = METHODS["evidence"](100, 1)["evidence"]
    for name, method in METHODS.items():
        if name.startswith(package) and "evidence" in name:
            assert method(100, 1)["evidence"] == pytest.approx(ours, rel=1e-4)
