"""``cgp fill``: what it fills, says and writes, and what it refuses before anything heavy is imported."""

import gzip
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from cgp import CorrelatedGPImputer, __version__, commands
from cgp.commands.terminal import in_flags
from cgp.regression import MAP, MultiScale
from cgp.regression.inference.fitting import Fit, reported
from cgp.regression.solvers.choice import Cost
from cgp.tables import read_table
from cgp.tables.referee.report import GapReport

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from cgp.tables import imputer

    original = imputer.CorrelatedGPImputer._regressor
    quickly = {"structure": "coregionalised", "inference": MAP(max_steps=5)}
    monkeypatch.setattr(imputer.CorrelatedGPImputer, "_regressor", lambda self: original(self).set_params(**quickly))


HOURLY = b"time,a\n" + b"".join(b"2024-01-01 0%d:00,%s\n" % (hour, b"" if hour == 4 else b"1.5") for hour in range(9))
LONG = b"site,day,a\n" + b"".join(
    b"%s,2024-01-0%d,%d\n" % (site, d, d) for d in range(1, 9) for site in (b"N", b"S")[: d % 3]
)


UNCLEAR = "date,warm\n01/01/2024,10.0\n01/02/2024,ND\n"


def readings(rows=30):
    t = np.arange(rows) / 5.0
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=rows, freq="h").astype(str)})
    table = table.assign(site="A", warm=np.sin(t).round(2), wet=np.cos(t).round(3), count=np.arange(rows), dead=np.nan)
    table.loc[5:8, "warm"] = table.loc[12:14, "wet"] = np.nan
    return table


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "in.csv"
    readings().to_csv(path, index=False)
    return path


@pytest.fixture
def days(tmp_path):
    """Two whole ones."""
    path = tmp_path / "in.csv"
    readings(48).to_csv(path, index=False)
    return path


def run(path, *arguments):
    return commands.main(["fill", str(path), "--out", str(path.with_name("out.csv")), *map(str, arguments)])


def test_only_gaps_change(file, capsys):
    """Standard deviations and a picture beside it; what was understood is said."""
    folder = file.parent
    assert run(file, "--std", folder / "std.csv", "--picture", folder / "gaps.png") == 0
    table, lines = readings(), file.read_text().splitlines()
    filled, std = pd.read_csv(folder / "out.csv"), pd.read_csv(folder / "std.csv")
    changed = [
        n
        for n, pair in enumerate(zip(lines, (folder / "out.csv").read_text().splitlines(), strict=True))
        if len({*pair}) > 1
    ]
    assert changed == [6, 7, 8, 9, 13, 14, 15]
    assert not filled.drop(columns="dead").isna().any().any()
    assert ((std[["warm", "wet"]] > 0) == table[["warm", "wet"]].isna()).all().all()
    assert (folder / "gaps.png").read_bytes().startswith(b"\x89PNG")
    said = " ".join(capsys.readouterr().err.split())
    assert "rows 30, known by 'when' (as %Y-%m-%d %H:%M:%S): 2024-01-01 00:00:00 to 2024-01-02 05:00:00" in said
    assert "warm: 26 values, 4 missing" in said
    assert "left alone site (words, such as 'A') dead (nothing but missing values)" in said
    assert "filled 7 values in" in said
    assert sorted(each.name for each in folder.iterdir()) == ["gaps.png", "in.csv", "out.csv", "std.csv"]


def test_filled_values_have_the_digits_of_their_column(file):
    """Standard deviations have as many decimals in all rows, for two digits that count."""
    assert run(file, "--std", file.with_name("std.csv")) == 0
    texts, errors = (pd.read_csv(file.with_name(f"{name}.csv"), dtype=str) for name in ("out", "std"))
    assert texts["warm"][5:9].str.fullmatch(r"-?\d\.\d\d").all()
    assert texts["wet"][12:15].str.fullmatch(r"-?\d\.\d{3}").all()
    assert errors["warm"][:5].astype(float).eq(0.0).all()
    for name in ("warm", "wet"):
        assert errors[name].str.partition(".")[2].str.len().nunique() == 1
    assert (errors["warm"][5:9].str.replace(".", "").str.strip("0").str.len() >= 2).all()


def test_options_reach_the_reader(tmp_path, capsys):
    """Codes, dates day first, a footer: refused without, each with the flag that decides."""
    path = tmp_path / "in.csv"
    days = pd.date_range("2024-01-01", periods=60, freq="3MS").strftime("01/%m/%Y")
    values = [f"{1.5 + np.sin(k):.1f}" if k % 6 else "ND" for k in range(60)]
    path.write_text("day,a\n" + "".join(f"{d},{v}\n" for d, v in zip(days, values, strict=True)) + "Total,3\n")
    given = []
    for flag, more in (("--skip-footer 1", []), ("--dayfirst", []), ("--missing ND", [])):
        assert run(path, *given, *more) == 2
        error = capsys.readouterr().err
        assert error.startswith("cgp fill: in.csv: ")
        assert flag in error
        assert error.count("\n") == 1
        given += flag.split()
    assert run(path, *given) == 0
    filled = (tmp_path / "out.csv").read_text()
    assert filled.endswith("Total,3\n")
    assert "ND" not in filled


@pytest.mark.filterwarnings("default")
def test_warnings_name_flags(file, capsys, monkeypatch):
    import warnings

    from cgp.tables.imputer import CorrelatedGPImputer

    original = CorrelatedGPImputer.fit

    def warned(self, X, y=None):
        warnings.warn("-5 repeats; say so: missing_values=-5", UserWarning, stacklevel=1)
        return original(self, X)

    monkeypatch.setattr(CorrelatedGPImputer, "fit", warned)
    assert run(file) == 0
    assert "cgp fill: warning: -5 repeats; say so: --missing -5" in capsys.readouterr().err


def test_a_fit_that_has_not_converged_is_said_in_flags():
    with pytest.warns(ConvergenceWarning) as caught:
        reported(Fit(1.0, 3, converged=False, message="cut off after 3 steps"))
    assert in_flags(str(caught[0].message)) == (
        "The fit has not converged: cut off after 3 steps at 1 nats per row. What it predicts may be used, and might "
        "be better: --leave COLUMN for one that follows exactly from another one, --transforms COLUMN=log for one "
        "whose values differ by orders of magnitude"
    )


