"""The door: a file in, a frame and what was understood out, and the way back into the file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cgp.tables import TableFile, read_table
from cgp.tables.frames.files.options import UnclearError

ROOT = Path(__file__).parents[5]
HOURLY = "time;a;note\n2024-01-30 00:00;1,5;x\n2024-01-30 01:00;;\n2024-01-30 04:00;2,5;y\n"
LONG = "site,day,level\nN,2020-01-30,1.5\nS,2020-01-30,\nN,2020-01-31,2.5\nN,2020-02-01,3.5\nS,2020-02-01,4.5\n"


@pytest.fixture
def read(tmp_path):
    def reader(text, **options):
        path = tmp_path / "in.csv"
        path.write_text(text, newline="")
        return read_table(path, **options)

    return reader


def written(table, values=None, name="out.csv"):
    path = table.path.with_name(name)
    table.write(table.frame.fillna(2.0) if values is None else values, path)
    return path.read_bytes().decode()


def test_a_frame_and_what_was_understood(read):
    table = read(HOURLY)
    assert isinstance(table, TableFile)
    assert (table.gaps, table.inputs, list(table.frame)) == (1, [], ["a"])
    assert table.frame.index.name == "time"
    span = "2024-01-30 00:00:00 to 2024-01-30 04:00:00, mostly 1 h apart"
    assert str(table.understood).splitlines() == [
        "  file        utf-8, ';' between fields; decimal comma",
        "  header      line 1",
        f"  rows        3, known by 'time' (as %Y-%m-%d %H:%M): {span}",
        "  columns     a: 2 values, 1 missing",
        "  left alone  note (words, such as 'x')",
        "  note        2 rows are not there, which every='1h' adds",
    ]
    assert str(table) == repr(table) == f"{table.path}\n{table.understood}"
    assert written(table) == HOURLY.replace("01:00;;", "01:00;2,0;")


def test_a_misspelt_option_is_told_the_nearest(read):
    with pytest.raises(TypeError, match=r"of ReadOptions, \['delim.* got \['dayfrist'\]; did you mean 'dayfirst'"):
        read(HOURLY, dayfrist=True)


def test_remarks_may_be_more_than_rows(read):
    text = "".join(f"# remark {k}\n" for k in range(9)) + "time,a\n1,1.5\n2,\n4,2.5\n"
    table = read(text, comment="#")
    assert (list(table.frame), table.gaps) == (["a"], 1)


def test_many_columns_are_said_in_few_lines(read):
    names = [f"c{k}" for k in range(20)]
    table = read(
        ",".join(["time", *names]) + "\n" + "\n".join(f"{k}," + ",".join(["1.5"] * 20) for k in range(3)) + "\n"
    )
    assert "and 8 more: 24 values, 0 missing" in str(table.understood)
    assert len(str(table.understood).splitlines()) == 16


def test_further_rows_stand_after_the_one_before(read):
    """In a file that goes backwards as well; words have none."""
    table = read(HOURLY, every="1h")
    assert table.gaps == 3
    lines = written(table).splitlines()
    assert lines[2:5] == ["2024-01-30 01:00;2,0;", "2024-01-30 02:00;2,0;", "2024-01-30 03:00;2,0;"]
    head, *rows = HOURLY.splitlines()
    back = read("\n".join([head, *rows[::-1]]) + "\n", every="1h")
    assert [line[11:16] for line in written(back).splitlines()[1:]] == ["04:00", "03:00", "02:00", "01:00", "00:00"]
    two = read("Date,Time,a\n30.01.2024,00:00,1\n30.01.2024,02:00,\n", every="1h")
    assert "30.01.2024,01:00,2\n" in written(two)
    assert "\r\n" in written(read(HOURLY.replace("\n", "\r\n"), every="1h"))


def test_further_rows_between_blanks_stay_apart(read):
    """Where numbers are filled in that are wider than their columns."""
    table = read("day         a   b\n2020-01-30  1   2\n2020-02-01  NA  4\n", every="1D")
    filled = written(table, table.frame.fillna(12345.0)).splitlines()
    assert [line.split() for line in filled[1:]] == [
        ["2020-01-30", "1", "2"], ["2020-01-31", "12345", "12345"], ["2020-02-01", "12345", "4"]
    ]  # fmt: skip


def test_further_rows_have_the_zone_of_the_others(read):
    table = read("time,a\n2024-01-30T00:00+01:00,1\n2024-01-30T03:00+01:00,2\n2024-01-30T04:00+01:00,\n", every="1h")
    assert [line[11:22] for line in written(table).splitlines()[1:]] == [f"0{hour}:00+01:00" for hour in range(5)]


def test_rows_between_the_usual_ones_are_said(read):
    daily = "day,rain\n" + "".join(f"2024-01-{day:02d},{day % 7}\n" for day in range(1, 29) if day != 9)
    said = "rows of the file are mostly 1 d apart, and sums count each further one"
    assert said in str(read(daily, every="6h").understood)
    assert said not in str(read(daily, every="1D").understood)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (HOURLY, {}, ("3, known", "2 values, 1 missing")),
        (HOURLY, {"every": "1h"}, ("5, 2 of them added, known", "2 values, 3 missing")),
        (LONG, {"long": ["site", "day", "level"]}, ("3, known", "3 values, 0 missing")),
        (LONG.replace("02-01", "02-02"), {"long": ["site", "day", "level"], "every": "1D"},
         ("4, 1 of them added, known", "3 values, 1 missing")),
    ],
)  # fmt: skip
def test_rows_and_columns_are_counted_alike(read, text, options, said):
    """With the rows that are added; lines of a long file are no rows."""
    lines = [line[14:] for line in str(read(text, **options).understood).splitlines()]
    assert lines[2].startswith(said[0])
    assert lines[3].endswith(said[1])
    assert any(line.startswith("5 lines of 2 series of 'site'") for line in lines) == ("long" in options)


def test_further_rows_need_times(read):
    with pytest.raises(UnclearError, match="every='1h': expected rows that are known by times, got their order"):
        read("a,b\n1,2\n3,\n", every="1h")
    with pytest.raises(UnclearError, match="expected rows that are known by times, got 't'"):
        read("t,b\n1,2\n3,\n", every="1h")


def test_series_below_each_other(read):
    table = read(LONG, long=["site", "day", "level"])
    assert list(table.frame) == ["N", "S"]
    np.testing.assert_array_equal(table.frame, [[1.5, np.nan], [2.5, np.nan], [3.5, 4.5]])
    assert table.gaps == 1
    left_out = "1 value has no row of its own: it is left out of the file, not of sums (every='1D' adds rows)"
    assert left_out in str(table.understood)
    assert "3 values have no row" in str(read(LONG.replace("02-01", "02-02"), long=["site", "day", "level"]).understood)
    assert written(table) == LONG.replace("30,\n", "30,2.0\n")
    with_rows = read(LONG, long=["site", "day", "level"], every="1D")
    assert with_rows.gaps == 2
    assert written(with_rows).splitlines()[2:4] == ["S,2020-01-30,2.0", "S,2020-01-31,2.0"]


CLOCKED = "site,day,hour,level\n" + "".join(
    f"{site},2024-01-3{k // 24},{k % 24:02d}:00,{'' if (site, k) == ('S', 3) else k + 0.5}\n"
    for k in range(48)
    for site in "NSW"
    if (site, k) != ("N", 30)
)


def test_series_may_have_dates_and_times_of_day_apart(read):
    """Absent rows are added in both columns; a column that is none of them is refused by its name."""
    with pytest.raises(UnclearError) as refused:
        read(CLOCKED)
    assert "say --long site,day,hour,level if 'site' names series, or --index day hour" in refused.value.flags
    with pytest.raises(UnclearError, match="'site' tells them apart: say long="):
        read(CLOCKED, index=["day", "hour"])
    table = read(CLOCKED, long=["site", "day", "hour", "level"], every="1h")
    assert table.frame.shape == (48, 3)
    assert table.frame.index.name == "day hour"
    assert table.frame["S"].isna().sum() == table.frame["N"].isna().sum() == 1
    lines = written(table).splitlines()
    assert "S,2024-01-30,03:00,2.0" in lines
    assert "N,2024-01-31,06:00,2.0" in lines
    with pytest.raises(ValueError, match="long: expected one column, or one of dates and one of times of day, got .*"):
        read(CLOCKED, long=["site", "day", "level", "level"])


def test_series_have_one_value_at_a_time(read):
    for text, message in (
        (
            LONG + "N,2020-01-30,9.5\n",
            r"expected one row for each 'site' and 'day', got several: \['2020-01-30 00:00:00', 'N'\]",
        ),
        (LONG + ",2020-02-02,9.5\n", "got several: no name"),
        (LONG.replace("level", "height"), "expected columns of the table"),
        (
            LONG.replace("1.5", "x").replace("2.5", "y").replace("3.5", "z").replace("4.5", "w"),
            "expected a column of numbers, got none",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            read(text, long=["site", "day", "level"])


def test_repeated_times_are_refused_or_said(read):
    with pytest.raises(UnclearError) as refused:
        read(LONG)
    assert "2 of 5 rows repeat a time, and 'site' tells them apart: say --long site,day,level" in refused.value.flags
    assert "--repeats" in refused.value.flags
    assert len(read(LONG, repeats=True).frame) == 5
    once = read(daily([*range(30), 29, *range(30, 60)], [29.5, *range(60)]))
    assert str(once.understood).endswith("1 row repeats a time, the first 2020-01-30")
    with pytest.raises(UnclearError, match="30 of 90 rows repeat 'day': say repeats=True"):
        read(daily([*range(30), *range(60)], range(90)))


def test_rows_of_times_of_day_are_neither_series_nor_readings(read):
    text = "day,time,a\n" + "".join(f"2024-01-3{k // 24},{k % 24:02d}:00,{k}.5\n" for k in range(48))
    with pytest.raises(UnclearError) as refused:
        read(text.replace("30,05:00", "30,"))
    said = refused.value.flags
    assert "46 of 48 rows repeat 'day', and 'time' has times of day: say --index day time" in said
    assert "--repeats" not in said
    assert "--long" not in said


def test_lines_that_come_twice_hide_no_series(read):
    """With them, too, the column that tells rows of a time apart is named, or said beside readings."""
    with pytest.raises(UnclearError, match="3 of 6 rows repeat a time, and 'site' tells them apart: say long="):
        read(LONG + "S,2020-01-30,\n")
    said = "3 rows repeat a time (long=['site', 'day', 'VALUE'] if these are several series)"
    assert said in str(read(LONG + "S,2020-01-30,\n", repeats=True).understood)


def daily(days, values):
    dates = pd.Timestamp("2020-01-01") + pd.to_timedelta([*days], unit="D")
    return "day,a\n" + "".join(f"{d:%Y-%m-%d},{v}\n" for d, v in zip(dates, values, strict=True))


def test_parts_of_the_calendar_beside_a_date_are_left_alone(read):
    """Unless they are other numbers, or the user calls them such; what has another name stays what it is."""
    days = pd.date_range("2024-01-28", periods=9)
    lines = [f"{d:%Y-%m-%d},{d.year},{d:%m},{d.day_of_year},{d.day % 5},{d.month},{d.day}.5" for d in days]
    text = "date,Year,month,doy,hour,n,a\n" + "\n".join(lines) + "\n2024-02-06,,,,3,2,\n"
    table = read(text)
    assert list(table.frame) == ["hour", "n", "a"]
    assert "left alone  Year, month, doy (part of the times of the rows)" in str(table.understood)
    assert written(table) == text.removesuffix("\n") + "2.0\n"
    assert list(read(text, numbers=["doy"]).frame) == ["doy", "hour", "n", "a"]


def test_lines_that_repeat_another_count_once(read):
    """As where a logger is read out twice; a gap is filled in each of them, and rows are added below the last."""
    text = daily([*range(5), *range(3, 9), 11], [0, 1, 2, "", 4, "", 4, *range(5, 9), 11])
    table = read(text, every="1D")
    assert len(table.frame) == 12
    assert table.frame["a"].isna().sum() == 3
    assert "2 lines are the same as others: they count once" in str(table.understood)
    filled = written(table).splitlines()
    assert [line for line in filled if line.startswith("2020-01-04")] == ["2020-01-04,2"] * 2
    assert filled[-3:] == ["2020-01-10,2", "2020-01-11,2", "2020-01-12,11"]
    assert [line for line in filled if line[:10] + "," not in ("2020-01-04,", "2020-01-10,", "2020-01-11,")] == [
        line for line in text.splitlines() if line[:10] != "2020-01-04"
    ]
    assert len(read(text, repeats=True).frame) == 12
    assert "2 rows repeat a time" in str(read(text, repeats=True).understood)
    with pytest.raises(UnclearError, match="3 of 13 rows repeat 'day'"):
        read(text + "2020-01-12,12\n")


def test_lines_of_series_that_repeat_another_count_once(read):
    table = read(LONG + "S,2020-01-30,\n", long=["site", "day", "level"])
    assert "1 line is the same as another: it counts once" in str(table.understood)
    assert written(table) == LONG.replace("30,\n", "30,2.0\n") + "S,2020-01-30,2.0\n"


def test_values_below_a_limit_stay_in_the_file_and_count_as_half_of_it(read):
    text = "day,a\n2024-01-30,1.5\n2024-01-31,<0.5\n2024-02-01,\n2024-02-02,2.5\n"
    table = read(text, half_limits=True)
    np.testing.assert_array_equal(table.frame["a"], [1.5, 0.25, np.nan, 2.5])
    assert "1 value below a limit counts as half of it: intervals do not know that" in str(table.understood)
    assert written(table) == text.replace("02-01,", "02-01,2.0")


def test_lines_without_a_time_are_rows_however_often_they_come(read):
    assert len(read("a,b\n1,2\n1,2\n3,\n").frame) == 3


def test_hours_beside_days_are_offered(read):
    days = [f"2024-01-{30 + k // 24},{k % 24},{k % 5}.5" for k in range(48)]
    with pytest.raises(UnclearError) as refused:
        read("day,h,a\n" + "\n".join(days) + "\n")
    assert "--index day h if it holds the hours" in refused.value.flags


def test_places_are_inputs(read):
    text = "lat,lon,a\n46.9,7.4,1.5\n47.4,8.5,\n46.2,6.1,2.5\n"
    table = read(text)
    assert (table.inputs, list(table.frame), table.gaps) == (["lat", "lon"], ["lat", "lon", "a"], 1)
    assert written(table) == text.replace("8.5,\n", "8.5,2.0\n")


def test_errors_stand_in_the_places_of_values(read):
    table = read(HOURLY)
    table.write_errors(table.frame.assign(a=[0.0, 0.034, 0.0]), table.path.with_name("std.csv"))
    assert table.path.with_name("std.csv").read_text() == HOURLY.replace("1,5", "0,000").replace(
        ":00;;", ":00;0,034;"
    ).replace("2,5", "0,000")


def test_values_must_fit(read):
    table = read(HOURLY)
    with pytest.raises(ValueError, match="filled: expected the rows of the frame in their order, got another index"):
        table.write(table.frame.fillna(2.0)[::-1], table.path.with_name("out.csv"))
    with pytest.raises(ValueError, match="filled: expected a value in each place, got 1 without"):
        table.write(table.frame, table.path.with_name("out.csv"))
    for values in (table.frame[:2], table.frame.rename(columns={"a": "b"}), np.ones((3, 1))):
        with pytest.raises(ValueError, match=r"filled: expected a frame of 3 rows with the columns \['a'\]"):
            table.write(values, table.path.with_name("out.csv"))
    for name, message in (
        ("out.tsv", "expected .csv or .txt"),
        ("out.json", "got '.json'"),
        ("out.csv.zip", "got '.zip'"),
    ):
        with pytest.raises(ValueError, match=message):
            table.write(table.frame.fillna(2.0), table.path.with_name(name))


def test_quotes_and_widths_are_those_of_the_column(read):
    table = read('"t","a"\n"1","1,5"\n"2",""\n"3","2,5"\n', decimal=",", delimiter=",")
    assert written(table).splitlines()[2] == '"2","2,0"'
    bare = read('t,a\n1,"1,5"\n2,\n3,"2,5"\n', decimal=",", delimiter=",")
    assert written(bare).splitlines()[2] == '2,"2,0"'
    wide = read("t,    a\n1,  1.5\n2,     \n3, 12.5\n")
    assert written(wide).splitlines()[2] == "2,  2.0"
    blanks = read("t     a\n1   1.5\n2    NA\n3  12.5\n")
    assert written(blanks).splitlines()[2] == "2   2.0"


def test_empty_rows_are_no_rows_where_rows_have_labels(read):
    text = "day,a\n2020-01-30,1.5\n,\n2020-01-31,\n2020-02-01,2\n,\n,\n"
    table = read(text)
    assert "3 rows without a value" in str(table.understood)
    assert written(table) == text.replace("31,\n", "31,2.0\n")
    with pytest.raises(
        UnclearError, match="the last 2 rows are empty: say skip_footer=2 if they are none, skip_footer=0"
    ):
        read("a,b\n1,2\n,\n3,4\n,\n,\n")
    assert read("a,b\n1,2\n,\n3,4\n,\n,\n", skip_footer=0).gaps == 6
    assert read("a,b\n1,2\n,\n3,4\n,\n,\n", skip_footer=2).gaps == 2


def test_a_refusal_names_the_file_and_options_are_checked(read, tmp_path):
    with pytest.raises(UnclearError, match=r"^in.csv: expected a column of numbers, got none"):
        read("a,b\nx,y\n")
    with pytest.raises(TypeError, match="day_first"):
        read(HOURLY, day_first=True)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nothing.csv")


def test_pandas_is_an_extra():
    code = "import sys; sys.modules['pandas'] = None\nfrom cgp.tables import read_table\nread_table('x.csv')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "read_table: needs pandas, which the extra 'frames' installs" in done.stderr


def test_a_note_names_what_takes_leading_zeros_for_numbers(tmp_path):
    path = tmp_path / "wind.csv"
    rows = "".join(f"2024-01-{day:02d},{day * 11 % 360:03d},{day}.5\n" for day in range(1, 29))
    path.write_text("date,WD,v\n" + rows + "2024-01-29,,\n")
    assert "numbers=['WD'] takes numbers with leading zeros for numbers" in str(read_table(path).understood)
    table = read_table(path, numbers="WD")
    assert table.frame["WD"].iloc[0] == 11.0
    table.write(table.frame.fillna(7.2), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[-1] == "2024-01-29,7,7.2"
    with pytest.raises(ValueError, match="expected columns of the table, .*, got .'WS'"):
        read_table(path, numbers=["WS"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"days\.csv: no such file$"):
        read_table(tmp_path / "days.csv")
