"""Studies of tables with gaps: imputers side by side, ends beside statsmodels, files, and sums beside the true ones."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

from experiments.studies.regression import imputers as study
from experiments.studies.regression.files import TableFile, by_command, hide
from experiments.studies.regression.imputers import IMPUTERS, imputers
from experiments.studies.regression.problems import with_gaps
from experiments.studies.regression.totals import by_logarithms, sum_scores


def test_sums_are_counted_by_how_much_of_the_day_is_missing():
    """Days without a gap, and days whose true sum is not known, count nowhere."""
    times = pd.date_range("2024-01-01", periods=24 * 5, freq="h")
    complete = pd.DataFrame({"a": np.ones(120)}, index=times)
    table = complete.copy()
    table.iloc[0:20] = table.iloc[24:25] = table.iloc[48:68] = table.iloc[96:97] = np.nan
    complete.iloc[100] = np.nan
    days = times[::24]
    sums = pd.DataFrame({"a": [24.0, 30.0, 30.0, 24.0, 0.0]}, index=days)
    errors = pd.DataFrame({"a": [1.0, 1.0, 4.0, 0.0, 1.0]}, index=days)
    scores = sum_scores(sums - 1.96 * errors, sums + 1.96 * errors, complete, table)
    assert scores == {"half the day or more": {"coverage": 1.0, "sums": 2}, "less": {"coverage": 0.0, "sums": 1}}


def test_sums_by_logarithms_are_positive_and_exact_without_a_gap():
    times = pd.date_range("2024-01-01", periods=72, freq="h")
    values = np.exp(2.0 * np.sin(np.arange(72.0) / 4.0) + 0.2 * np.random.default_rng(0).normal(size=72))
    table = pd.DataFrame({"a": values}, index=times)
    table.iloc[30:40] = np.nan
    lower, upper = (ends["a"].to_numpy() for ends in by_logarithms(table))
    np.testing.assert_allclose([lower[0], upper[2]], [values[:24].sum(), values[48:].sum()])
    seen = np.nansum(table["a"].to_numpy()[24:48])
    assert seen < lower[1] < upper[1]


@pytest.mark.parametrize("name", [name for name in IMPUTERS if name not in ("cgp", "SAITS", "BRITS")])
def test_imputers_fill_what_is_hidden_and_keep_what_is_seen(name):
    if name == "dynamic factor":
        pytest.importorskip("statsmodels")
    hours = np.arange(60.0)[:, None]
    common = np.sin(hours / 6)
    complete = 100.0 + np.hstack([common, 2.0 * common + 0.05 * np.random.default_rng(0).normal(size=(60, 1))])
    problem = with_gaps(hours, complete, "random", seed=0)
    mean, sd = IMPUTERS[name](problem.inputs, problem.targets)
    hidden = ~np.isnan(problem.truth)
    error = (mean - complete)[hidden]
    assert np.mean(error**2) < 0.5 * np.var(complete[hidden] - complete.mean())
    assert (sd is None) == (name not in ("IterativeImputer, ridge", "dynamic factor"))
    if sd is not None:
        assert np.mean(np.abs(error) < 3.0 * sd[hidden]) > 0.8


def test_scores_of_values_only_have_no_density(tmp_path, monkeypatch):
    hours = np.arange(40.0)[:, None]
    sets = {"weather": lambda data, window: (hours, np.hstack([np.sin(hours / 5), np.cos(hours / 5)]))}
    monkeypatch.setattr("experiments.studies.regression.imputers.SETS", sets)
    imputers(tmp_path, tmp_path, sets=["weather"], gaps=["random"], methods=["interpolation", "KNNImputer"])
    lines = (tmp_path / "gaps-imputers.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| weather")]
    assert [row[2] for row in rows] == ["interpolation", "KNNImputer"]
    assert all(row[5:8] == ["–", "–", "–"] for row in rows)
    assert all(float(row[4].strip("*")) < 1.0 for row in rows)


def test_files_have_gaps_and_what_is_written_is_in_their_order(monkeypatch):
    hours = np.arange(40.0)
    times = pd.date_range("2024-01-01", periods=40, freq="h").strftime("%Y-%m-%d %H:%M")
    complete = pd.DataFrame({"time": times, "a": np.sin(hours / 6), "b": 100.0 + 3.0 * np.cos(hours / 6)})
    table = hide(complete, TableFile(lambda _: complete, length=3, share=0.2))
    assert table["time"].equals(complete["time"])
    assert (table[["a", "b"]].isna().sum() >= 5).all()
    mean, sd = by_command(table, 1)
    missing = table[["a", "b"]].isna().to_numpy()
    np.testing.assert_array_equal(sd > 0, missing)
    np.testing.assert_allclose(mean, complete[["a", "b"]], atol=0.3)
    monkeypatch.setattr("cgp.commands.main", lambda _: 1)
    with pytest.raises(RuntimeError, match="cgp fill failed"):
        by_command(table, 1)


def rates(window: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(window)
    common = generator.normal(size=(60, 1)).cumsum(0)
    return np.arange(60.0)[:, None], common * [1.0, -0.5, 2.0, 1.5] + 0.2 * generator.normal(size=(60, 4)).cumsum(0)


def test_a_table_has_a_row_per_method_with_its_lead(tmp_path, monkeypatch):
    def constant(inputs, targets, shift):
        mean = np.broadcast_to(np.nanmean(targets, axis=0), targets.shape) + shift
        return mean, np.broadcast_to(np.nanstd(targets, axis=0), targets.shape)

    methods = {
        "cgp, Matérn 3/2": lambda x, y: constant(x, y, 0.0),
        "statsmodels DynamicFactor": lambda x, y: constant(x, y, 100.0),
    }
    monkeypatch.setattr(study, "ENDS", methods)
    monkeypatch.setitem(study.SETS, "exchange", lambda folder, window: rates(window))
    study.ends(tmp_path, tmp_path, windows=[0, 1], methods=list(methods))
    text = (tmp_path / "regression-ends.md").read_text(encoding="utf-8")
    far = next(line for line in text.splitlines() if "| statsmodels DynamicFactor | 2 |" in line)
    ahead = float(far.split("|")[-4].split("±")[0])
    assert ahead > 1.0


@pytest.mark.parametrize("name", [name for name in study.ENDS if name.startswith("statsmodels")])
def test_factors_follow_the_outputs_that_are_known(name):
    if importlib.util.find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed")
    inputs, complete = rates(0)
    targets = complete.copy()
    targets[-12:, :2] = np.nan
    mean, sd = study.ENDS[name](inputs, targets)
    error = np.abs(mean - complete)[-12:, :2]
    assert mean.shape == sd.shape == complete.shape
    assert np.isfinite(sd).all()
    assert error.mean() < 0.5 * np.abs(complete[-12:, :2] - np.nanmean(targets, axis=0)[:2]).mean()
