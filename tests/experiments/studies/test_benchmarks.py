"""The benchmarks' scores and masks, and what is said where data are not there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from experiments.studies.benchmarks.guangzhou import guangzhou, guangzhou_table
from experiments.studies.benchmarks.imputegap import GPImputer, grouped_difference, imputegap_table, shown_rmse
from experiments.studies.benchmarks.parts import parts_table
from experiments.studies.benchmarks.patients import patients, patients_table
from experiments.studies.benchmarks.sets import data_file
from experiments.studies.benchmarks.tsi import PATTERNS, PUBLISHED, hidden, scores, table


def test_scores_are_those_of_the_normal_law() -> None:
    truth, mean, sd = np.array([1.0, -2.0]), np.array([0.5, 1.0]), np.array([1.0, 2.0])
    found = scores(truth, mean, sd)

    def crps(y: float, m: float, s: float) -> float:
        return quad(lambda x: (norm.cdf(x, m, s) - (x >= y)) ** 2, -60, 60, points=[y], limit=400)[0]

    assert found["crps"] == pytest.approx(np.mean([crps(*row) for row in zip(truth, mean, sd, strict=True)]), abs=1e-6)
    assert found["nll"] == pytest.approx(-norm.logpdf(truth, mean, sd).mean())
    assert (found["mae"], found["mse"]) == (1.75, pytest.approx(4.625))
    assert found["mre"] == pytest.approx(3.5 / 3.0)
    assert found["coverage"] == 1.0


def test_every_cell_has_its_published_figures() -> None:
    cells = {(row.dataset, row.pattern) for row in PUBLISHED}
    assert cells == {(dataset, pattern) for dataset in ("ItalyAir", "ETT_h1") for pattern in PATTERNS}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_have_the_rates_of_the_benchmark(pattern: str) -> None:
    pytest.importorskip("pygrinder")
    np.random.seed(0)  # noqa: NPY002 (pygrinder draws from it)
    windows = np.zeros((200, 12, 13))
    share = np.isnan(hidden(windows, "ItalyAir", pattern)).mean()
    expected = {"point01": 0.1, "point05": 0.5, "point09": 0.9, "subseq05": 0.5, "block05": 0.5}[pattern]
    assert share == pytest.approx(expected, abs=0.05)


def test_missing_data_say_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CGP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="CGP_DATA=FOLDER"):
        data_file(None, "air/air.csv")
    with pytest.raises(FileNotFoundError, match="expected one of air/air.csv"):
        data_file(tmp_path, "air/air.csv")


def test_the_results_page_has_the_table_of_its_csv() -> None:
    results = Path(__file__).parents[3] / "docs" / "results"
    page = (results / "public-benchmarks.md").read_text(encoding="utf-8")
    assert table(pd.read_csv(results / "public-benchmarks.csv")) in page
    assert imputegap_table(pd.read_csv(results / "imputegap.csv")) in page
    assert patients_table(pd.read_csv(results / "patients.csv")) in page
    assert guangzhou_table(pd.read_csv(results / "guangzhou.csv")) in page
    assert parts_table(pd.read_csv(results / "tsi-parts.csv")) in page


def test_a_cell_without_the_whole_table_has_a_line() -> None:
    results = Path(__file__).parents[3] / "docs" / "results"
    rows = pd.read_csv(results / "public-benchmarks.csv").query("method != 'whole table' and pattern == 'block05'")
    _, _, *lines = table(rows).splitlines()
    assert [line.split(", ")[0] for line in lines] == ["| ItalyAir", "| ETT_h1"]
    assert all(line.count("|") == 15 for line in lines)


def test_a_difference_of_two_errors_has_the_error_of_groups() -> None:
    generator = np.random.default_rng(0)
    truth, gaps = np.zeros((100, 3)), generator.random((100, 3)) < 0.5
    ours, theirs = generator.normal(size=(2, 100, 3))
    theirs *= 2.0
    difference, error = grouped_difference(truth, theirs, ours, gaps)
    roots = [np.sqrt(np.mean(each[gaps] ** 2)) for each in (theirs, ours)]
    assert difference == pytest.approx(roots[0] - roots[1])
    parts = [(theirs**2 - ours**2)[row : row + 10][:, [column]] for row in range(0, 100, 10) for column in range(3)]
    seen = [gaps[row : row + 10][:, [column]] for row in range(0, 100, 10) for column in range(3)]
    left = [(part[known] - difference * sum(roots)).sum() for part, known in zip(parts, seen, strict=True)]
    assert error == pytest.approx(np.linalg.norm(left) * np.sqrt(30 / 29) / gaps.sum() / sum(roots))


def test_the_imputer_has_the_form_of_imputegap() -> None:
    """One that ImputeGAP's own code scores."""
    pytest.importorskip("imputegap.recovery.evaluation")
    t = np.linspace(0.0, 6.0, 60)
    truth = np.column_stack([np.sin(t), np.cos(t)])
    incomplete = truth.copy()
    incomplete[20:26, 1] = np.nan
    imputer = GPImputer(incomplete).impute(params={"structure": "coregionalised", "inference": "map"})
    imputer.score(truth)
    assert imputer.metrics["RMSE"] < 0.05
    assert (imputer.std[np.isnan(incomplete)] > 0.0).all()