@pytest.mark.filterwarnings("ignore:table. below 0, where no observed value is:UserWarning")
def test_codes_may_be_given_one_after_the_other(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("t,a\n" + "".join(f"{t},{'ND' if t == 7 else '-999' if t == 9 else t % 5}\n" for t in range(30)))
    assert run(path, "--missing", "ND", "--missing", "-999") == 0
    assert pd.read_csv(tmp_path / "out.csv")["a"].between(-2, 6).all()


def test_parts_of_columns_of_one_name_are_refused_before_the_fit(days, capsys, monkeypatch):
    monkeypatch.setattr("cgp.CorrelatedGPImputer.fit", None)
    days.write_text(days.read_text().replace("wet", "warm std", 1))
    assert run(days, "--sums", "day", days.parent / "sums.csv") == 2
    assert "expected columns that are not called as the parts of another are, got two parts 'warm std'" in (
        capsys.readouterr().err
    )


def test_sums_means_and_a_forecast(days):
    folder = days.parent
    answers = ["--sums", "day", folder / "sums.csv", "--means", "all", folder / "means.csv"]
    assert run(days, *answers, "--forecast", 3, folder / "next.csv") == 0
    filled = pd.read_csv(folder / "out.csv")
    sums, means, ahead = (pd.read_csv(folder / f"{name}.csv") for name in ("sums", "means", "next"))
    assert list(sums) == ["when", "warm", "warm std", "wet", "wet std", "count", "count std"]
    np.testing.assert_allclose(sums["warm"], [filled["warm"][:24].sum(), filled["warm"][24:].sum()], atol=0.03)
    assert (sums["warm std"] > 0).tolist() == [True, False]
    np.testing.assert_allclose(means["wet"], filled["wet"].mean(), atol=2e-3)
    np.testing.assert_allclose(means["count"], readings(48)["count"].mean(), atol=5e-3)  # two decimals more
    assert ahead["when"].tolist() == ["2024-01-03 00:00:00", "2024-01-03 01:00:00", "2024-01-03 02:00:00"]


@pytest.mark.parametrize(
    ("flags", "heads"),
    [
        (["--sums", "day", "x.csv", "--mean-columns", "warm", "count"], ["wet sum", "warm mean", "count mean"]),
        (["--means", "day", "x.csv", "--sum-columns", "wet"], ["warm mean", "count mean", "wet sum"]),
        (["--sums", "day", "x.csv", "--sum-columns", "wet", "--interval", 0.9], ["wet"]),
        (["--sums", "day", "x.csv", "--means", "day", "y.csv", "--mean-columns", "warm"], ["wet", "count"]),
    ],
)
def test_sums_of_some_columns_and_means_of_others(flags, heads, days):
    """In one file, where only one is asked for."""
    place = {name: days.with_name(name) for name in ("x.csv", "y.csv")}
    assert run(days, *(place.get(each, each) for each in flags)) == 0
    parts = ("", " std", " lower", " upper") if "--interval" in flags else ("", " std")
    found = pd.read_csv(place["x.csv"], index_col=0)
    assert [*found] == [head + part for head in heads for part in parts]
    filled = pd.read_csv(days.with_name("out.csv"))
    for head in heads:
        name, _, how = head.partition(" ")
        daily = filled[name].groupby(np.arange(len(filled)) // 24)
        np.testing.assert_allclose(found[head], daily.mean() if how == "mean" else daily.sum(), atol=0.03)
    if "y.csv" in flags:
        assert [*pd.read_csv(place["y.csv"], index_col=0)] == ["warm", "warm std"]


def test_sums_means_and_a_forecast_have_ends_beside_a_level(days):
    """With or without a file of its own."""
    folder = days.parent
    answers = ["--sums", "day", folder / "s.csv", "--means", "day", folder / "m.csv", "--forecast", 3, folder / "f.csv"]
    for more in ([0.9], [0.9, folder / "ends.csv"]):
        assert run(days, *answers, "--interval", *more) == 0
        for name in "smf":
            found = pd.read_csv(folder / f"{name}.csv")
            assert [*found][1:5] == ["warm", "warm std", "warm lower", "warm upper"]
            reach = 1.6449 * found["warm std"]
            for end, sign in (("lower", -1.0), ("upper", 1.0)):
                np.testing.assert_allclose(found[f"warm {end}"], found["warm"] + sign * reach, rtol=0.02, atol=0.02)
    assert (folder / "ends.csv").exists()


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_sums_of_periods_that_lack_rows_are_empty(tmp_path, suffix):
    """A part is no total; means have no errors. They say how many rows; tables that lack none have no such column."""
    pytest.importorskip("openpyxl")
    path, sums = tmp_path / "days.csv", tmp_path / f"sums{suffix}"
    table = pd.DataFrame({"a": np.arange(61) % 7.0 - 3.0}, index=pd.date_range("2024-06-01", periods=61, name="date"))
    table.iloc[50] = np.nan
    for rows, absent in ((table, None), (table.drop(table.index[10:13]), [3, 0])):
        rows.to_csv(path)
        for what, heads in (
            ("--sums", ("a", "a std", "a lower", "a upper")),
            ("--means", ("a std", "a lower", "a upper")),
        ):
            assert run(path, what, "month", sums, "--interval", 0.95) == 0
            found = pd.read_csv(sums) if suffix == ".csv" else pd.read_excel(sums)
            assert found.get("absent rows", pd.Series(dtype=int)).tolist() == (absent or [])
            for head in ("a", "a std", "a lower", "a upper"):
                assert found[head].isna().tolist() == [absent is not None and head in heads, False]


@pytest.mark.parametrize(
    ("first", "rows", "absent"),
    [
        ("2024-01-30", 36, [29, 0, 26]),
        ("2024-02-01", 35, [0, 25]),
        ("2024-02-03", 20, [9]),
        ("2024-02-01", 29, None),
    ],
)
@pytest.mark.filterwarnings("default")
def test_months_that_are_seen_in_part_have_no_sum_and_are_named(first, rows, absent, tmp_path, capsys):
    """Beside their sums, as those that lack rows within."""
    path, sums = tmp_path / "days.csv", tmp_path / "sums.csv"
    table = pd.DataFrame({"a": np.arange(rows) % 7.0}, index=pd.date_range(first, periods=rows, name="date"))
    table.iloc[5] = np.nan
    table.to_csv(path)
    assert run(path, "--sums", "month", sums) == 0
    found = pd.read_csv(sums)
    assert [*found][:2] == ["date", "absent rows" if absent else "a"]
    assert found.get("absent rows", pd.Series(dtype=int)).tolist() == (absent or [])
    for head in ("a", "a std"):
        assert found[head].isna().tolist() == [count > 0 for count in absent or [0]]
    lines = [line for line in capsys.readouterr().err.splitlines() if "absent" in line]
    names = ", ".join(month for month, count in zip(found["date"], absent or [0], strict=True) if count)
    said = f"{sum(absent or [])} rows are absent, in or beside the months {names}, and sums that lack some are empty, "
    said += "as are errors of means: they are before the"
    assert all(
        line.endswith("are filled if lines of their times are added to the file, with empty fields") for line in lines
    )
    assert [line.partition(" first row")[0] for line in lines] == (
        [f"cgp fill: warning: aggregate: {said}"] * bool(absent)
    )


def test_what_was_never_filled_keeps_the_digits_of_its_column(days):
    """Sums and errors; a mean has one more, as it is known better than a reading."""
    names = ("sums", "means", "std")
    sums, means, std = (days.with_name(f"{name}.csv") for name in names)
    assert run(days, "--sums", "day", sums, "--means", "day", means, "--std", std) == 0
    texts = [pd.read_csv(path, dtype=str) for path in (sums, means, std)]
    assert texts[0][["count", "count std"]].to_numpy().tolist() == [["276", "0"], ["852", "0"]]
    assert texts[1][["count", "count std"]].to_numpy().tolist() == [["11.5", "0.0"], ["35.5", "0.0"]]
    assert set(texts[2]["count"]) == {"0"}


def test_sums_means_and_forecasts_show_two_digits_of_their_errors(days):
    flags = [("--sums", "day", days.with_name("s.csv")), ("--means", "day", days.with_name("m.csv"))]
    flags += [("--forecast", 3, days.with_name("f.csv"))]
    assert run(days, *(each for flag in flags for each in flag)) == 0
    for name in "smf":
        answers = pd.read_csv(days.with_name(f"{name}.csv"), dtype=str)
        for kind, least in (("warm", 2), ("wet", 3)):
            (decimals,) = {len(text.partition(".")[2]) for text in answers[[kind, f"{kind} std"]].to_numpy().flat}
            assert decimals >= least + (name == "m")
            for error in answers[f"{kind} std"].astype(float):
                assert error == 0.0 or error * 10**decimals >= 10


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M", "%d/%m/%Y", "%Y-%m-%d;%H:%M"])
def test_rows_of_answers_have_times_as_the_table_writes_them(tmp_path, form):
    times = pd.date_range("2024-01-01", periods=33, freq="h" if "%H" in form else "D").strftime(form)
    file, head = tmp_path / "in.csv", "when;clock" if ";" in form else "when"
    lines = [
        f"{time};{value}\n"
        for time, value in zip(times, readings()["warm"].astype(str).replace("nan", ""), strict=False)
    ]
    file.write_text(f"{head};warm\n{''.join(lines)}")
    asked = (
        ("--interval", 0.95, "ends"),
        ("--draws", 1, "draws"),
        ("--forecast", 3, "next"),
        ("--sums", "day", "sums"),
    )
    given = [each for flag, what, name in asked for each in (flag, what, tmp_path / f"{name}.csv")]
    assert run(file, *given) == 0
    written = {name: (tmp_path / f"{name}.csv").read_text().splitlines() for *_, name in asked}
    assert all(lines[0].startswith(f"{head};") for name, lines in written.items() if name != "sums")
    for name, rows in (("ends", times[:30]), ("draws", times[5:9]), ("next", times[30:])):
        assert [line[: len(times[0])] for line in written[name][1:]] == [*rows]
    assert re.match(r"2024-01-01;", written["sums"][1])


def test_days_in_workbooks_of_answers_have_no_hours(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    file, ends = tmp_path / "in.xlsx", tmp_path / "ends.xlsx"
    readings().assign(when=pd.date_range("2024-01-01", periods=30)).to_excel(file, index=False)
    assert commands.main(["fill", str(file), "--out", str(tmp_path / "out.xlsx"), "--interval", "0.9", str(ends)]) == 0
    assert openpyxl.load_workbook(ends).active["A2"].number_format == "YYYY-MM-DD"


@pytest.mark.parametrize(("encoding", "end"), [("cp1252", "\r\n"), ("utf-8-sig", "\n"), ("utf-16", "\n")])
def test_answers_are_written_as_the_table_is(tmp_path, encoding, end):
    """Its encoding with its mark, delimiter, sign of decimals, line ends; dates as 2024-01-01."""
    table, file = readings(48).drop(columns=["site", "dead"]).rename(columns={"warm": "Wärme"}), tmp_path / "in.csv"
    table.to_csv(file, index=False, sep=";", decimal=",", encoding=encoding, lineterminator=end)
    places = [tmp_path / f"{name}.csv" for name in ("sums", "ends", "draws")] + [tmp_path / "next.csv.gz"]
    asked = (("--sums", "day"), ("--interval", 0.95), ("--draws", 2), ("--forecast", 3))
    assert run(file, *(each for pair, place in zip(asked, places, strict=True) for each in (*pair, place))) == 0
    mark = "".encode(encoding)
    for place in places:
        content = place.read_bytes() if place.suffix == ".csv" else gzip.decompress(place.read_bytes())
        lines = content.decode(encoding).split(end)
        assert content.startswith(mark)
        assert lines[0].startswith("when;")
        assert all(re.match(r"2024-01-0\d[ :\d]*;", line) for line in lines[1:-1])
        assert lines[-1] == ""
        assert "." not in lines[1].partition(";")[2]
    assert "Wärme" in places[0].read_bytes().decode(encoding)


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
def test_a_table_without_gaps_has_sums_a_forecast_and_a_picture(file, capsys):
    readings().fillna({"warm": 0.5, "wet": 0.5}).to_csv(file, index=False)
    folder = file.parent
    for asked in (
        ["--sums", "day", folder / "x.csv"],
        ["--forecast", 3, folder / "x.csv"],
        ["--picture", folder / "x.png"],
    ):
        assert run(file, *asked) == 0
        assert "filled 0 values" in capsys.readouterr().err
        assert file.read_bytes() == (folder / "out.csv").read_bytes()
    assert len(pd.read_csv(folder / "x.csv")) == 3
    assert run(file) == 2


@pytest.mark.filterwarnings("default")
def test_lines_that_repeat_a_time_are_said_beside_sums(file, capsys):
    """One that is the same as another counts once; one with another value is a reading, as the user is told."""
    table, sums = readings().drop(columns="site"), file.with_name("sums.csv")
    table.loc[[*range(30), 29]].to_csv(file, index=False)
    assert run(file, "--sums", "all", sums) == 0
    assert "warning" not in capsys.readouterr().err
    assert pd.read_csv(sums)["count"].tolist() == [table["count"].sum()]
    other = table.loc[[29]].assign(count=7)
    pd.concat([table, other]).to_csv(file, index=False)
    said = "cgp fill: warning: --sums: 1 row repeats a time with other values, and each value counts: take out of"
    for more, is_said in ([], True), (["--repeats"], False):
        assert run(file, "--sums", "all", sums, *more) == 0
        assert (said in capsys.readouterr().err) is is_said
        assert pd.read_csv(sums)["count"].tolist() == [table["count"].sum() + 7]


def test_a_time_that_comes_twice_as_clocks_are_set_back_is_no_error(file, capsys):
    table = readings().drop(columns="site")
    table["when"] = (
        pd.date_range("2023-10-28 22:00", periods=30, freq="h").insert(5, "2023-10-29 02:00")[:30].astype(str)
    )
    table.to_csv(file, index=False)
    assert run(file, "--sums", "all", file.with_name("sums.csv")) == 0
    said = capsys.readouterr().err
    assert "1 row repeats a time, the first 2023-10-29 02:00:00, in a night when clocks are set back" in said
    assert "warning" not in said


@pytest.mark.filterwarnings("default")
def test_rows_that_sums_lack_are_added_by_a_flag(file, capsys):
    readings(48).drop(index=20).to_csv(file, index=False)
    assert run(file, "--sums", "day", file.with_name("sums.csv")) == 0
    said = "days 2024-01-01, and sums that lack some are empty, as are errors of means: --every STEP makes them gaps"
    assert said in capsys.readouterr().err
    path = file.with_name("totals.csv")
    path.write_text("date,warm\n2024-02,1.0\n")
    assert run(file, "--totals", path) == 2
    assert "rows that the table lacks are added by --every STEP" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_absent_rows_are_said_before_the_fit_and_once(file, capsys, monkeypatch):
    """Also where one file has sums and means, or there are two."""
    fit = CorrelatedGPImputer.fit
    monkeypatch.setattr(CorrelatedGPImputer, "fit", lambda *a, **b: sys.stderr.write("fitted") and fit(*a, **b))
    readings().drop(index=20).to_csv(file, index=False)
    means = ["--means", "day", file.with_name("means.csv")]
    for more in (["--mean-columns", "warm"], means):
        assert run(file, "--sums", "day", file.with_name("sums.csv"), *more) == 0
        said = capsys.readouterr().err
        assert "means: 1 of them is between rows: --every STEP makes them gaps" in said
        assert said.count("19 rows are absent, in") == said.count("18 of them are before the first row") == 1
        assert said.index("19 rows are absent") < said.index("fitted")


def test_a_forecast_takes_a_span_of_time(file, capsys, monkeypatch):
    place = file.with_name("next.csv")
    for span, rows in (("12h", 12), ("1 day", 24)):
        assert run(file, "--forecast", span, place) == 0
        assert len(pd.read_csv(place)) == rows
    capsys.readouterr()
    monkeypatch.setattr(CorrelatedGPImputer, "fit", lambda *_, **__: pytest.fail("was fitted"))
    for given, said in (
        (["10min"], "--forecast: expected at least the distance of the rows, 0 days 01:00:00, got '10min'"),
        (
            ["12h", "--no-index"],
            "--forecast: expected a number of rows, as those of this table have no times, got '12h'",
        ),
    ):
        assert run(file, "--forecast", given[0], place, *given[1:]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:table. below 0, where no observed value is:UserWarning")
def test_the_last_line_says_which_gaps_are_not_written(tmp_path, capsys):
    """Of series below each other: those without a row, where a picture is asked for, and nothing else is refused."""
    path = tmp_path / "in.csv"
    path.write_bytes(LONG)
    assert run(path, "--long", "site,day,a", "--picture", tmp_path / "x.png") == 0
    *_, last = capsys.readouterr().err.splitlines()
    left_out = "7 values have no row of their own: they are left out of the file, not of sums (--every 1D adds rows)"
    without = f"{tmp_path / 'out.csv'}; {left_out}"
    assert last.startswith("filled 0 values in ")
    assert last.endswith(without)


def test_expected_seconds_of_long_fits_are_said(file, capsys, monkeypatch):
    """Those that are to come, with the picture, in one number: on the clock where processes share the cores."""
    monkeypatch.setattr("cgp.regression.CorrelatedGPRegressor.estimate", lambda *_, **__: Cost(7.0, 1.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for load, expected in ((1.0, "8 s more on one core"), (8.0, "34 s more (2 cores shared by 8 processes)")):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 1.0, 1.0))
        assert run(file, "--picture", file.with_name("x.png")) == 0
        assert f"\nabout {expected}\n" in capsys.readouterr().err


def test_the_picture_has_the_level_of_the_intervals(file, monkeypatch):
    levels = []
    plot = CorrelatedGPImputer.plot
    monkeypatch.setattr(CorrelatedGPImputer, "plot", lambda self, **given: levels.append(given) or plot(self, **given))
    for flags in (["--interval", "0.8"], []):
        assert run(file, *flags, "--picture", file.with_name("x.png")) == 0
    assert levels == [{"level": 0.8}, {"level": 0.95}]


def test_the_command_expects_what_the_estimate_does(file, capsys, monkeypatch):
    """And says it once: the fit has no line of its own."""
    monkeypatch.setattr("cgp.regression.inference.setting.measured_seconds", lambda *_: 5.0)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    expected = CorrelatedGPImputer(random_state=0).estimate(read_table(file).frame).seconds
    assert run(file) == 0
    said = capsys.readouterr().err
    (coming,) = re.findall(r"about (\d+) s more on one core", said)
    assert float(coming) == pytest.approx(expected, abs=3.0)
    assert expected > 60.0


def test_what_is_written_is_of_the_kind_of_its_ending(file):
    for name in ("out.csv.gz", "out.txt", "out.csv"):
        assert run(file, "--out", file.with_name(name)) == 0
        assert not read_table(file.with_name(name)).frame.isna().any().any()
    assert (file.parent / "out.csv.gz").read_bytes().startswith(b"\x1f\x8b")


@pytest.mark.parametrize("ending", [".xlsx", ".parquet"])
def test_workbooks_and_parquet_in_and_out(ending, file):
    pytest.importorskip({".xlsx": "openpyxl", ".parquet": "pyarrow"}[ending])
    table = readings().assign(when=lambda frame: pd.to_datetime(frame["when"]))
    read = {".xlsx": pd.read_excel, ".parquet": pd.read_parquet}[ending]
    path, out = file.with_suffix(ending), file.with_name(f"out{ending}")
    assert run(file, "--out", path) == 2
    getattr(table, "to_excel" if ending == ".xlsx" else "to_parquet")(path, index=False)
    assert run(path, "--out", out) == 0
    pd.testing.assert_frame_equal(read(out).where(table.notna()), table, check_dtype=False)
    assert not read(out)[["warm", "wet"]].isna().any().any()


def test_kinds_say_what_they_need(file, monkeypatch, capsys):
    """Before anything is read or fitted."""
    monkeypatch.setattr("cgp.tables.frames.files.sources.find_spec", lambda name: None)
    for name in ("std.parquet", "std.xlsx"):
        assert run(file, "--std", file.with_name(name)) == 2
        assert "which the extra 'files' installs: pip install \"cgp[files]\"" in capsys.readouterr().err


def test_without_pandas_the_extra_is_named(file, monkeypatch, capsys):
    monkeypatch.setattr("cgp.commands.terminal.find_spec", lambda name: None)
    assert run(file) == 2
    assert "needs pandas, which the extra 'frames' installs" in capsys.readouterr().err


def test_a_misspelt_out_is_named_and_one_that_is_lacking(file, capsys):
    with pytest.raises(SystemExit) as stopped:
        commands.main(["fill", str(file), "--outt", "x.csv"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "cgp fill: unrecognized arguments: --outt x.csv; did you mean '--out'?\n"
    assert commands.main(["fill", str(file), "--std", "x.csv"]) == 2
    said = "cgp fill: --out: expected where the filled table is written, got none; --check only reads the file\n"
    assert capsys.readouterr().err == said


def test_cycles_that_an_assessment_names_have_their_flag():
    """Beside a report that keeps the default; nothing where they are recommended, or not spoken of."""
    methods = {
        "the GP": CorrelatedGPImputer(),
        "the GP with cycles": CorrelatedGPImputer(structure=MultiScale(periods=[1, 7.0])),
    }
    said = "Use the GP.\nFor values alone, the GP with cycles: squared error 0.1 against 0.2 (not told apart)."
    for method, sentence, lines in (
        ("the GP", said, ["cgp fill: the GP with cycles is --periods 1D 7D"]),
        ("the GP with cycles", said, []),
        ("the GP", "Use the GP.", []),
    ):
        report = SimpleNamespace(methods=methods, method=method, sentence=sentence)
        assert commands.fill._other_ways(report) == lines


def test_a_check_says_what_was_understood_and_writes_nothing(file, capsys, monkeypatch):
    """With the seconds of a fit that is not begun; a table without gaps needs none."""
    monkeypatch.setattr(CorrelatedGPImputer, "fit", lambda *_, **__: pytest.fail("was fitted"))
    before = sorted(file.parent.iterdir())
    for rows in (30, 4):
        readings(rows).to_csv(file, index=False)
        assert commands.main(["fill", str(file), "--check"]) == 0
        said = capsys.readouterr().err
        assert f"rows        {rows}, known by 'when'" in said
        assert re.search(r"\nabout \d+ s more" if rows == 30 else r"\nno gaps: nothing is to be filled$", said.rstrip())
    assert sorted(file.parent.iterdir()) == before
    assert commands.main(["fill", str(file), "--check", "--transforms", "warm=logg"]) == 2


def test_ends_and_draws_of_places_say_where_they_are(tmp_path):
    """As the file does; in a workbook each row does, also where two have the same first place."""
    path, rng = tmp_path / "in.csv", np.random.default_rng(0)
    table = pd.DataFrame(
        {"X": np.repeat(np.arange(5.0), 4), "Y": np.tile(np.arange(4) / 8.0, 5), "Cd": rng.normal(size=20)}
    )
    table.loc[[3, 6], "Cd"] = np.nan
    table.to_csv(path, index=False, sep=";", decimal=",")
    assert (
        run(path, "--inputs", "X", "Y", "--interval", "0.9", tmp_path / "i.csv", "--draws", 2, tmp_path / "d.csv") == 0
    )
    ends, draws = (pd.read_csv(tmp_path / f"{name}.csv", sep=";", decimal=",") for name in "id")
    assert [*ends] == ["X", "Y", "Cd lower", "Cd upper"]
    pd.testing.assert_frame_equal(ends[["X", "Y"]], table[["X", "Y"]])
    assert [*draws] == ["X", "Y", "draw", "column", "value"]
    assert draws[["X", "Y"]].to_numpy().tolist() == 2 * table.loc[[3, 6], ["X", "Y"]].to_numpy().tolist()
    assert run(path, "--inputs", "X", "Y", "--interval", "0.9", tmp_path / "i.xlsx") == 0
    pd.testing.assert_frame_equal(pd.read_excel(tmp_path / "i.xlsx")[["X", "Y"]], table[["X", "Y"]], check_dtype=False)


@pytest.mark.parametrize("ending", [".csv", ".xlsx", ".parquet"])
def test_numbers_that_are_left_alone_have_no_errors(ending, file):
    """A battery of 12.6 V has no standard deviation of that size; words stay, which may say what a row is."""
    table = readings().drop(columns="dead").assign(battery=12.6, number=7, on=True)
    path, std = file.with_suffix(ending), file.with_name(f"std{ending}")
    {".csv": table.to_csv, ".xlsx": table.to_excel, ".parquet": table.to_parquet}[ending](path, index=False)
    assert run(path, "--out", file.with_name(f"out{ending}"), "--std", std, "--leave", "battery", "number") == 0
    read = {".csv": pd.read_csv, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}[ending]
    found, out = read(std), read(file.with_name(f"out{ending}"))
    assert found[["battery", "number"]].isna().all().all()
    assert (found["site"] == "A").all()
    assert (found["count"] == 0.0).all()
    assert (out["battery"] == 12.6).all()


REFUSED = [
    (None, [], "no such file"),
    (b"", [], "expected a table, got an empty file"),
    (b"", ["--sums", "monat", "y.csv"], "a frequency of pandas, got 'monat'; did you mean 'month'?"),
    (b"", ["--mean-columns", "a"], "--sum-columns, --mean-columns: expected --sums PERIOD FILE or --means PERIOD FILE"),
    (b"a,b\n1,\n3,4\n", ["--sums", "all", "y.csv", "--mean-columns", "B"], "['a', 'b'], got ['B']; did you mean 'b'?"),
    (b"", ["--transforms", "a=lgo"], "'rectified', 'none'), got 'lgo'; did you mean 'log'?"),
    (b"\x89PNG\x00\xff", [], "got bytes that are no text"),
    (b"a,b\n", [], "expected a table with rows below a header, got none"),
    (b"a,b\n1,2\n3,4\n", [], "expected gaps in columns of numbers, ['a', 'b'], got none"),
    (b"a,b\nx,u\ny,v\n", [], "expected a column of numbers, got none"),
    (b"a,b\nx,1 mm\ny,2 mm\n", [], "numbers with units: '1 mm' in 'b'"),
    (b"a,b\n1,\n3,4\n", ["--index", "c"], "--index c: expected columns of the table, ['a', 'b'], got ['c']"),
    (b"day,b\n1,\n3,4\n", ["--index", "Dy"], "got ['Dy']; did you mean 'day'?"),
    (b"wind,b\n1,\n3,4\n", ["--leave", "wnd"], "got ['wnd']; did you mean 'wind'?"),
    (b"a,b\n1,\n3,4\n", ["--out", "/nowhere/x.csv"], "no folder /nowhere"),
    (b"a,b\n1,\n3,4\n", ["--out", "x.json"], "got '.json'"),
    (b"a,b\n1,\n3,4\n", ["--out", "x.zip"], "got '.zip'"),
    (b"a,b\n1,\n3,4\n", ["--out", "x.tsv"], "x.tsv: expected .csv or .txt, as there is ',' between the fields"),
    (b"a,b\n1,\n3,4\n", ["--picture", "gaps.doc"], "expected a picture, .png, .pdf, .svg, .jpg, got '.doc'"),
    (b"a,b\n1,\n3,4\n", ["--out", "same.csv", "--std", "./same.csv"], "a place of its own for each file"),
    (b"a,b\n1,\n3,4\n", ["--out", "in.csv"], "expected a place of its own for each file, got one which is read"),
    (b"a,b\n1,\n3,4\n", ["--sums", "day", "x.json"], "x.json: expected a table (.csv, "),
    (
        b"a,b\n1,\n3,4\n",
        ["--interval", "y.csv", "0.95"],
        "--interval: expected the level before the file, --interval 0.95 y.csv, got",
    ),
    (
        b"a,b\n1,\n3,4\n",
        ["--interval", "0.9"],
        "--interval LEVEL FILE, or --sums, --means, --forecast or --picture, got a level",
    ),
    (b"a,b\n1,\n3,4\n", ["--interval", "0.9", "y.csv", "z.csv"], "--interval: expected a level and a file, got"),
    (b"a,b\n1,\n3,4\n", ["--sums", "y.csv", "month"], "--sums: expected the period before the file, --sums month y"),
    (b"a,b\n1,\n3,4\n", ["--forecast", "few", "y.csv"], "--forecast: expected a number of rows, or a span of time"),
    (b"a,b\n1,\n3,4\n", ["--draws", "0", "y.csv"], "--draws: expected a number of draws, got '0'"),
    (b"a,b\n1,\n3,4\n", ["--sheet", "x"], "in.csv: --sheet x: expected a workbook, got text"),
    (
        HOURLY.replace(b"04:00,\n", b"04:00,1\n"),
        [],
        "got none; --missing CODE names what stands for a missing value",
    ),
    (
        b"".join(HOURLY.splitlines(keepends=True)[:5] + HOURLY.splitlines(keepends=True)[6:]),
        [],
        "got none; --every 1h adds",
    ),
    (LONG, ["--long", "site,day,a"], "got none; --every 1D adds rows that are not there, and --missing CODE"),
    (
        HOURLY,
        ["--every", "7min"],
        "--every 7min: expected a step that divides the distance of the rows, 1 h, such as 30min: most",
    ),
    (b"a,b\n1,\n3,4\n", ["--transforms", "a:log"], "expected COLUMN=KIND, got 'a:log'; did you mean 'a=log'?"),
    (HOURLY, ["--every", "2h"], "in.csv: --every 2h: expected at most the distance of the rows, 1 h"),
    (b"a,b\n1,\n3,4\n", ["--decimal", "x"], "--decimal: expected one of"),
    (b"a,b\n1,\n3,4\n", ["--skip-footer", "-1"], "fill: --skip-footer: expected a number of lines"),
    (b"day,b\n13/02/2018,\n14/02/2018,4\n", ["--monthfirst"], "in.csv: --monthfirst: expected day first in 'day'"),
]
FILL_EACH = """
import contextlib, io, json, os, sys
from cgp.commands import main
for number, arguments in enumerate(json.load(sys.stdin)):
    os.chdir(os.path.join(sys.argv[1], str(number)))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(["fill", "in.csv", "--out", "x.csv", *arguments])
    print(json.dumps([code, "torch" in sys.modules, said.getvalue()]))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Folder, exit status, whether torch was imported, and what was said, of each of REFUSED; they share a process."""
    parent = tmp_path_factory.mktemp("refused")
    for number, (content, _, _) in enumerate(REFUSED):
        (parent / str(number)).mkdir()
        if content is not None:
            (parent / str(number) / "in.csv").write_bytes(content)
    given = json.dumps([arguments for _, arguments, _ in REFUSED])
    command, environment = [sys.executable, "-c", FILL_EACH, str(parent)], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(REFUSED), done.stderr
    return [(parent / str(number), *answer) for number, answer in enumerate(answers)]


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[message for _, _, message in REFUSED])
def test_what_cannot_be_filled_is_said_in_a_line(number, refusals):
    """With exit status 2, and torch is not imported for it."""
    content, _, message = REFUSED[number]
    folder, code, torch_is_imported, stderr = refusals[number]
    assert (code, torch_is_imported) == (2, False)
    *_, said = stderr.splitlines()
    assert said.startswith("cgp fill: ")
    assert message in said
    assert [each.name for each in folder.iterdir()] == ([] if content is None else ["in.csv"])


def test_nothing_is_half_written(file, monkeypatch):
    """A full disk is status 1."""
    (file.parent / "out.csv").write_text("before")

    def broken(self, content):
        self.write_text("half")
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_bytes", broken)
    assert run(file) == 1
    assert (file.parent / "out.csv").read_text() == "before"
    assert sorted(each.name for each in file.parent.iterdir()) == ["in.csv", "out.csv"]


def test_links_modes_and_streams_are_kept(file, capfd):
    """A link stays one, a mode stays as it is, and a stream is written to."""
    folder = file.parent
    (folder / "real.csv").write_text("before")
    (folder / "real.csv").chmod(0o600)
    (folder / "out.csv").symlink_to("real.csv")
    assert run(file, "--std", "/dev/null") == 0
    assert (folder / "out.csv").is_symlink()
    assert stat.S_IMODE((folder / "real.csv").stat().st_mode) == 0o600
    assert Path("/dev/null").is_char_device()
    capfd.readouterr()
    assert run(file, "--out", "/dev/stdout") == 0
    assert capfd.readouterr().out == (folder / "real.csv").read_text()


def test_without_a_command_there_is_help(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main([])
    assert ended.value.code == 0
    assert "cgp fill readings.csv --out filled.csv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["fil", "in.csv"], "fill"),
        (["fill", "in.csv", "--out", "x.csv", "--picure", "x.png"], "--picture"),
        (["fill", "in.csv", "--out", "x.csv", "--dayfrist=yes"], "--dayfirst"),
    ],
)
def test_misspelt_commands_and_flags_are_told_the_nearest(arguments, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"; did you mean '{meant}'?\n")


def test_help_and_version_need_nothing_heavy():
    script = "import sys, runpy; sys.argv = ['cgp', {!r}]; runpy.run_module('cgp', run_name='__main__')"
    probe = "try:\n exec({0!r})\nexcept SystemExit:\n print(*{{'torch', 'pandas', 'numpy'}} & set(sys.modules))"
    version = f"cgp {__version__}"
    for argument, first in (("--help", "usage: cgp"), ("version", version), ("--version", version)):
        code = "import sys\n" + probe.format(script.format(argument))
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.stdout.startswith(first), done.stderr
        assert done.stdout.splitlines()[-1] == ""


def test_every_option_of_the_reader_has_a_flag():
    """And help names them all."""
    from cgp.tables.frames.files.options import ReadOptions

    command = [sys.executable, "-m", "cgp", "fill", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ReadOptions.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in text
    assert "cgp fill readings.csv --out filled.csv" in text.partition("examples:")[2]


def test_the_referee_fills_with_what_it_recommends(tmp_path, capsys, monkeypatch):
    """Two columns that are alike, each with gaps of its own: the other column says what is missing, lines do not.

    The seconds of five processes in three maskings, and of the fit at the end, are said beforehand; the sentence is as
    wide as the terminal.
    """
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("cgp.regression.CorrelatedGPRegressor.estimate", lambda *_, **__: Cost(7.0, 1.0))
    path, rng = tmp_path / "in.csv", np.random.default_rng(0)
    values = rng.normal(size=80)
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=80, freq="h"), "a": values})
    table["b"] = values + 0.1 * rng.normal(size=80)
    table.loc[::7, "a"] = table.loc[3::7, "b"] = np.nan
    table.to_csv(path, index=False)
    pictures = [tmp_path / "gaps.png", tmp_path / "scores.png"]
    assert run(path, "--std", tmp_path / "std.csv", "--picture", pictures[0], "--assess", pictures[1]) == 0
    printed = capsys.readouterr()
    assert re.search(r"about 11[5-9] s more on one core", printed.err)
    steps = [line for line in printed.err.splitlines() if "masking" in line]
    assert len(steps) == 8  # of each method the first: all are for terminals
    sentence, _, report = printed.out.partition("\n\n")
    assert any(line.startswith("ridge on the other columns") for line in report.splitlines())
    assert sentence.startswith("Use ")
    assert 50 < max(map(len, sentence.splitlines())) <= 60
    assert "It is ahead of linear interpolation" in " ".join(sentence.split())
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["a"], values, atol=0.5)
    assert (pd.read_csv(tmp_path / "std.csv")["a"][::7].between(0.02, 0.4)).all()
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_a_stream_gets_the_whole_table(file):
    """A pipe, as in ``cgp fill in.csv --out /dev/stdout | head``."""
    read, write = os.pipe()
    assert run(file, "--out", f"/dev/fd/{write}") == 0
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        assert list(pd.read_csv(pipe)) == list(readings())


def test_cycles_are_named_as_spans_or_numbers(file, monkeypatch):
    from cgp.tables.imputer import CorrelatedGPImputer

    asked, quickly = [], CorrelatedGPImputer._regressor

    def noted(self):
        asked.append(self.structure)
        return quickly(self)

    monkeypatch.setattr(CorrelatedGPImputer, "_regressor", noted)
    assert run(file, "--periods", "4h", "0.5") == 0
    assert run(file, "--no-index", "--periods", "24") == 0
    assert set(asked) == {MultiScale(periods=("4h", 0.5)), MultiScale(periods=(24.0,))}


@pytest.mark.filterwarnings("default")
def test_cycles_that_are_not_looked_for_are_said_unless_named(file, capsys):
    t = np.arange(400)
    level = np.sin(t * np.pi / 12) + 0.2 * np.random.default_rng(0).normal(size=400)
    table = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=400, freq="h").astype(str)})
    table.assign(warm=np.where(t == 7, np.nan, level.round(2))).to_csv(file, index=False)
    assert run(file) == 0
    said = "cgp fill: warning: a cycle of 1 d is visible, and a table this short is not searched for any: --periods 1D"
    assert said in capsys.readouterr().err
    assert run(file, "--periods", "1D") == 0
    assert "visible" not in capsys.readouterr().err


