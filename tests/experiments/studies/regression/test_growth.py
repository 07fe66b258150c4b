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


def test_the_legend_says_what_each_look_stands_for():
    """A colour a task, a marker a package and dashes for several outputs: not an entry for each of their pairs."""
    keys = [(name, count) for name in ("evidence", "fill", "tinygp fill") for count in (1, 10)][:5]
    sizes = {"evaluation_seconds": 1.0, "memory_mb": 1.0}
    rows = [{"method": name, "outputs": count, "n": n, **sizes} for name, count in keys for n in (10, 20)]
    (legend,) = growth_figure(rows).legends
    looks = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert [*looks] == ["evidence", "fill", "cgp", "tinygp", "1 output", "10 outputs", "slope 1"]
    assert looks["10 outputs"].get_linestyle() == "--"
    assert looks["tinygp"].get_marker() == "^"


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