def test_imputegap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps imputegap"):
        GPImputer(np.ones((2, 2))).score(np.ones((2, 2)), np.ones((2, 2)))


def test_a_cut_run_of_patients_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two stays of a panel, whose methods differ by what one fills and the other has: 0."""
    truth = np.arange(2.0 * 48 * 3).reshape(2, 48, 3) / 100
    truth[0, 5, 1] = np.nan
    monkeypatch.setattr("experiments.studies.benchmarks.patients.stays", lambda: truth)
    filled = {"panel": lambda known: (truth + 1.0, np.ones_like(truth)), "mean": lambda known: (truth - 2.0, None)}
    monkeypatch.setattr("experiments.studies.benchmarks.patients._METHODS", filled)
    patients(tmp_path, maskings=1, methods=("panel",))
    filled["panel"] = lambda known: pytest.fail("run twice")
    patients(tmp_path, maskings=1, methods=("panel", "mean"))
    rows = pd.read_csv(tmp_path / "patients.csv").set_index("method")
    assert rows.mae.tolist() == [1.0, 2.0]
    assert (rows.difference["mean"], rows.error["mean"]) == (1.0, 0.0)
    assert rows.nll["panel"] == pytest.approx(0.5 + 0.5 * np.log(2 * np.pi), abs=1e-4)
    assert "| mean | 2.000 | +1.000 ± 0.000 | 2.000 |  |  |  | 0 |" in (tmp_path / "patients.md").read_text()


def test_guangzhou_hides_what_is_scored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines through a straight line are exact but at its ends."""
    np.savetxt(tmp_path / "lines.txt", np.arange(40.0)[None] * np.array([[1.0], [2.0]]) + 1.0)
    monkeypatch.setattr("experiments.studies.benchmarks.guangzhou.imputegap_file", lambda name: tmp_path / "lines.txt")
    guangzhou(tmp_path, observed=(0.7,), methods=("lines",))
    row = pd.read_csv(tmp_path / "guangzhou.csv").iloc[0]
    assert row.mae < row.rmse < 1.5
    lines = (tmp_path / "guangzhou.md").read_text().splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == ["lines", "BayOTIDE, published"]


def test_an_algorithm_by_shown_values_learns_nothing_of_what_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fills 0 has the mean of what a column shows, not that of the column."""
    truth = np.array([[0.0, 5.0], [2.0, 7.0], [10.0, 6.0]])
    incomplete = np.where(truth == 10.0, np.nan, truth)
    zeros = "experiments.studies.benchmarks.imputegap.algorithm"
    monkeypatch.setattr(zeros, lambda name, table: lambda: np.nan_to_num(table))
    assert shown_rmse("zeros", truth, incomplete) == pytest.approx(9.0)
