import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm, sem
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from experiments.studies.regression import multioutput
from experiments.studies.regression.methods import MULTIOUTPUT, SPARSE, chosen
from experiments.studies.regression.multioutput import jura, jura_problem
from experiments.studies.regression.problems import GAPS, SITES, Answer, Problem, gap_scores, scores, with_gaps
from experiments.studies.regression.report import cached_row, stored_row, summary_table, with_pairs, with_peers
from experiments.studies.regression.sparse import evidence_figure, evidence_pairs, uci_problem


def problem(n=40):
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 6, (n + 10, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * generator.standard_normal(n + 10)
    return Problem(x[:n], y[:n], x[n:], y[n:])


def test_scores_are_scipys():
    task = problem()
    mean, sd = task.test_targets + np.linspace(-1, 1, 10), np.full(10, 0.4)
    result = scores(task.test_targets, Answer(mean, sd))
    assert result["nll"] == pytest.approx(-norm(mean, sd).logpdf(task.test_targets).mean())
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean(np.linspace(-1, 1, 10) ** 2)))
    assert result["coverage"] == 0.8  # |error| <= 0.784 leaves out one at each end


@pytest.mark.parametrize("name", SPARSE)
def test_every_method_solves_an_easy_problem(name):
    options = {} if "exact" in name.lower() else {"num_inducing": 15}
    if name in ("cgp stochastic", "GPyTorch SVGP"):
        options["num_steps"] = 20 if name.startswith("cgp") else 300
    task = problem()
    result = scores(task.test_targets, SPARSE[name](task, kernel="rbf", **options))
    assert result["rmse"] < 0.3


def test_the_exact_methods_agree_with_scikit_learn():
    task = problem()
    kernel = ConstantKernel() * RBF() + WhiteKernel(0.1)
    other = GaussianProcessRegressor(kernel, normalize_y=True).fit(task.inputs, task.targets)
    mean, sd = other.predict(task.test_inputs, return_std=True)
    for name in ("cgp exact", "GPyTorch ExactGP"):
        answer = SPARSE[name](task, kernel="rbf")
        np.testing.assert_allclose(answer.mean, mean, atol=0.03)
        np.testing.assert_allclose(answer.sd, sd, atol=0.03)
        assert answer.evidence == pytest.approx(other.log_marginal_likelihood_value_, abs=0.5)  # sklearn's mean is 0


def test_evidence_is_drawn_less_that_of_the_peer_on_the_same_split():
    rows = [
        {"set": name, "split": split, "method": method, "evidence": evidence, "nll": nll}
        for name, split, method, evidence, nll in (
            ("a", 0, "cgp sparse", 5.0, 1.0),
            ("a", 0, "GPyTorch SGPR", 3.0, 1.5),
            ("a", 1, "GPyTorch SGPR", 0.0, 0.0),
            ("a", 1, "cgp sparse", 7.0, 0.25),
            ("a", 2, "cgp sparse", 7.0, 0.25),
            ("a", 2, "GPyTorch SGPR", 8.0, 0.25),
            ("a", 3, "cgp sparse", 7.0, 0.25),  # its peer failed
            ("b", 0, "cgp exact", 7.0, 0.25),  # one split only
            ("b", 0, "GPyTorch ExactGP", 7.0, 0.25),
        )
    ]
    panels = evidence_pairs([*rows, {"set": "a", "split": 0, "method": "cgp stochastic", "nll": 1.0}])
    assert panels == {"a": {"cgp sparse": [(2.0, -0.5), (7.0, 0.25), (-1.0, 0.0)]}}
    (axis,) = evidence_figure(panels).axes
    (points,) = [line for line in axis.lines if line.get_marker() == "^"]
    np.testing.assert_allclose(points.get_xydata(), panels["a"]["cgp sparse"])