def test_periods_and_forecasts_are_refused_before_the_fit(file, capsys, monkeypatch):
    from cgp.tables.imputer import CorrelatedGPImputer

    monkeypatch.setattr(CorrelatedGPImputer, "fit", lambda *_, **__: pytest.fail("was fitted"))
    place = file.with_name("more.csv")
    readings().assign(row=np.arange(30) % 7).to_csv(file, index=False)
    for given, said in (
        (["--sums", "fortnight", place], "--sums: expected hour, day, week, month, quarter, year, all, or a frequency"),
        (["--means", "day", place, "--index", "count"], "--means: expected 'all', as the rows of this table have no"),
        (
            ["--forecast", "3", place, "--inputs", "count", "row"],
            "--forecast: expected rows that follow each other, got places",
        ),
        (["--periods", "7", "--inputs", "count", "row"], "--periods: expected rows that follow each other, got places"),
        (["--periods", "1day", "tide"], "--periods: expected day, week, year, or durations"),
        (["--periods", "0"], "--periods: expected positive numbers, got 0"),
        (["--no-index", "--periods", "1D"], "--periods: expected numbers in units of the input, which is no time, got"),
        (
            ["--transforms", "warn=log"],
            "COLUMN=KIND of columns to fill, ['warm', 'wet', 'count', 'row'], got ['warn']; did you mean 'warm'?",
        ),
        (["--transforms", "none", "auto"], "--transforms: expected at most one KIND, and COLUMN=KIND of columns to"),
    ):
        assert run(file, *given) == 2
        assert said in capsys.readouterr().err


