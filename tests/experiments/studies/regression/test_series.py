"""Hidden blocks of long series, and their scores."""

import numpy as np
import pytest
from scipy.stats import norm

from experiments.studies.regression.series import METHODS, SERIES, block_scores, series, with_blocks


def a_table(count: int = 800, outputs: int = 3) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    common = generator.normal(size=(count, 1)).cumsum(0)
    complete = common * [1.0, 0.5, -2.0][:outputs] + 0.1 * generator.normal(size=(count, outputs))
    complete[40:45, 0] = np.nan
    return np.arange(float(count)), complete


def test_one_block_of_each_length_is_hidden_in_every_output():
    inputs, complete = a_table()
    problem = with_blocks(inputs, complete, {"day": 20, "week": 70}, seed=3)
    for name, length in (("day", 20), ("week", 70)):
        for column in problem.hidden[name].T:
            (rows,) = np.nonzero(column)
            assert len(rows) == length
            assert rows[-1] - rows[0] == length - 1
    every = np.stack(list(problem.hidden.values()))
    assert every.sum(0).max() == 1
    assert 10 < problem.hidden["single"].sum() < 100
    assert np.array_equal(np.isnan(problem.targets), every.any(0) | np.isnan(complete))
    seen = ~np.isnan(problem.targets)
    assert np.array_equal(problem.targets[seen], complete[seen])


def test_scores_are_scipys_in_units_of_the_outputs():
    problem = with_blocks(*a_table(), {"day": 20}, seed=0)
    unit = np.nanstd(problem.complete, axis=0)
    mean, sd = problem.complete + 0.3 * unit, np.full_like(problem.complete, 0.5) * unit
    scores = block_scores(problem, mean, sd)["day"]
    assert scores["smse"] == pytest.approx(0.09)
    assert scores["nll"] == pytest.approx(-norm.logpdf(0.3, scale=0.5))
    assert scores["coverage"] == 1.0
    assert block_scores(problem, mean, None)["day"] == {"smse": pytest.approx(0.09)}


def test_codes_of_failed_sensors_are_scored_with_the_readings_and_left_out():
    inputs, complete = a_table()
    problem = with_blocks(inputs, complete, {"day": 20}, seed=0)
    rows = np.flatnonzero(problem.hidden["day"][:, 1])[:2]
    coded = problem.complete.copy()
    coded[rows, 1] = 1e5
    problem = problem._replace(complete=coded)
    scores = block_scores(problem, complete, np.full_like(complete, 0.1))
    assert list(scores) == ["day", "single", "day, without codes", "single, without codes"]
    assert scores["day"]["smse"] > 1.0 > scores["day"]["coverage"]
    unit = np.nanstd(np.where(coded == 1e5, np.nan, coded), axis=0)  # codes would widen it
    block = problem.hidden["day"] & (coded < 1e5)
    expected = np.mean([-norm.logpdf(0.0, scale=0.1 / unit[p]) for p in np.nonzero(block)[1]])
    assert scores["day, without codes"] == {"smse": 0.0, "nll": pytest.approx(expected), "coverage": 1.0}


def test_peers_fill_from_neighbours_and_from_the_other_outputs():
    problem = with_blocks(*a_table(), {"day": 20}, seed=0)
    interpolated, _ = METHODS["interpolation"](problem.inputs, problem.targets)
    column = problem.targets[:, 1]
    seen = ~np.isnan(column)
    np.testing.assert_allclose(interpolated[:, 1], np.interp(problem.inputs, problem.inputs[seen], column[seen]))
    mean, sd = METHODS["ridge on the others"](problem.inputs, problem.targets)
    assert block_scores(problem, mean, sd)["day"]["smse"] < 0.02


def test_ridge_that_is_given_no_codes_answers_as_if_there_were_none():
    problem = with_blocks(*a_table(), {"day": 20}, seed=0)
    coded = problem.targets.copy()
    coded[np.flatnonzero(~np.isnan(coded[:, 1]))[300], 1] = 1e5
    mean, sd = METHODS["ridge on the others, given no codes"](problem.inputs, coded)
    cleared = METHODS["ridge on the others"](problem.inputs, np.where(coded == 1e5, np.nan, coded))
    np.testing.assert_array_equal((mean, sd), cleared)
    assert not np.array_equal(mean, METHODS["ridge on the others"](problem.inputs, coded)[0])


def test_a_table_is_written_with_a_row_per_length(tmp_path, monkeypatch):
    monkeypatch.setitem(SERIES, "year", SERIES["year"]._replace(read=lambda _: a_table(), lengths={"day": 20}))
    series(tmp_path, tmp_path, maskings=[0, 1], methods=["interpolation", "ridge on the others"])
    text = (tmp_path / "regression-series.md").read_text(encoding="utf-8")
    assert "| year | day | ridge on the others | 2 |" in text
    assert "| year | single | interpolation | 2 |" in text
