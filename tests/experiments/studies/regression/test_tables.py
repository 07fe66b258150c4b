from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cgp import assess_gaps
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from experiments.studies.regression.tables import best_table, scored, with_gaps


def test_the_results_page_has_the_table_of_its_csv():
    results = Path(__file__).parents[4] / "docs" / "results"
    rows = pd.read_csv(results / "regression-tables.csv").to_dict("records")
    assert best_table(rows) in (results / "regression-tables.md").read_text(encoding="utf-8")


@pytest.fixture
def table():
    level = np.random.default_rng(0).normal(size=(400, 1)).cumsum(0)
    values = level + 0.1 * np.random.default_rng(1).normal(size=(400, 3))
    return pd.DataFrame(values, pd.date_range("2024-01-01", periods=400, freq="h"), list("abc"))


def test_gaps_are_of_every_kind_and_nothing_else_changes(table):
    gappy = with_gaps(table, 0)
    missing = gappy.isna()
    pd.testing.assert_frame_equal(gappy.where(~missing, table), table)
    assert 0.05 < missing.to_numpy().mean() < 0.2
    assert missing.all(axis=1).rolling(24).sum().max() == 24
    assert missing.iloc[-16:].all().sum() == 2
    assert not with_gaps(table, 1).isna().equals(missing)


def test_scores_of_others_are_paired_with_ours(table):
    methods = {"lines": LinearInterpolation(), "cgp": LaggedRidge()}
    report = assess_gaps(with_gaps(table, 0), methods=methods, maskings=2)
    lines, ours = scored(report)
    assert [lines["method"], ours["method"]] == ["lines", "cgp"]
    assert lines["nll"] == report.nll("lines")
    difference = report.difference("lines", "cgp")
    assert (lines["ahead"], lines["ahead_se"]) == (difference.mean, difference.error)
    assert lines["crps_above"] == pytest.approx(lines["crps"] - ours["crps"], abs=1e-12)
    assert "ahead" not in ours
    assert ours["least_class"] <= ours["coverage"]


def test_the_best_of_the_others_is_named_by_each_score():
    ours = {"nll": 1.0, "crps": 0.5, "coverage": 0.95, "least_class": 0.9, "processor_seconds": 12.3}
    others = [(1.2, 0.2, 0.1, 0.4, -0.1, 0.2), (1.3, 0.3, 0.4, 0.6, 0.1, 0.01)]
    names = "nll", "ahead", "ahead_se", "crps", "crps_above", "crps_above_se"
    rows = [{"set": "x", "method": "cgp", **ours}]
    rows += [
        {"set": "x", "method": method, **dict(zip(names, scores, strict=True))}
        for method, scores in zip(("lines", "trees"), others, strict=True)
    ]
    line = best_table(rows).splitlines()[2]
    assert line == "| x | 1.000 | lines, **+0.200 ± 0.100** | 0.500 | lines, -0.100 ± 0.200 | 0.950 | 0.900 | 12 |"