def test_ends_of_intervals_are_written(file, capsys):
    place = file.with_name("ends.csv")
    assert run(file, "--interval", "0.9", place, "--std", file.with_name("std.csv")) == 0
    ends, filled, std = (pd.read_csv(file.with_name(f"{name}.csv")) for name in ("ends", "out", "std"))
    assert list(ends) == ["when", *(f"{name} {end}" for name in ("warm", "wet", "count") for end in ("lower", "upper"))]
    np.testing.assert_allclose(ends["warm upper"] - filled["warm"], 1.645 * std["warm"], atol=0.03)
    assert (ends["wet lower"] == ends["wet upper"]).equals(readings()["wet"].notna())
    assert run(file, "--interval", "0.9", place, "--forecast", 2, file.with_name("next.csv")) == 0
    ahead = pd.read_csv(file.with_name("next.csv")).set_index("when")
    assert [*ahead][:4] == ["warm", "warm std", "warm lower", "warm upper"]
    np.testing.assert_allclose(ahead["warm lower"], ahead["warm"] - 1.645 * ahead["warm std"], atol=0.03)
    for level in ("95", "high", "0"):
        assert run(file, "--interval", level, place) == 2
        said = capsys.readouterr().err
        assert f"--interval: expected a level between 0 and 1, such as 0.95, got '{level}'" in said
        assert ("did you mean 0.95?" in said) == (level == "95")


