"""Times in many forms: read as they were written, and refused where days may be months."""

import pandas as pd
import pytest

from cgp.tables.frames.files import times as module
from cgp.tables.frames.files.options import ReadOptions, UnclearError
from cgp.tables.frames.files.times import looks_like_time

TIMES = pd.date_range("2018-01-09 00:00", periods=60, freq="7h").as_unit("us")


def read_times(texts, name="t", dayfirst=None, form=None, *, is_whole=False):
    options = ReadOptions(dayfirst=dayfirst, time_format=form)
    return module.read_times(texts.rename(name), options, is_whole=is_whole)


CLEAR = [
    "%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d, %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M%p",
    "%d-%b-%Y %H.%M", "%b %d, %Y %H:%M", "%B %d, %Y %H:%M", "%d. %B %Y %H:%M", "%d %B %Y %H:%M",
    "%Y/%m/%d %H:%M:%S.%f", "%d%b%Y_%H:%M",
    "%-d/%-m/%Y %-H:%M", "%Y%m%dT%H%M", "%Y%m%dT%H%M%S", "%Y%m%d %H:%M", "%Y.%m.%d %Hh%M",
    "%d.%m.%Y %H:%M UTC", "%Y_%m_%d %H:%M",
]  # fmt: skip


@pytest.mark.parametrize("form", CLEAR)
def test_clear_forms_are_read_and_written(form):
    texts = pd.Series([time.strftime(form) for time in TIMES])
    times = read_times(texts, "t")
    assert (times.values == TIMES).all()
    assert times.form.write(TIMES) == [*texts]


@pytest.mark.parametrize(
    ("form", "zone", "sample"),
    [
        ("%Y-%m-%d %H:%M+01:00", "UTC+01:00", "+01:00"),
        ("%Y-%m-%dT%H:%M-0330", "UTC-03:30", "-0330"),
        ("%Y-%m-%d %H:%MZ", "UTC", "Z"),
    ],
)
def test_zones_are_read_and_written(form, zone, sample):
    texts = pd.Series([time.strftime(form) for time in TIMES])
    times = read_times(texts, "t")
    assert (times.values == TIMES.tz_localize(zone)).all()
    assert times.form.write(times.values)[0].endswith(sample)
    assert times.form.write(times.values) == [*texts]
    summer = pd.Series(["2024-03-31 01:00+01:00", "2024-03-31 03:00+02:00"])
    assert [*read_times(summer, "t").values.dt.hour] == [0, 1]
    assert read_times(pd.Series(["2024-03-31 01:00+01:00", "2024-03-31 03:00"]), "t") is None


@pytest.mark.parametrize(
    ("texts", "ways", "flags"),
    [
        (
            ["01/02/2018", "01/03/2018"],
            "01 February 2018 (day first) or 02 January 2018 (month first)",
            "--dayfirst or --monthfirst",
        ),
        (["01-02-2018", "01-03-2018"], "(day first)", "--dayfirst or --monthfirst"),
        (["01 02 2018", "01 03 2018"], "(day first)", "--dayfirst or --monthfirst"),
        (
            ["18-01-05", "18-02-05"],
            "18 January 2005 (day first) or 05 January 2018 (year first)",
            "--time-format %y-%m-%d",
        ),
        (["05-Jan-08", "06-Jan-08"], "(year first)", "--dayfirst or --time-format"),
        (["1/2/2018 6:00", "1/3/2018 6:00"], "(month first)", "--dayfirst or --monthfirst"),
    ],
)
def test_what_is_read_in_two_ways_is_refused(texts, ways, flags):
    with pytest.raises(UnclearError) as refused:
        read_times(pd.Series(texts), "t")
    assert ways in str(refused.value)
    assert flags in refused.value.flags


def test_the_order_of_day_and_month_is_named():
    texts = pd.Series(["01/02/2018", "03/02/2018"])
    assert [*read_times(texts, "t", True).values.dt.month] == [2, 2]
    assert [*read_times(texts, "t", False).values.dt.month] == [1, 3]
    assert read_times(texts, "t", True).form.said == "day first"
    with pytest.raises(UnclearError, match="dayfirst=False: expected day first in 't', which cannot be") as refused:
        read_times(pd.Series(["13/02/2018"]), "t", False)
    assert refused.value.flags.startswith("--monthfirst: expected day first")
    iso = pd.Series(["2018-01-02", "2018-01-03"])
    assert [*read_times(iso, "t", True).values.dt.day] == [2, 3]


def test_dots_are_day_first_unless_it_is_said_otherwise():
    texts = pd.Series(["01.02.2018", "01.03.2018"])
    assert [*read_times(texts, "t").values.dt.month] == [2, 3]
    assert [*read_times(texts, "t", False).values.dt.month] == [1, 1]
    assert [*read_times(pd.Series(["01.13.2018", "01.14.2018"]), "t", False).values.dt.day] == [13, 14]


