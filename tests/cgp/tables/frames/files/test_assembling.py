"""Rows that are not there, beside clocks that are some seconds late."""

import numpy as np
import pandas as pd
import pytest

from cgp.tables.frames.files.assembling import _absent, _refuse_unfit, absent_times, said_step, usual_step
from cgp.tables.frames.files.options import UnclearError


def absent(texts, every):
    return [str(time) for time in absent_times(pd.Series(pd.to_datetime(texts)), every)]


@pytest.mark.parametrize(
    ("texts", "every", "expected"),
    [
        (["2024-01-01 00:00", "2024-01-01 02:00"], "1h", ["2024-01-01 01:00:00"]),
        (["2024-01-01 02:00", "2024-01-01 00:00"], "h", ["2024-01-01 01:00:00"]),
        (["2024-01-01 00:00:04", "2024-01-01 00:10:01", "2024-01-01 00:30:00"], "10min", ["2024-01-01 00:20:00"]),
        (["2024-01-01 00:03", "2024-01-01 00:33", "2024-01-01 01:33"], "30min", ["2024-01-01 01:03:00"]),
        (["2024-01-01 09:00", "2024-01-04 09:00"], "1D", ["2024-01-02 09:00:00", "2024-01-03 09:00:00"]),
        (["2024-01-01", "2024-03-01"], "MS", ["2024-02-01 00:00:00"]),
        (["2024-01-31", "2024-03-31"], "ME", ["2024-02-29 00:00:00"]),
        (["2024-01-01 00:00", "2024-01-01 00:20", "2024-01-01 00:40", "2024-01-01 01:00"], "1h", []),
        (
            ["2024-01-01 00:00", "2024-01-01 00:20", "2024-01-01 03:00"],
            "1h",
            ["2024-01-01 01:00:00", "2024-01-01 02:00:00"],
        ),
        (["2024-01-01", "2024-01-01"], "1h", []),
        (["2024-01-01 00:30", "2024-01-01 01:30", "2024-01-01 02:30", "2024-01-01 03:30"], "1h", []),
    ],
)
def test_absent_times(texts, every, expected):
    assert absent(texts, every) == expected


def test_zones_are_kept():
    times = pd.Series(pd.to_datetime(["2024-01-01T00:00+01:00", "2024-01-01T02:00+01:00"]))
    assert [time.isoformat() for time in absent_times(times, "1h")] == ["2024-01-01T01:00:00+01:00"]


@pytest.mark.parametrize("every", ["soon", "-1h", "0h", "1M"])
def test_other_distances_are_refused(every):
    with pytest.raises(UnclearError, match="expected a duration such as every='1h', 15min or 1D, got"):
        absent(["2024-01-01", "2024-01-03"], every)


def test_distances_that_add_nothing_are_refused():
    """Where rows are mostly equally far apart; months are not of one length, and bursts have no distance."""
    days = pd.Series(pd.date_range("2024-01-01", periods=40, freq="D"))
    with pytest.raises(UnclearError, match="every='2D': expected at most the distance of the rows, 1 d"):
        _refuse_unfit(days, "2D")
    with pytest.raises(UnclearError, match="every='99D'"):
        _refuse_unfit(days, "99D")
    _refuse_unfit(days.drop(range(3, 30, 2)), "1D")
    _refuse_unfit(pd.Series(pd.date_range("2024-01-01", periods=20, freq="MS")), "MS")
    _refuse_unfit(days[days.dt.day.isin([1, 2, 4, 9, 20])], "7D")


def test_distances_that_are_no_part_of_the_rows_are_refused():
    """No row would be at most of the times; a quarter of an hour is a part of an hour, as is a month of a year."""
    hours = pd.Series(pd.date_range("2024-01-01", periods=40, freq="h"))
    for every in ("7min", "50min"):
        said = f"every='{every}': expected a step that divides the distance of the rows, 1 h, such as 30min: most"
        with pytest.raises(UnclearError, match=said):
            _refuse_unfit(hours, every)
    for every in ("15min", "1h", "40s", "1 hour", "Hours"):
        _refuse_unfit(hours, every)
    _refuse_unfit(pd.Series(pd.date_range("2000-01-01", periods=20, freq="YS")), "MS")
    _refuse_unfit(hours[hours.dt.hour.isin([1, 2, 4, 9, 20])], "7min")