def test_draws_are_written_a_line_for_each_value(file):
    """Those of a gap go together: of zeros that the transform gives, so do counts."""
    table = readings().assign(warm=lambda frame: frame["warm"].clip(lower=0.0))
    table.loc[17:24, "warm"] = np.nan  # the sine is below zero there
    table.to_csv(file, index=False)
    place = file.with_name("draws.csv")
    assert run(file, "--transforms", "warm=rectified", "--draws", 20, place) == 0
    draws = pd.read_csv(place)
    assert list(draws) == ["when", "draw", "column", "value"]
    gaps = table[["when", "warm", "wet"]].set_index("when").isna().T.stack()
    expected = [
        (name, draw, when) for name in ("warm", "wet") for draw in range(1, 21) for when in gaps[name][gaps[name]].index
    ]
    assert [*draws[["column", "draw", "when"]].itertuples(index=False, name=None)] == expected
    warm = draws.loc[draws["column"] == "warm", "value"]
    assert warm.min() == 0.0
    assert (warm == 0.0).mean() > 0.2
    assert draws.groupby(["column", "when"])["value"].nunique().max() > 1


@pytest.mark.parametrize(
    ("ending", "zone"),
    [(".xlsx", None), (".xlsx", "Europe/Berlin"), (".parquet", "Europe/Berlin"), (".csv.gz", None)],
)
def test_answers_are_of_the_kind_of_their_ending(ending, zone, file):
    """Numbers and times, with the digits that text has; workbooks have zones as text."""
    if ending != ".csv.gz":
        pytest.importorskip({".xlsx": "openpyxl", ".parquet": "pyarrow"}[ending])
    table = readings()
    if zone is not None:
        table["when"] = pd.to_datetime(table["when"]).dt.tz_localize(zone).map(lambda time: time.isoformat())
    table.to_csv(file, index=False)
    first, other = file.with_name("next.csv"), file.with_name(f"next{ending}")
    for place in (first, other):
        assert run(file, "--forecast", 3, place) == 0
    expected = pd.read_csv(first, parse_dates=["when"]).set_index("when")
    read = {".xlsx": pd.read_excel, ".parquet": pd.read_parquet, ".csv.gz": pd.read_csv}[ending]
    found = read(other) if ending == ".parquet" else read(other, index_col=0)
    assert [*pd.to_datetime(found.index)] == [*expected.index]
    assert found.index.name == "when"
    np.testing.assert_array_equal(found, expected)