def test_the_same_reading_in_two_orders_is_no_matter():
    assert read_times(pd.Series(["01/01/2018", "02/02/2018"]), "t").form.said == ""


def test_a_month_with_a_zero_before_it_is_no_number():
    for texts in (["04.2023"], ["04.2022", "04.2023"]):
        assert read_times(pd.Series(texts), "t").form.format == "%m.%Y"
    assert read_times(pd.Series(["12.2022", "12.2023"]), "t") is None


def test_a_format_is_named():
    assert read_times(pd.Series(["3.2018"]), "t", None, "%m.%Y").values[0] == pd.Timestamp("2018-03-01")
    with pytest.raises(ValueError, match=r"time_format: expected times as '%Y' in 't', got 'x'"):
        read_times(pd.Series(["2018", "x"]), "t", None, "%Y")


def test_months_without_days():
    months = pd.date_range("2018-01-01", periods=30, freq="MS")
    for form in ("%b-%y", "%Y-%m", "%m/%Y", "%b %Y", "%B %Y"):
        assert (read_times(pd.Series([m.strftime(form) for m in months]), "t").values == months).all()
    with pytest.raises(UnclearError, match="'Jan-01' is a month of a year, or a day without a year"):
        read_times(pd.Series(["Jan-01", "Jan-02", "Jan-03"]), "t")


@pytest.mark.parametrize("texts", [["10.2023", "11.2023", "1.2024"], ["03.2024", "02.2024"]])
def test_months_with_points_are_times_where_they_cannot_be_numbers(texts):
    """Numbers have no leading zeros, and these are not in order."""
    times = read_times(pd.Series(texts), "t")
    assert [f"{time.month}.{time.year}" for time in times.values] == [text.lstrip("0") for text in texts]
    assert times.form.write(times.values) == texts


def test_months_with_points_are_asked_about_where_they_may_be_numbers():
    texts = pd.Series(["10.2023", "11.2023", "12.2023"])
    with pytest.raises(UnclearError, match=r"'10.2023' is a month of a year or a number: say .*time_format.*numbers"):
        read_times(texts, "t")
    for numbers in (["1.1999", "1.2003", "1.2001"], ["1.1999", "1.2001"], ["12.2023", "3.2011", "7.2040"]):
        assert read_times(pd.Series(numbers), "t") is None  # not in order, or months of the same name


@pytest.mark.parametrize("between", ["", "-", " "])
def test_quarters_are_their_first_days(between):
    quarters = pd.date_range("2018-01-01", periods=9, freq="QS")
    texts = [f"{quarter.year}{between}Q{quarter.quarter}" for quarter in quarters]
    times = read_times(pd.Series(texts), "t")
    assert (times.values == quarters).all()
    assert times.form.write(quarters) == texts
    assert looks_like_time(texts[0])
    assert read_times(pd.Series([*texts, "2018Q5"]), "t") is None


def test_the_hour_24_is_the_next_day():
    times = read_times(pd.Series(["30.01.2018 23:00", "30.01.2018 24:00", "31.01.2018 01:00"]), "t")
    assert [*times.values.astype(str)] == ["2018-01-30 23:00:00", "2018-01-31 00:00:00", "2018-01-31 01:00:00"]
    assert read_times(pd.Series(["30.01.2018 24:30"]), "t") is None


def test_midnight_may_lack_its_time_of_day():
    """Further times are written as the longest."""
    times = read_times(pd.Series(["2018-01-01", "2018-01-01 06:00"]), "t")
    assert times.form.write(pd.to_datetime(["2018-01-01 12:00"])) == ["2018-01-01 12:00"]


@pytest.mark.parametrize(
    "texts",
    [
        ["1.036"],
        ["18:30"],
        ["2018-13-01"],
        ["30.02.2018"],
        ["12/34"],
        ["x"],
        ["2018-01-01", "x"],
        ["Mar2018"],
        ["May12"],
    ],
)
def test_what_is_no_time_is_none(texts):
    assert read_times(pd.Series(texts), "t") is None


def test_forms_are_told_from_numbers():
    assert looks_like_time("2018-01-31 18:30")
    assert not any(map(looks_like_time, ("12.2018", "1.5", "-5", "18:30", "1/2", "")))


@pytest.mark.parametrize(
    ("texts", "last"),
    [
        (["20180131", "20180201"], "2018-02-01"),
        (["2018013123"], "2018-01-31 23:00"),
        (["201801312359"], "2018-01-31 23:59"),
        (["20180131235958"], "2018-01-31 23:59:58"),
    ],
)
def test_compact_times(texts, last):
    times = read_times(pd.Series(texts), is_whole=True)
    assert times.values.iloc[-1] == pd.Timestamp(last)
    assert times.form.write(times.values) == texts


@pytest.mark.parametrize(
    "texts", [["20181301"], ["20180131", "201801"], ["99990101"], ["12345"], ["20180131", "x0180131"]]
)
def test_other_whole_numbers_are_no_times(texts):
    assert read_times(pd.Series(texts), is_whole=True) is None
