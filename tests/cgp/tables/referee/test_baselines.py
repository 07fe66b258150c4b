"""What people fill gaps with, on tables where the answer is known."""

import numpy as np
import pandas as pd
import pytest

from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation, SeasonalMean


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