def test_plural_periods_are_understood(days):
    assert run(days, "--sums", "Days", days.with_name("sums.csv")) == 0
    assert len(pd.read_csv(days.with_name("sums.csv"))) == 2


@pytest.mark.filterwarnings("default")
def test_filled_values_below_zero_are_named_and_transforms_have_none(file, capsys):
    """A short, deep trough in a gap: the other column says that it is there."""
    t = np.linspace(0.0, 12.0, 60)
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=60).astype(str)})
    table = table.assign(rain=(1.0 + 1.3 * np.sin(t)).round(2), level=(3.0 * np.sin(t)).round(2))
    table.loc[table["rain"] < 0.1, "rain"] = np.nan
    table.to_csv(file, index=False)
    assert run(file) == 0
    said = capsys.readouterr().err
    assert "cgp fill: warning: below 0, where no observed value is: " in said
    assert said.split("--transforms rain=box-cox has none")[1].startswith("\n")
    assert pd.read_csv(file.with_name("out.csv"))["rain"].min() < 0
    assert run(file, "--transforms", "rain=box-cox") == 0
    assert "warning: below 0" not in capsys.readouterr().err
    assert pd.read_csv(file.with_name("out.csv"))["rain"].min() >= 0


@pytest.mark.filterwarnings("default")
def test_fills_and_a_forecast_below_zero_are_said_in_one_line(file, capsys):
    rain = 1.0 + 1.2 * np.sin(np.linspace(0.0, 17.0, 80))
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=80).astype(str), "rain": rain.round(2)})
    table.loc[rain < 0.1, "rain"] = np.nan
    table.to_csv(file, index=False)
    assert run(file, "--forecast", "6", file.with_name("next.csv")) == 0
    (said,) = (line for line in capsys.readouterr().err.splitlines() if "below 0" in line)
    assert re.search(
        r"is: .* filled values.* in 'rain', .* forecast values.* in 'rain'; if none can be, --transforms", said
    )


