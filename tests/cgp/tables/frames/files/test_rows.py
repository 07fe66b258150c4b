"""What rows are known by, in one column or several; and refusals where it may be one or another."""

import numpy as np
import pandas as pd
import pytest

from cgp.tables.frames.files.options import ReadOptions, UnclearError
from cgp.tables.frames.files.rows import rows_of

HOURS = pd.date_range("2024-01-30", periods=72, freq="h").as_unit("us")
A = [f"{k % 7}.5" for k in range(72)]


def rows(frame, **options):
    cells = pd.DataFrame(
        {name: pd.Series([str(each) for each in column], dtype="str") for name, column in frame.items()}
    )
    return rows_of(cells, ReadOptions(**options))


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"Date": "%d/%m/%Y", "Time": "%H:%M"}, ["Date", "Time"]),
        ({"Date": "%m/%d/%Y", "Time": "%H:%M:%S"}, ["Date", "Time"]),
        ({"Date": "%m/%d/%Y", "Time": "%H.%M.%S"}, ["Date", "Time"]),
        ({"Date": "%d/%m/%Y", "clock": "%I:%M %p"}, ["Date", "clock"]),
        ({"Date": "%d %b %Y", "Time": "%H:%M:%S"}, ["Date", "Time"]),
        ({"Date": "%Y%m%d", "Time": "%H:%M"}, ["Date", "Time"]),
        ({"day": "%Y-%m-%d", "hr": "%H"}, ["day", "hr"]),
        ({"Year": "%Y", "Month": "%m", "Day": "%d", "Hour": "%H"}, ["Year", "Month", "Day", "Hour"]),
        ({"year": "%Y", "doy": "%j", "hour": "%-H"}, ["year", "doy", "hour"]),
        ({"no": "7", "when": "%d.%m.%Y %H:%M"}, ["when"]),
        ({"time": "%Y%m%d%H"}, ["time"]),
    ],
)
def test_times_are_found_and_written(columns, names):
    frame = {name: HOURS.strftime(form) for name, form in columns.items()}
    found = rows(frame | {"a": A})
    assert found.columns == names
    assert (found.times == HOURS).all()
    written = found.write(HOURS)
    assert {name: written[name] for name in names} == {name: [*frame[name]] for name in names}
    if len(names) != 3:
        assert (rows(frame | {"a": A}, index=names).times == HOURS).all()


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y %j"])
def test_hours_with_fractions_beside_a_date_are_found_and_written(form):
    """As of flux towers; 24.0 is the beginning of the next day."""
    times = pd.date_range("2023-12-30", periods=200, freq="30min")
    days = (times - pd.Timedelta("1s")).normalize()
    hours = (times - days) / pd.Timedelta("1h")
    parts = zip(("year", "doy") if " " in form else ("date",), form.split(" "), strict=True)
    frame = {name: days.strftime(each) for name, each in parts} | {"Hour": [f"{hour:g}" for hour in hours]}
    found = rows(frame | {"a": range(200)})
    assert found.columns == [*frame]
    assert (found.times == times).all()
    assert found.said.endswith(" and hours")
    assert found.write(times[1:48])["Hour"] == [f"{hour:g}" for hour in hours[1:48]]
    assert (rows(frame | {"a": range(200)}, index=[*frame]).times == times).all()


def test_months_in_two_columns():
    months = pd.date_range("2020-01-01", periods=30, freq="MS")
    found = rows({"year": months.year, "month": months.month, "v": range(30)})
    assert (found.times == months).all()
    assert found.write(months)["month"] == [str(month) for month in months.month]


@pytest.mark.parametrize("name", ["month", "Year", "Monat"])
def test_months_in_one_column(name):
    """Whatever it is called; a year's number stays one."""
    months = pd.date_range("2023-09-01", periods=3, freq="MS")
    assert (rows({name: months.strftime("%Y-%m"), "v": [1, 5, 2]}).times == months).all()
    assert rows({"year": [2021, 2022, 2023], "v": [1, 5, 2]}).labels["year"].tolist() == [2021, 2022, 2023]


def test_numbers_and_places():
    assert rows({"t": [0, 1, 5], "a": [1, 2, 1]}).labels["t"].tolist() == [0, 1, 5]
    assert rows({"t": [0.5, 1, 5], "a": [1, 2, 1]}).labels["t"].tolist() == [0.5, 1.0, 5.0]
    assert rows({"unnamed 1": [0, 1, 5], "a": [1, 2, 1]}).columns == ["unnamed 1"]
    assert rows({"column 1": [0, 1, 5], "a": [1, 2, 1]}).columns == []
    assert rows({"column 1": [0, 2, 4], "a": [1, 2, 1]}).columns == ["column 1"]
    assert rows({"a": [0, 1, 5], "b": [1, 2, 1]}).columns == []
    assert rows({"Lat": [46.9, 47.4], "Lon": [7.4, 8.5], "a": [1, 2]}).columns == ["Lat", "Lon"]
    assert rows({"Y": [46.9, 47.4], "X": [7.4, 8.5], "a": [1, 2]}).columns == ["Y", "X"]
    assert rows({"Lat": [46.9, 47.4], "Lon": [7.4, ""], "a": [1, 2]}).columns == []
    assert rows({"v": [3, 1, 2]}).labels == {}
    assert rows({"v": [20240103, 20240101, 20240102], "a": [1, 2, 3]}).labels == {}