def test_the_usual_distance_is_the_most_frequent_one():
    """Where most rows are not there, too, and of clocks that are some seconds late it is what they are around."""
    few = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum([0, 1, 2, 3, 1, 2, 1, 4]), unit="D"))
    assert few.diff().median() == pd.Timedelta("2D")
    assert usual_step(few) == 86_400.0
    assert _absent(few) == (15 - len(few), "1D")
    late = pd.Series(pd.date_range("2024-01-01", periods=40, freq="10min")) + pd.to_timedelta([0, 2, 5, 1] * 10, "s")
    assert abs(usual_step(late) - 600.0) <= 3.0


@pytest.mark.parametrize(
    ("freq", "every"), [("h", "1h"), ("90min", "90min"), ("10s", "10s"), ("MS", "MS"), ("ME", "ME")]
)
def test_absent_rows_are_counted_with_what_adds_them(freq, every):
    times = pd.Series(pd.date_range("2023-01-01", periods=12, freq=freq)).drop([4, 5])
    assert _absent(times) == (2, every)
    assert len(absent_times(times, every)) == 2


def test_no_row_is_said_to_be_absent_at_irregular_distances():
    """Of a clock that is a minute late most distances are whole: rows are absent where they are twice as far."""
    for apart, expected in ((np.linspace(20.0, 70.0, 99), 0), (30.0 * np.tile([1.0, 1.02, 2.0], 33), 33)):
        times = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(apart), unit="min"))
        assert _absent(times)[0] == expected


def test_a_drifting_logger_gets_as_many_rows_as_were_promised():
    """Readings 29, 30, 31 or 37 minutes apart, 60 where one is absent: no row is between two that are 37 apart."""
    apart = np.random.default_rng(0).choice(
        [29.0, 30.0, 31.0, 37.0, 60.0, 90.0], 300, p=[0.15, 0.4, 0.15, 0.2, 0.07, 0.03]
    )
    times = pd.Series(pd.Timestamp("2024-02-20 00:33") + pd.to_timedelta(np.cumsum(apart), unit="min"))
    count, every = _absent(times)
    assert (count, every) == ((apart[1:] == 60.0).sum() + 2 * (apart[1:] == 90.0).sum(), "30min")
    minutes = {}
    for step, parts in ((every, 1), ("15min", 2)):
        added = absent_times(times, step)
        both = pd.concat([times, added.to_series()]).sort_values()
        assert len(both) - 1 == (count + len(times) - 1) * parts
        minutes[parts] = both.diff().dropna() / pd.Timedelta("1min")
    assert minutes[1].min() >= 29.0
    assert minutes[1].max() == 37.0
    assert minutes[2].min() >= 14.5
    assert minutes[2].max() == 18.5


def test_rows_at_a_grid_keep_it_beside_a_reading_that_is_not():
    """After one at 00:04 the row of 00:10 is absent, not one at 00:12."""
    texts = ["00:00", "00:04", "00:20", "00:30", "00:40", "00:50", "01:10"]
    assert absent([f"2024-01-01 {text}" for text in texts], "10min") == ["2024-01-01 00:10:00", "2024-01-01 01:00:00"]


def test_distances_are_said():
    assert [said_step(seconds) for seconds in (30.0, 1800.0, 5400.0, 2 * 86_400.0, 30 * 86_400.0, 0.5)] == [
        "30 s", "30 min", "1.5 h", "2 d", "1 month", "0.5 s"
    ]  # fmt: skip
    times = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06"]))
    assert usual_step(times) == 86_400.0
    assert usual_step(times[:2]) != usual_step(times[:2])