def test_values_that_a_transform_does_not_take_are_refused_at_once(file, capsys, monkeypatch):
    """Nothing is announced or fitted, and the advice can be typed."""
    monkeypatch.setattr(commands.fill, "_LONG", 0.0)
    assert run(file, "--transforms", "warm=log") == 2
    understood, _, said = capsys.readouterr().err.partition("cgp fill: ")
    assert "s more" not in understood
    assert said == (
        "--transforms: expected values from 0 on in column 'warm' for 'log', got -1 to 0.97: "
        "--transforms warm=yeo-johnson takes any, --transforms warm=none leaves the column as it is\n"
    )
    assert run(file, "--transforms", "warm=yeo-johnson") == 0
    assert "s more" in capsys.readouterr().err


def test_a_bare_kind_is_for_the_columns_that_are_not_named(file, capsys):
    changed = {}
    for rest in ("none", "auto", "yeo-johnson"):
        assert run(file, "--inputs", "when", "--transforms", "count=log", rest, "--leave", "wet") == 0
        changed[rest] = re.search(r"transformed: (.*)", capsys.readouterr().err)[1]
    assert changed["none"] == changed["auto"]  # 26 values are too few to choose by
    assert re.fullmatch(r"count: log\(x \+ [\d.]+\), never below 0", changed["none"])
    assert re.fullmatch(r"warm: YeoJohnson\(.*\), count: log\(x \+ [\d.]+\), never below 0", changed["yeo-johnson"])


@pytest.mark.filterwarnings("default")
def test_warnings_of_uneven_errors_name_a_flag(file, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=120).astype(str)})
    table["flow"] = (rng.normal(size=120) * np.where(np.arange(120) < 60, 0.1, 3.0)).round(2)
    table["other"] = rng.normal(size=120).round(2)
    table.loc[10:12, "other"] = np.nan
    table.to_csv(file, index=False)
    for flags, advice in (
        ([], "are large (fit each part)"),
        (["--transforms", "none"], "--transforms auto may even it out"),
    ):
        assert run(file, *flags) == 0
        said = capsys.readouterr().err
        assert "cgp fill: warning: errors of 'flow' are" in said
        assert advice in said


