"""What people fill gaps with, on tables where the answer is known."""

import numpy as np
import pandas as pd
import pytest

from cgp.tables.referee.baselines import (
    CalendarTrees,
    LaggedRidge,
    LinearInterpolation,
    SeasonalMean,
    UncertainImputer,
    _around,
    _ends,
)


def test_lines_run_over_the_units_of_the_index():
    """Times that are not evenly spaced, in any order; level at the ends."""
    times = pd.to_datetime(["2024-01-01 03:00", "2024-01-01 00:00", "2024-01-01 04:00", "2024-01-01 05:00"])
    frame = pd.DataFrame({"a": [np.nan, 0.0, 4.0, np.nan]}, index=times)
    assert LinearInterpolation().fit_transform(frame)["a"].tolist() == [3.0, 0.0, 4.0, 4.0]


def test_over_places_the_nearest_value_is_taken():
    frame = pd.DataFrame({"x": [0.0, 1.0, 10.0], "y": [0.0, 0.0, 3.0], "a": [5.0, np.nan, 7.0]})
    assert LinearInterpolation(inputs=["x", "y"]).fit_transform(frame)["a"].tolist() == [5.0, 5.0, 7.0]


@pytest.mark.parametrize(("freq", "rows", "period"), [("h", 24 * 20, 24), ("D", 366 * 4, 365.25), ("D", 800, 365.25)])
def test_the_mean_of_the_season_is_that_of_a_cycle(freq, rows, period):
    """A day's cycle is filled exactly; a year's to the mean of the month. What has no season keeps its mean."""
    cycle = np.sin(2 * np.pi * np.arange(rows) / period)
    frame = pd.DataFrame({"a": cycle}, index=pd.date_range("2020-01-01", periods=rows, freq=freq))
    frame.iloc[30:90] = np.nan
    filled = SeasonalMean().fit_transform(frame)["a"].to_numpy()
    np.testing.assert_allclose(filled, cycle, atol=1e-9 if freq == "h" else 0.35)
    short = frame.iloc[:40]
    np.testing.assert_allclose(SeasonalMean().fit_transform(short).iloc[35], short.mean())


def test_ridge_uses_other_columns_before_and_after():
    """A column that follows another one by two rows; without lags it is not seen."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=402)
    table = np.column_stack([source[2:], source[:-2]])
    truth = table[100:140, 1].copy()
    table[100:140, 1] = np.nan
    errors = [np.abs(LaggedRidge(lags=lags).fit_transform(table)[100:140, 1] - truth).max() for lags in ((1, 2), ())]
    assert errors[0] < 0.05 < 1.0 < errors[1]


def test_rows_may_be_in_any_order_and_nothing_observed_changes():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 2)).cumsum(axis=0), columns=["a", "b"])
    table.iloc[10:20, 0] = np.nan
    for imputer in (LinearInterpolation(), LaggedRidge()):
        filled = imputer.fit_transform(table)
        shuffled = table.sample(frac=1.0, random_state=0)
        pd.testing.assert_frame_equal(imputer.fit_transform(shuffled).sort_index(), filled)
        pd.testing.assert_frame_equal(filled[table.notna()], table)


def test_trees_learn_the_calendar_and_the_other_columns():
    """A day's cycle whose amplitude another column has; the ends of the gap and lines do not tell it."""
    rng, hours = np.random.default_rng(0), np.arange(24 * 60)
    source = rng.normal(size=len(hours))
    truth = np.where(hours % 24 < 8, 3.0, 0.0) + 2.0 * source
    frame = pd.DataFrame({"a": truth, "b": source}, index=pd.date_range("2024-01-01", periods=len(hours), freq="h"))
    frame.iloc[200:240, 0] = np.nan
    frame.iloc[900:940, 0] = np.nan
    gaps = frame["a"].isna().to_numpy()
    errors = {
        name: np.sqrt(np.mean((imputer.fit_transform(frame)["a"].to_numpy() - truth)[gaps] ** 2))
        for name, imputer in {
            "trees": CalendarTrees(),
            "without": CalendarTrees(periods=()),
            "ridge": LaggedRidge(),
            "season": SeasonalMean(),
        }.items()
    }
    assert errors["trees"] < 0.5
    assert 2 * errors["trees"] < min(errors[name] for name in ("without", "ridge", "season"))


def test_trees_fill_any_gap_of_a_series():
    """At the ends, in one column, in rows of any order; over places there is no line."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(80, 2)).cumsum(axis=0), columns=["a", "b"])
    table.iloc[:5, 0] = table.iloc[70:, 1] = table.iloc[30:40] = np.nan
    filled = CalendarTrees().fit_transform(table)
    assert filled.notna().all(axis=None)
    pd.testing.assert_frame_equal(filled[table.notna()], table)
    shuffled = table.sample(frac=1.0, random_state=0)
    pd.testing.assert_frame_equal(CalendarTrees().fit_transform(shuffled).sort_index(), filled)
    assert CalendarTrees().fit_transform(table[["a"]]).notna().all(axis=None)
    with pytest.raises(ValueError, match="expected one input"):
        CalendarTrees(inputs=["a", "b"]).fit_transform(pd.DataFrame({"a": [0.0, 1.0], "b": 1.0, "c": [np.nan, 1.0]}))


def test_trees_learn_from_gaps_like_those_that_they_fill():
    """The ends of a drawn gap are as far away as those of a gap of the table, or farther where values are missing."""
    seen = np.array([0, 1, 2, 3, 7, 8, 9])
    ends = _ends(seen, np.array([3, 5, 8]), np.array([[1, 1], [0, 0], [3, 3]]))
    np.testing.assert_array_equal(ends, [[2, 7], [3, 7], [3, -1]])
    column = np.arange(10.0) ** 2
    around = _around(column, np.array([3, 8]), ends[[0, 2]])
    np.testing.assert_allclose(around, [[4.0 + 45.0 / 5.0, 4.0, 49.0, 1.0, 4.0], [9.0, 9.0, np.nan, 5.0, np.nan]])


def test_intervals_below_zero_are_said_as_the_imputer_says_them():
    frame = pd.DataFrame({"flow": [1.0, np.nan, 3.0, 2.0, 4.0]})
    wide, narrow = (UncertainImputer(LinearInterpolation(), np.array([[sd]])).fit(frame) for sd in (2.0, 0.5))
    with pytest.warns(
        UserWarning,
        match="95 % intervals of 1 of 1 filled value in 'flow'; if none can be, transforms={'flow': 'box-cox'",
    ):
        assert wide.transform(frame)["flow"][1] == 2.0
    assert narrow.transform(frame)["flow"][1] == 2.0