def test_what_is_named_is_taken():
    frame = {"day": HOURS.strftime("%Y-%m-%d"), "n": range(72), "m": range(72), "a": A}
    assert rows(frame, index=["n"]).columns == ["n"]
    assert rows(frame, index=False).labels == {}
    assert [*rows(frame, inputs=["n", "day"]).labels] == ["n", "day"]
    assert rows({"x": ["20240131", "20240201"], "a": [1, 2]}, index=["x"]).times.dt.month.tolist() == [1, 2]
    assert rows({"x": ["3/2024", "4/2024"], "a": [1, 2]}, time_format="%m/%Y").times.dt.month.tolist() == [3, 4]
    for options, message in (
        ({"index": ["z"]}, r"expected columns of the table, \['day', 'n', 'm', 'a'\], got \['z'\]"),
        ({"index": ["n", "m"]}, "index: expected one column, or one of dates and one of times of day"),
    ):
        with pytest.raises(ValueError, match=message):
            rows(frame, **options)


@pytest.mark.parametrize(
    ("frame", "flags"),
    [
        ({"a": HOURS, "b": [*HOURS[1:], HOURS[-1] + pd.Timedelta("9h")]}, "--index a or --index b"),
        (
            {"t": [*HOURS[:71], "Total"], "a": A},
            "'Total' in row 72 (1 row): say --skip-footer 1 if the table ends above",
        ),
        ({"t": [*HOURS[:40], "x", *HOURS[41:]], "a": A}, "got 'x' in row 41 (1 row): mend them"),
        ({"t": [*HOURS[:40], "", *HOURS[41:]], "a": A}, "expected a time in every row, got '' in row 41"),
        ({"year": np.arange(72) // 2, "a": A}, "'year' grows, but repeats itself: say --long SERIES,year,VALUE"),
        (
            {"time": [f"{k % 24:02d}:00" for k in range(72)], "a": A},
            "'time' is not read as times, nor as numbers that grow",
        ),
        ({"time": [3, 1, 2], "a": [1, 2, 3]}, "--no-index"),
        ({"date": ["1 Mai", "2 Mai"], "a": [1, 2]}, "--time-format"),
        ({"site": ["N", "S"], "2020-01-30": [1, 2], "2020-01-31": [1, 3]}, "turn the table"),
        ({"when": HOURS.strftime("%d-%m-%y")[:12], "a": A[:12]}, "can be read in"),
    ],
)
def test_what_may_be_one_or_another_is_refused(frame, flags):
    with pytest.raises(UnclearError) as refused:
        rows(frame)
    assert flags in refused.value.flags


def test_a_day_without_its_time_is_not_midnight():
    clocks = [*HOURS.strftime("%H:%M")]
    clocks[12] = ""
    assert rows({"day": HOURS.strftime("%Y-%m-%d"), "time": clocks, "a": A}).columns == ["day"]


@pytest.mark.parametrize("midnight", ["%Y-%m-%d 00:00:00", "%Y-%m-%dT00:00", "%-d.%-m.%Y 0:00"])
def test_dates_with_midnight_are_joined_with_times_of_day(midnight):
    frame = {"Date": HOURS.strftime(midnight), "Time": HOURS.strftime("%H:%M"), "a": A}
    for options in ({}, {"index": ["Date", "Time"]}):
        found = rows(frame, **options)
        assert (found.times == HOURS).all()
        assert found.write(HOURS) == {name: [*frame[name]] for name in ("Date", "Time")}


def test_what_is_no_time_of_day_is_shown():
    clocks = [*HOURS.strftime("%H:%M")]
    clocks[12] = "noon"
    with pytest.raises(ValueError, match=r"got \['day', 'time'\] with '2024-01-30', 'noon' in a row"):
        rows({"day": HOURS.strftime("%Y-%m-%d 00:00:00"), "time": clocks, "a": A}, index=["day", "time"])


def test_columns_of_times_apart_by_a_constant_are_one():
    assert rows({"a": HOURS, "b": HOURS + pd.Timedelta("1h"), "v": A}).columns == ["a"]
    assert rows({"a": HOURS, "checked": ["2024-05-30"] * 72, "v": A}).columns == ["a"]


def test_numbers_beside_dates_are_no_times_of_day():
    """12.25 is a reading, and 12:75 no time."""
    days = pd.date_range("2024-01-20", periods=12).repeat(2).strftime("%Y-%m-%d")
    level = [f"{k + 0.75:.2f}" for k in range(24)]
    assert rows({"day": days, "level": level}).columns == ["day"]
    assert rows({"day": days, "level": [f"{k}:75" for k in range(24)]}).columns == ["day"]
    assert rows({"day": days, "time": [f"{k + 13}:30" for k in range(24)]}).columns == ["day"]


def test_an_index_needs_a_label_in_every_row():
    with pytest.raises(UnclearError, match="'a': expected a time or a number in every row, got none in 1"):
        rows({"a": ["1", ""], "b": ["1", "2"]}, index=["a"])
    with pytest.raises(UnclearError, match="'a': expected times or numbers, got 'x'"):
        rows({"a": ["x", "y"], "b": ["1", "2"]}, index=["a"])


def test_whole_hours_are_taken_where_they_are_asked_for():
    frame = {"day": HOURS.strftime("%Y-%m-%d"), "h": HOURS.hour, "a": A}
    assert rows(frame).columns == ["day"]
    assert (rows(frame, index=["day", "h"]).times == HOURS).all()