@pytest.mark.filterwarnings("default:totals. 'warm' 2024-01-01 is 10, which takes fills")
def test_filled_values_have_the_totals_of_another_file(file, tmp_path, capsys):
    full = readings().set_index(pd.date_range("2024-01-01", periods=30, freq="h"))
    days = pd.DataFrame({"date": ["2024-01-01"], "warm": [10.0]})
    path = tmp_path / "days.csv"
    days.to_csv(path, index=False)
    assert run(file, "--totals", path) == 2
    assert "days.csv: expected to know what 2024-01-01 stands for: --totals-period day or" in capsys.readouterr().err
    assert run(file, "--totals", path, "--totals-period", "day") == 0
    assert "known by 'date'" in capsys.readouterr().err
    path.write_text("date,warm\n2024-01-01,10.0\n2024-01-02,\n2024-01-03,\n2024-01-05,\n")
    assert run(file, "--totals", path, "--totals-period", "day") == 0
    assert "rows are not there" not in capsys.readouterr().err
    filled = pd.read_csv(file.with_name("out.csv"))["warm"]
    assert abs(filled[:24].sum() - 10.0) < 1e-9  # as it is written, with two digits
    assert run(file, "--totals", path, "--totals-period", "day", "--totals-means") == 0
    assert "check its decimal point and units" in capsys.readouterr().err
    assert abs(pd.read_csv(file.with_name("out.csv"))["warm"][:24].mean() - 10.0) < 0.01
    assert full["warm"].notna().sum() == 26
    path.write_text(UNCLEAR)
    flags = "--totals-flags=--monthfirst --missing ND"
    assert run(file, "--totals", path, "--totals-period", "day", flags) == 0
    assert abs(pd.read_csv(file.with_name("out.csv"))["warm"][:24].sum() - 10.0) < 1e-9


def test_a_column_without_values_is_filled_from_its_totals(file, tmp_path, capsys):
    times = pd.date_range("2024-01-01", periods=48, freq="h")
    warm = np.sin(np.arange(48.0) / 4.0)
    table = pd.DataFrame({"time": times, "warm": warm.round(3), "rain": np.nan})
    table.loc[5:7, "warm"] = np.nan
    table.to_csv(file, index=False)
    path = tmp_path / "days.csv"
    path.write_text("date,rain\n2024-01-01,12.5\n2024-01-02,30.0\n")
    assert run(file, "--totals", path, "--totals-period", "day") == 0
    assert "rain: 0 values, 48 missing" in capsys.readouterr().err
    filled = pd.read_csv(file.with_name("out.csv"))["rain"]
    np.testing.assert_allclose([filled[:24].sum(), filled[24:].sum()], [12.5, 30.0], rtol=1e-12)
    assert run(file) == 0
    assert "left alone  rain (nothing but missing values)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("date,snow\n2024-01,1.0\n", [], "expected columns of in.csv that have values"),
        ("date,warm\n2024-02,1.0\n", [], "every step of 'warm' 2024-02, got 0: rows that the table lacks"),
        ("date,warm\n2024-01-01,1.0\n", ["--totals-period", "x"], "--totals-period: expected one of hour, day"),
        ("n,warm\n1,1.0\n", [], "a column of times, such as 2024-01, got ['n', 'warm']"),
        (None, [], "totals.csv: no such file"),
        (UNCLEAR, ["--missing", "ND"], '(flags for this file: --totals-flags="...")'),
        (
            UNCLEAR,
            ["--totals-flags=--missing ND"],
            "say --dayfirst or --monthfirst (flags for this file: --totals-flags",
        ),
        (UNCLEAR, ["--totals-flags=--mising ND"], "--totals-flags: unrecognized arguments: --mising ND"),
    ],
)
def test_totals_that_do_not_fit_are_said_in_a_line(content, arguments, message, file, capsys):
    path = file.with_name("totals.csv")
    if content is not None:
        path.write_text(content)
    assert run(file, "--totals", path, *arguments) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    for flag in ("--totals-means", "--totals-flags=--repeats"):
        assert run(file, flag) == 2
        assert "expected --totals FILE" in capsys.readouterr().err


def test_methods_are_compared_with_totals_known(file, capsys):
    path = file.with_name("days.csv")
    path.write_text("date,warm\n2024-01-01,10.0\n")
    assert run(file, "--totals", path, "--totals-period", "day", "--maskings", 2, "--assess") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "were hidden with their totals known" in said
    assert "hide more by --maskings 4" in said
    assert abs(pd.read_csv(file.with_name("out.csv"))["warm"][:24].sum() - 10.0) < 1e-9


def test_answers_that_the_advised_method_has_not_are_by_the_default(file, monkeypatch, capsys):
    """With what is filled, so that a sum is one of it."""
    monkeypatch.setattr(GapReport, "method", property(lambda self: "linear interpolation"))
    sums, out = file.with_name("sums.csv"), file.with_name("out.csv")
    assert run(file, "--assess", "--sums", "all", sums, "--interval", "0.9", file.with_name("ends.csv")) == 0
    words = "linear interpolation has no answer for --sums: what is written is by the correlated GP"
    assert f"cgp fill: {words}" in " ".join(capsys.readouterr().err.split())
    total = pd.read_csv(sums).filter(regex="warm$").iloc[0, 0]
    assert total == pytest.approx(pd.read_csv(out)["warm"].sum(), abs=0.1)
    assert run(file, "--assess", "--interval", "0.9", file.with_name("ends.csv")) == 0
    assert "has no answer" not in capsys.readouterr().err


@pytest.mark.parametrize(("given", "wanted"), [(["--forecast", "3"], "ROWS FILE"), (["--missing"], "CODE [CODE ...]")])
def test_a_flag_without_what_it_takes_says_what_that_is(given, wanted, file, capsys):
    with pytest.raises(SystemExit):
        run(file, *given)
    assert capsys.readouterr().err.endswith(f"argument {given[0]}: expected {wanted}\n")


@pytest.mark.parametrize(("given", "got"), [([2], "2 without it"), ([1, "--assess"], "1")])
def test_maskings_go_with_an_assessment(given, got, file, capsys):
    assert run(file, "--maskings", *given) == 2
    assert capsys.readouterr().err == f"cgp fill: --maskings: expected 2 or more, beside --assess, got {got}\n"


@pytest.mark.filterwarnings("default")
def test_totals_that_reach_beyond_the_file_are_said(file, capsys):
    path = file.with_name("days.csv")
    path.write_text("date,warm\n2024-01-01,10.0\n2024-01-02,10.0\n")  # the file ends at 5 in the morning
    assert run(file, "--totals", path, "--totals-period", "day") == 0
    warned = "'warm' reach over rows that the table does not have, 0 before its first and 18 after its last"
    assert warned in capsys.readouterr().err
    assert abs(pd.read_csv(file.with_name("out.csv"))["warm"][:24].sum() - 10.0) < 0.021


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        (
            "transforms={'a b': 'rectified', \"d'}\": None, 'c': 'log'} has none",
            """--transforms 'a b=rectified' 'd'"'"'}=none' c=log has none""",
        ),
        ("sheet: expected one of ['a']", "--sheet: expected one of ['a']"),
        ("names structure=MultiScale(periods=['1D', '7D']) so", "names --periods 1D 7D so"),
        ("X: transforms='auto' may, missing_values=-5", "--transforms auto may, --missing -5"),
    ],
)
def test_transforms_by_name_are_said_in_flags(said, flags):
    assert in_flags(said) == flags
