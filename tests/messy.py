"""A corpus of messy files, as people have them: each is read right, or refused with the option that decides.

``python -m tests.messy`` writes a table of all of them: those that are made here, and, where CGP_DATA names a folder of
data, those in its ``messy``. A file counts if it is refused where it can be read in two ways, with the flag that
decides; if, with that flag, index and values are what was meant; and if, once its gaps are filled, no other byte of it
has changed.
"""

# ruff: noqa: E501 (a file in a line)

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgp.tables import read_table
from cgp.tables.frames.files.options import UnclearError

DAYS = pd.date_range("2020-01-20", periods=40)
A = np.round(10 + 5 * np.sin(np.arange(40) / 4), 2)
B = np.round(20 + 3 * np.cos(np.arange(40) / 5), 1)
A[5:9] = A[30] = B[20] = np.nan


@dataclass
class Messy:
    """A file and what it means.

    Attributes:
        name: of the file.
        what: is messy about it.
        content: bytes, or None for a file of the data folder.
        decides: flags that are asked for, one after the other, and the options that answer them.
        index: of the frame, or its first and last label for a file of the data folder.
        values: of its columns, or how many values and gaps each has.
    """

    name: str
    what: str
    content: bytes | None
    decides: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    index: Any = None
    values: dict[str, Any] = field(default_factory=dict)


def table(
    *,
    sign: str = ",",
    form: str | Callable[[Any], str] = "%Y-%m-%d",
    number: Callable[[float, int], str] = lambda value, digits: f"{value:.{digits}f}",
    gap: str = "",
    end: str = "\n",
    header: Sequence[str] | None = ("day", "a", "b"),
    days: Any = DAYS,
    more: Callable[[int], list[str]] = lambda _: [],
) -> str:
    """The table in some dialect."""
    written = form if callable(form) else lambda time: time.strftime(form)
    lines = [] if header is None else [sign.join(header)]
    for k, day in enumerate(days):
        values = [gap if np.isnan(v) else number(v, d) for v, d in ((A[k], 2), (B[k], 1))]
        lines.append(sign.join([written(day), *values, *more(k)]))
    return end.join(lines) + end