def test_a_row_is_run_once_and_a_failure_is_kept(tmp_path):
    row = cached_row(tmp_path, {"method": "a"}, lambda: {"rmse": 1.5})
    assert row["rmse"] == 1.5
    assert row["seconds"] >= 0
    assert cached_row(tmp_path, {"method": "a"}, lambda: {"rmse": 9.0}) == row

    def fails():
        raise ValueError("no")

    assert cached_row(tmp_path, {"method": "b"}, fails)["failed"] == "no"
    assert cached_row(tmp_path, {"method": "a"}, lambda: {"rmse": 9.0}, minutes=30)["rmse"] == 9.0
    assert stored_row(tmp_path, {"method": "a"}, minutes=30)["rmse"] == 9.0
    assert stored_row(tmp_path, {"method": "a"}, minutes=60) is None


def test_a_row_is_computed_after_work_on_several_threads(tmp_path):
    code = f"""
import torch
from pathlib import Path
from experiments.studies.regression.report import cached_row
torch.set_num_threads(2)
threaded = lambda: {{"rmse": float(torch.ones(64, 256, 256).tril().mean())}}
threaded()  # OpenMP has its threads now, which a fork has not
print(cached_row(Path({str(tmp_path)!r}), {{"method": "a"}}, threaded)["rmse"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split()[-1].startswith("0.50")


def test_table_has_means_errors_and_the_best_of_as_many_runs():
    losses = {"a": (1, 3), "b": (4, 6), "c": (0.5,)}
    rows = [{"set": "s", "method": method, "nll": nll} for method, values in losses.items() for nll in values]
    lines = summary_table(rows, ("set", "method"), ("nll",)).splitlines()
    assert lines[2] == "| s | a | 2 | **2.0000 ± 1.0000** |"
    assert lines[3] == "| s | b | 2 | 5.0000 ± 1.0000 |"
    assert lines[4].startswith("| s | c | 1 | 0.5000")


def test_jura_hides_cadmium_and_writes_its_table_without_naming_folders(tmp_path, monkeypatch):
    (tmp_path / "multioutput").mkdir()
    sites, header = np.random.default_rng(0).uniform(1, 2, (300, 5)), "X,Y,Cd,Ni,Zn"
    np.savetxt(tmp_path / "multioutput" / "jura.csv", sites, delimiter=",", header=header, comments="")
    inputs, targets, truth = jura_problem(tmp_path)
    assert np.isnan(targets).sum(axis=0).tolist() == [41, 0, 0]
    np.testing.assert_allclose(inputs, sites[:, :2])
    np.testing.assert_allclose(truth, sites[np.isnan(targets[:, 0]), 2])
    methods = {"mean": lambda x, y, kernel: (np.full(y.shape, 1.5), np.full(y.shape, 0.3))}
    monkeypatch.setattr(multioutput, "MULTIOUTPUT", methods)
    monkeypatch.setattr(sys, "argv", ["x", "jura", "--data", str(tmp_path), f"--out={tmp_path / 'out'}"])
    jura(tmp_path, tmp_path / "out", kernels=["rbf"])
    text = (tmp_path / "out" / "regression-jura.md").read_text()
    assert "python -m experiments.studies.regression jura --data DATA --out=OUT" in text
    assert str(tmp_path) not in text
    header, row = (tmp_path / "out" / "regression-jura.csv").read_text().splitlines()[:2]
    assert header.startswith("kernel,method,")
    assert "site_losses" not in header
    assert row.startswith("rbf,mean,")


def test_differences_are_taken_site_by_site():
    losses = np.array([[1.0, 2.0, 3.0], [2.0, 3.5, 3.0]])
    rows = [{"kernel": "rbf", "method": name, SITES: list(loss)} for name, loss in zip("ab", losses, strict=True)]
    best, other = with_pairs([*rows, {"kernel": "other", "method": "c", SITES: [0.0, 0.0, 0.0]}], "kernel")[:2]
    assert (best["behind"], best["behind_se"]) == (0.0, 0.0)
    assert other["behind"] == pytest.approx(2.5 / 3)
    assert other["behind_se"] == pytest.approx(sem(losses[1] - losses[0]))
    table = summary_table([best, other], ("kernel", "method"), ("behind",))
    assert "0.8333 ± 0.4410" in table
    assert "| 1 | none |" in table
    assert "0.0000" not in table


def test_peers_are_compared_on_the_same_data():
    losses = {("a", 0): 1.0, ("a", 1): 2.0, ("b", 0): 0.5, ("b", 1): 2.5, ("c", 0): 0.0}
    rows = [{"set": "s", "split": split, "method": method, "nll": nll} for (method, split), nll in losses.items()]
    result = with_peers([*rows, {"set": "s", "split": 2, "method": "a", "nll": 9.0}], ("set", "split"), {"a": "b"})
    assert [row["ahead"] for row in result if "ahead" in row] == [0.5, -0.5]
    lines = summary_table(result, ("set", "method"), ("nll", "ahead")).splitlines()
    assert lines[2].endswith("0.0000 ± 0.5000 |")
    assert lines[3].endswith("| – |")


def test_only_methods_that_exist_are_chosen():
    assert list(chosen(SPARSE, ["cgp exact"])) == ["cgp exact"]
    assert chosen(SPARSE, None) == SPARSE
    with pytest.raises(ValueError, match=r"methods: expected some of .*, got \['nothing'\]"):
        chosen(SPARSE, ["nothing"])


def test_uci_uses_the_mask(tmp_path):
    (tmp_path / "uci").mkdir()
    mask = np.array([[True, False, False], [False, True, False]])
    np.savez(tmp_path / "uci" / "tiny.npz", X=np.eye(3), y=np.arange(3.0), test_mask=mask)
    result = uci_problem(tmp_path, "tiny", 1)
    assert result.test_targets.tolist() == [1]
    assert result.targets.tolist() == [0, 2]


@pytest.mark.parametrize("gap", GAPS)
def test_gaps_hide_some_observations(gap):
    inputs, complete = np.arange(60.0)[:, None], np.random.default_rng(0).standard_normal((60, 4))
    complete[5, 1] = np.nan
    result = with_gaps(inputs, complete, gap)
    np.testing.assert_array_equal(np.where(np.isnan(result.targets), result.truth, result.targets), complete)
    shares = (~np.isnan(result.truth)).mean(axis=0)
    if gap == "random":
        assert ((shares > 0.1) & (shares < 0.6)).all()
    elif gap == "stretch":
        starts = [np.flatnonzero(~np.isnan(column))[0] for column in result.truth.T]
        assert len(set(starts)) == 4
        assert ((shares > 0.14) & (shares < 0.18)).all()
    else:
        assert sorted(shares) == [0.0, 0.0, 0.2, 0.2]
        assert np.isnan(result.truth[:48]).all()


def test_gap_scores_are_scipys():
    complete = np.random.default_rng(0).standard_normal((30, 2))
    task = with_gaps(np.arange(30.0)[:, None], complete, "random")
    units, centres = np.nanstd(task.targets, axis=0), np.nanmean(task.targets, axis=0)
    mean, sd = np.broadcast_to(centres, (30, 2)), np.broadcast_to(units, (30, 2))
    result = gap_scores(task, mean, sd)
    hidden = [column[~np.isnan(column)] for column in task.truth.T]
    expected = [-norm(c, u).logpdf(h).mean() - np.log(u) for h, c, u in zip(hidden, centres, units, strict=True)]
    assert result["smse"] == pytest.approx(1.0)
    assert result["nll"] == pytest.approx(np.mean(expected))
    inside = [np.mean(np.abs(h - c) < 1.959964 * u) for h, c, u in zip(hidden, centres, units, strict=True)]
    assert result["coverage"] == pytest.approx(np.mean(inside))


@pytest.mark.parametrize("name", MULTIOUTPUT)
def test_every_multioutput_method_fills_an_easy_gap(name):
    x = np.linspace(0, 6, 36)[:, None]
    complete = np.sin(2 * x) * [1.0, -2.0] + 0.05 * np.random.default_rng(0).standard_normal((36, 2))
    task = with_gaps(x, complete, "random")
    result = gap_scores(task, *MULTIOUTPUT[name](task.inputs, task.targets, kernel="rbf"))
    assert result["smse"] < 0.05
    assert result["coverage"] > 0.8