def comma(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace(".", ",")


def case(name: str, what: str, text: str | bytes, *decides: tuple[str, dict[str, Any]], **meant: Any) -> Messy:
    content = text.encode() if isinstance(text, str) else text
    return Messy(name, what, content, [*decides], meant.get("index", DAYS), meant.get("values", {"a": A, "b": B}))


def own_files() -> list[Messy]:
    """The files that are made here."""
    iso, short = table(), pd.date_range("2020-02-01", periods=40, freq="h")
    months = pd.date_range("2018-01-01", periods=40, freq="MS")
    plain = "\n".join(f"{'' if np.isnan(v) else format(v, '.2f')}" for v in A)
    hours = {"index": short}
    day_month = {"dayfirst": True}
    german = table(sign=";", form="%d.%m.%Y", number=comma, gap="-", end="\r\n")
    dated = table(form="%d/%m/%Y,%H:%M", days=short, header=("Date", "Time", "a", "b"))
    two = [
        f"{s},{d:%Y-%m-%d},{v}"
        for s, c in (("N", A), ("S", B))
        for d, v in zip(DAYS, ("" if np.isnan(x) else x for x in c), strict=True)
    ]
    long = "site,day,level\n" + "\n".join(two) + "\n"
    long_frame = {"values": {"N": A, "S": B}}
    groups = 1000 + 200 * np.arange(40.0)
    groups[4] = np.nan
    big = pd.DataFrame({"day": DAYS.strftime("%Y-%m-%d"), "a": ["" if np.isnan(g) else f"{g:,.0f}" for g in groups]})
    grouped = {"values": {"a": groups}}
    return [
        case("plain.csv", "nothing", iso),
        case("windows.csv", "line ends of Windows, a byte order mark", b"\xef\xbb\xbf" + table(end="\r\n").encode()),
        case("no-last-end.csv", "no line end at the end", iso.rstrip("\n")),
        case("utf16.txt", "UTF-16, tabs", b"\xff\xfe" + table(sign="\t").encode("utf-16-le")),
        case("latin.csv", "Windows' degree signs in a name", table(header=("day", "°C", "b")).encode("cp1252"), values={"°C": A, "b": B}),
        case("german.csv", "semicolons, decimal commas, dots in dates, dashes for gaps", german),
        case("german-short.csv", "days and months up to 12, with dots", table(sign=";", form="%d.%m.%Y", number=comma, days=months), index=months),
        case("slashes.csv", "days up to 12, with slashes", table(form="%d/%m/%Y", days=months), ("--dayfirst", day_month), index=months),
        case("american.csv", "months first, days up to 12", table(form="%m/%d/%Y", days=pd.date_range("2020-01-01", periods=40, freq="MS")), ("--monthfirst", {"dayfirst": False}), index=pd.date_range("2020-01-01", periods=40, freq="MS")),
        case("american-clear.csv", "months first, days beyond 12, half days", table(form="%m/%d/%Y %I:%M %p", days=pd.date_range("2020-01-30", periods=40, freq="6h")), index=pd.date_range("2020-01-30", periods=40, freq="6h")),
        case("dashes.csv", "dd-mm-yyyy, like an offset of a time zone", table(form="%d-%m-%Y")),
        case("two-digits.csv", "years of two digits", table(form="%d/%m/%y"), ("--dayfirst", day_month)),
        case("month-names.csv", "Jan-18", table(form="%b-%y", days=months), index=months),
        case("months.csv", "year and month in two columns", table(form="%Y,%m", header=("year", "month", "a", "b"), days=months), index=months),
        case("calendar.csv", "year, month, day and hour in four columns", table(form=lambda t: f"{t.year},{t.month},{t.day},{t.hour}", header=("Year", "Month", "Day", "Hour", "a", "b"), days=short), **hours),
        case("doy.csv", "year and day of the year", table(form="%Y,%j", header=("year", "doy", "a", "b"))),
        case("compact.csv", "20200120", table(form="%Y%m%d")),
        case("compact-hours.csv", "2020020113", table(form="%Y%m%d%H", days=short, header=("time", "a", "b")), **hours),
        case("date-time.csv", "date and time of day in two columns", dated, ("--dayfirst", day_month), **hours),
        case("midnight.csv", "24:00", table(form=lambda t: f"{t - pd.Timedelta('1h'):%Y-%m-%d} {(t.hour - 1) % 24 + 1:02d}:00", days=short), **hours),
        case("zoned.csv", "times with an offset", table(form="%Y-%m-%dT%H:%M:%S+01:00", days=short), index=short.tz_localize("+01:00")),
        case("dates-and-times.csv", "midnight without a time of day", table(form=lambda t: str(t).replace(" 00:00:00", ""), days=short), **hours),
        case("mixed-words.csv", "NA, nan, -- and nothing for gaps", iso.replace(",,", ",NA,", 1).replace(",,", ",nan,", 1).replace(",,", ",--,", 1)),
        case("nd.csv", "ND among numbers", iso.replace(",,", ",ND,"), ("--missing ND", {"missing": ["ND"]})),
        case("limits.csv", "values below a limit", iso.replace(",,", ",<5.5,"), ("--missing '<'", {"missing": ["<"]})),
        case("code.csv", "-9999 for what is missing", iso.replace(",,", ",-9999,"), ("--missing -9999", {"missing": ["-9999"]})),
        case("one-code.csv", "-999 once", iso.replace(",,", ",-999,", 1), ("--missing -999", {"missing": ["-999"]})),
        case("units.csv", "units below the header", iso.replace("\n", "\n,mm,°C\n", 1)),
        case("toa5.csv", "a logger's four lines of header", '"TOA5","st1","CR1000","7"\n' + iso.replace("\n", "\nTS,mm,degC\n,Avg,Smp\n", 1)),
        case("preamble.csv", "lines before the header", "Station Bern\nexport of 2021, all\n\n" + iso),
        case("remarks.csv", "remarks before and among the rows", "# Bern\n" + iso.replace("\n2020-02-01", "\n# moved\n2020-02-01")),
        case("remark-header.csv", "a header that is a remark", "# Bern\n#" + iso),
        case("headerless.csv", "no header, times", table(header=None), values={"column 2": A, "column 3": B}),
        case("numbers.csv", "a first line of numbers", "1,2\n3,4\n5,\n7,8\n", ("--no-header", {"header": False}), index=[1, 3, 5, 7], values={"column 2": [2.0, 4, np.nan, 8]}),
        case("footer.csv", "a line of sums", iso + "Total,399.1,805\n", ("--skip-footer 1", {"skip_footer": 1})),
        case("footer-text.csv", "a sentence below the table", iso + "(c) the station\n", ("--skip-footer 1", {"skip_footer": 1})),
        case("trailing.csv", "a comma at the end of every row", iso.replace("\n", ",\n").replace("b,\n", "b\n")),
        case("empty-rows.csv", "empty rows of a spreadsheet", iso + ",,\n,,\n"),
        case("short-row.csv", "one row that is cut", iso.replace(",19.3\n", "\n", 1), ("line ", {"never": True})),
        case("decimal-in-csv.csv", "decimal commas between commas", iso.replace("10.00,23.0", "10,00,23,0"), ("line 2", {"never": True})),
        case("one-more.csv", "a name that is missing", iso.replace("day,a,b", "a,b"), ("--no-header --skip-rows 1", {"header": False, "skip_rows": 1}), values={"column 2": A, "column 3": B}),
        case("one-column.csv", "one column with blank lines", f"flow\n{plain}\n", index=np.arange(40), values={"flow": A}),
        case("one-column-comma.csv", "one column with decimal commas", f"flow\n{plain}\n".replace(".", ","), ("--decimal ,", {"decimal": ","}), index=np.arange(40), values={"flow": A}),
        case("thousands.tsv", "1,200 beside 1.5", big.assign(b="1.5").to_csv(index=False, sep="\t"), **grouped),
        case("thousands.csv", "1,200 in quotes", big.to_csv(index=False), ("--thousands ,", {"thousands": ","}), **grouped),
        case("points.csv", "1.200 between semicolons", big.assign(a=big["a"].str.replace(",", ".")).to_csv(index=False, sep=";"), ("--thousands .", {"thousands": "."}), **grouped),
        case("apostrophes.csv", "1'200", big.assign(a=big["a"].str.replace(",", "'")).to_csv(index=False, sep=";"), **grouped),
        case("names.csv", "identifiers with zeros, words, NA for Namibia", table(header=("day", "a", "b", "id", "land"), more=lambda k: [f"{k:05d}", "NA" if k % 3 else "DE"])),
        case("beyond.csv", "identifiers beyond 2^53", table(header=("day", "a", "b", "id"), more=lambda k: [str(2**53 + 1 + 2 * k)])),
        case("twice.csv", "a name that comes twice", table(header=("day", "a", "a")), values={"a": A, "a (2)": B}),
        case("quotes.csv", "quotes, and a delimiter in a name", table(header=('"the ""day"""', '"a, mm"', '"b"')), values={"a, mm": A, "b": B}),
        case("blanks.dat", "columns apart by blanks", table(sign="   ", gap="NA")),
        case("two-times.csv", "beginning and end of an interval of any length", table(form=lambda t: f"{t:%Y-%m-%d},{t + pd.Timedelta(days=1 + t.day % 3):%Y-%m-%d}", header=("start", "end", "a", "b")), ("--index start", {"index": ["start"]})),
        case("long.csv", "two stations below each other", long, ("--long site,day,level", {"long": ["site", "day", "level"]}), **long_frame),
        case("long-number.csv", "two stations with numbers for names", long.replace("N,", "1,").replace("S,", "2,"), ("--long site,day,level", {"long": ["site", "day", "level"]}), values={"1": A, "2": B}),
        case("broken-quote.csv", "a quote that is not closed", iso.replace("\n2020-02-01,", '\n2020-02-01,"', 1), ("quote", {"never": True})),
    ]  # fmt: skip


def data_files() -> list[Messy]:
    """Those of the data folder: where they begin and end, and how many values and gaps each column has."""
    gauges = ["2021-03-22", "2021-08-08"]
    e = {"G1": (79, 61), "G2": (139, 1), "G3": (137, 3), "count": (119, 21)}
    months, days = ["2018-01-01", "2022-12-01"], ["2020-01-01", "2020-02-29"]
    limits = ("--missing '<'", {"missing": ["<"]})
    day_month = ("--dayfirst", {"dayfirst": True})
    air = {
        "NO2_Mitte": (1171, 270),
        "NO2_Nord": (1240, 201),
        "NO2_Sued": (986, 455),
        "PM10_Mitte": (1349, 92),
        "Temp": (1421, 20),
    }
    thousand = {"sales": (55, 5), "other": (60, 0)}
    return [
        Messy("A_luft.csv", "units, decimal commas, limits, codes, an hour twice", None, [limits, ("--missing '<' -999", {"missing": ["<", "-999"]})], ["2023-10-01", "2023-11-29 23:00"], air),
        Messy("B_logger.csv", "day first, words, marks and limits among numbers", None, [("--missing ND '<'", {"missing": ["ND", "<"]})], ["2024-02-20 00:33", "2024-03-13 00:52"], {"Level_m": (800, 100), "Turb_NTU": (724, 176), "Cond_uS": (800, 100), "DO_mgL": (334, 566)}),
        Messy("E.parquet", "nullable whole numbers, categories", None, [], gauges, e),
        Messy("E.xlsx", "a workbook", None, [], gauges, e),
        Messy("L.csv", "two gauges below each other", None, [("--long station,date,flow", {"long": ["station", "date", "flow"]})], ["2021-04-06", "2021-05-15"], {"G1": (5, 35), "G4": (34, 6)}),
        Messy("bigid.csv", "identifiers beyond 2^53", None, [], [0, 39], {"a": (39, 1)}),
        Messy("blank2.csv", "one column with blank lines, 10.000", None, [("--decimal .", {"decimal": "."})], [0, 59], {"value": (55, 5)}),
        Messy("dup.csv", "a name that comes twice", None, [], [0, 59], {"a": (59, 1), "a (2)": (60, 0)}),
        Messy("euro_dash.csv", "dd-mm-yyyy, days up to 12", None, [day_month], months, {"a": (54, 6), "b": (60, 0)}),
        Messy("euro_monthly.csv", "dd/mm/yyyy, days up to 12", None, [day_month], months, {"a": (54, 6), "b": (60, 0)}),
        Messy("hash.csv", "a header that is a remark", None, [], [0, 39], {"a": (39, 1), "b": (40, 0)}),
        Messy("jitter.csv", "a clock some seconds late", None, [], ["2018-01-01 00:00:04", "2018-01-01 09:50:01"], {"v": (56, 4)}),
        Messy("long2.csv", "two stations with numbers for names", None, [("--long station,time,v", {"long": ["station", "time", "v"]})], ["2018-01-01", "2018-01-30"], {"1": (28, 2), "2": (28, 2)}),
        Messy("quotes.csv", "quotes, and a delimiter in a name", None, [], [0, 59], {'a "x", y': (59, 1), "b": (60, 0)}),
        Messy("text.csv", "NA as a word, identifiers with zeros, truth values", None, [], ["2020-01-01", "2020-01-03 11:00"], {"a": (54, 6)}),
        Messy("thousands.tsv", "1,036 beside 10.00", None, [], days, thousand),
        Messy("thousands_semi.csv", "1,036 beside 1000", None, [("--decimal ,", {"thousands": ","})], days, thousand),
        Messy("total.csv", "a line of sums", None, [("--skip-footer 1", {"skip_footer": 1})], ["2020-01-01", "2020-01-20"], {"a": (19, 1)}),
        Messy("trail.csv", "a comma at the end of every row", None, [], ["2020-01-01", "2020-01-28"], {"a": (38, 2), "b": (40, 0)}),
        Messy("year_month.csv", "year and month in two columns", None, [], months, {"v": (56, 4)}),
        Messy("yyyymmdd.csv", "20180125", None, [], ["2018-01-25", "2018-03-25"], {"v": (56, 4)}),
    ]  # fmt: skip


def checked(messy: Messy, path: Path, out: Path) -> str:
    """What came of a file, in words.

    Raises:
        AssertionError: if it is read as something else, or other bytes than those of gaps change.
    """
    options: dict[str, Any] = {}
    asked = []
    for flag, answer in messy.decides:
        said = refusal(path, options)
        assert flag in said, said
        if "never" in answer:
            return "refused: the file is to be mended"
        asked.append(flag)
        options |= answer
    result = read_table(path, **options)
    check_meaning(messy, result.frame)
    filled = result.frame.fillna(result.frame.bfill().iloc[0])  # each gap with a value of its column
    result.write(filled, out)
    if path.suffix in (".csv", ".tsv", ".txt", ".dat"):
        check_bytes(path.read_bytes(), out.read_bytes(), result)
    again = read_table(out, **options)
    assert filled.equals(again.frame.astype(float)), "what is written is read as something else"
    return f"refused, names `{'`, then `'.join(asked)}`; then read" if asked else "read"


def refusal(path: Path, options: dict[str, Any]) -> str:
    """What a file is refused with on the command line, or nothing."""
    try:
        read_table(path, **options)
    except UnclearError as error:
        return error.flags
    return ""


def check_meaning(messy: Messy, frame: Any) -> None:
    """Refuse a frame that is not what the file means."""
    assert list(frame) == [*messy.values], list(frame)
    if messy.content is None:
        first, last = messy.index
        ends = [type(frame.index[0])(each) for each in (first, last)]
        assert [frame.index.min(), frame.index.max()] == ends, [frame.index.min(), frame.index.max()]
        got = {name: (int(frame[name].notna().sum()), int(frame[name].isna().sum())) for name in frame}
        assert got == messy.values, got
        return
    assert len(frame) == len(messy.index)
    assert (frame.index == messy.index).all(), frame.index
    for name, values in messy.values.items():
        np.testing.assert_array_equal(frame[name], values)


def check_bytes(before: bytes, after: bytes, result: Any) -> None:
    """Refuse other changes than those of lines with gaps."""
    lines = [content.splitlines(keepends=True) for content in (before, after)]
    assert len(lines[0]) == len(lines[1])
    changed = sum(old != new for old, new in zip(*lines, strict=True))
    rows = result.frame.isna().to_numpy()
    assert changed == (
        rows.sum() if result.understood.notes and "series" in result.understood.notes[0] else rows.any(axis=1).sum()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table of all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CGP_DATA"), help="folder with messy files")
    data = parser.parse_args(arguments).data
    files = own_files() + ([] if data is None else data_files())
    wrong = 0
    stream = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        for messy in files:
            path = Path(folder) / messy.name if messy.content is not None else Path(data) / "messy" / messy.name
            if messy.content is not None:
                path.write_bytes(messy.content)
            try:
                came = checked(messy, path, Path(folder) / f"out-{messy.name}")
            except (AssertionError, ValueError, ImportError) as error:
                came, wrong = f"**wrong**: {' '.join(str(error).split())[:200]}", wrong + 1
            stream.write(f"| {messy.name} | {messy.what} | {came} |\n")
    sys.stdout.write("| file | what it is | what comes of it |\n|---|---|---|\n" + stream.getvalue())
    sys.stdout.write(f"\n{len(files)} files, {wrong} wrong\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
