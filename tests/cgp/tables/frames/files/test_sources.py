"""Workbooks and parquet: cells in and out, types and styles kept."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from cgp.tables import read_table
from cgp.tables.frames.files.options import UnclearError
from cgp.tables.frames.files.sources import check_kind, kind_of_file

FRAME = pd.DataFrame(
    {
        "day": pd.date_range("2020-01-30", periods=4),
        "a": [1.5, np.nan, 2.25, 3.0],
        "count": pd.array([1, None, 3, 4], dtype="Int64"),
        "id": ["007", "008", None, "010"],
    }
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "text"),
        ("a.CSV.gz", "text"),
        ("a.dat", "text"),
        ("stdout", "text"),
        ("a.xlsx", "workbook"),
        ("a.pq", "parquet"),
    ],
)
def test_kinds_of_files(name, kind, tmp_path):
    assert kind_of_file(tmp_path / name) == kind


@pytest.mark.parametrize("name", ["a.json", "a.zip", "a.xls", "a.ods", "a.parquet.gz", "a.csv.zip"])
def test_other_kinds_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"expected a table \(.csv, .tsv"):
        check_kind(tmp_path / name)


class TestParquet:
    @pytest.fixture(autouse=True)
    def needs(self):
        pytest.importorskip("pyarrow")

    def test_types_are_kept(self, tmp_path):
        """Whole numbers too, where whole numbers fill them."""
        path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
        FRAME.to_parquet(path)
        table = read_table(path)
        assert list(table.frame) == ["a", "count"]
        table.write(table.frame.assign(a=1.5, count=2.0), out)
        expected = FRAME.assign(a=[1.5, 1.5, 2.25, 3.0], count=pd.array([1, 2, 3, 4], dtype="Int64"))
        pd.testing.assert_frame_equal(pd.read_parquet(out), expected)

    def test_an_index_stays_one(self, tmp_path):
        path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
        FRAME.set_index("day").to_parquet(path)
        table = read_table(path)
        table.write(table.frame.fillna(2.0), out)
        assert pd.read_parquet(out)["a"].tolist() == [1.5, 2.0, 2.25, 3.0]
        assert pd.read_parquet(out).index.equals(pd.read_parquet(path).index)

    def test_rows_are_added(self, tmp_path):
        path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
        FRAME.drop(index=1).to_parquet(path, index=False)
        table = read_table(path, every="1D")
        table.write(table.frame.fillna(2.0), out)
        assert pd.read_parquet(out)["day"].tolist() == FRAME["day"].tolist()
        assert pd.read_parquet(out)["a"].tolist() == [1.5, 2.0, 2.25, 3.0]

    def test_every_row_is_one(self, tmp_path):
        """Also one without a value, at the end."""
        pd.DataFrame({"a": [1.5, np.nan, 2.5, np.nan], "b": [1, 2.5, 3, np.nan]}).to_parquet(tmp_path / "in.parquet")
        assert len(read_table(tmp_path / "in.parquet").frame) == 4

    def test_whole_numbers_beyond_floats_stay(self, tmp_path):
        path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
        numbers = [2**53 + 1 + 2 * k for k in range(4)]
        FRAME.assign(serial=numbers, small=np.float32([-999.9, 1, 2, 3])).to_parquet(path)
        table = read_table(path, missing=["-999.9"])
        assert "serial" in table.understood.left
        assert table.frame["small"].isna().tolist() == [True, False, False, False]
        table.write(table.frame.fillna(2.0), out)
        assert pd.read_parquet(out)["serial"].tolist() == numbers

    def test_a_damaged_file_is_said(self, tmp_path):
        (tmp_path / "in.parquet").write_bytes(b"PAR1")
        with pytest.raises(ValueError, match="expected parquet, got a damaged file"):
            read_table(tmp_path / "in.parquet")


class TestWorkbooks:
    @pytest.fixture(autouse=True)
    def needs(self):
        pytest.importorskip("openpyxl")

    def test_formulas_styles_and_other_sheets_stay(self, tmp_path):
        import openpyxl

        path, out = tmp_path / "in.xlsx", tmp_path / "out.xlsx"
        with pd.ExcelWriter(path, engine="openpyxl") as writer:
            FRAME.to_excel(writer, sheet_name="data", index=False)
            pd.DataFrame({"x": [1]}).to_excel(writer, sheet_name="notes")
        book = openpyxl.load_workbook(path)
        book["data"]["F1"], book["data"]["F2"] = "twice", "=2*B2"
        book["data"]["B3"].font = openpyxl.styles.Font(bold=True)
        book.save(path)
        with pytest.raises(UnclearError, match="it has 2 sheets: say sheet='data' or sheet='notes'"):
            read_table(path)
        table = read_table(path, sheet="data")
        table.write(table.frame.fillna(2.0), out)
        sheet = openpyxl.load_workbook(out)["data"]
        assert (sheet["B3"].value, sheet["B3"].font.bold, sheet["F2"].value) == (2.0, True, "=2*B2")
        assert openpyxl.load_workbook(out)["notes"]["B2"].value == 1
        assert sheet["A2"].value == dt.datetime(2020, 1, 30)
        with pytest.raises(ValueError, match="got 'Data'; did you mean 'data'"):
            read_table(path, sheet="Data")
        with pytest.raises(ValueError, match=r"sheet: expected one of \['data', 'notes'\], got 'x'"):
            read_table(path, sheet="x")

    def saved(self, tmp_path, *texts):
        import openpyxl

        book = openpyxl.Workbook()
        book.active.append(["x", "a", "b"])
        for n, text in enumerate([*texts, 1.25, 3, 1234.5, None, 2.5]):
            book.active.append([n, text, n * n % 7 + 0.5])
        book.save(tmp_path / "in.xlsx")
        return tmp_path / "in.xlsx"

    def test_numbers_that_are_text_have_a_decimal_sign_of_their_own(self, tmp_path):
        path, rest = self.saved(tmp_path, "<0,5", "0,75"), [1.25, 3, 1234.5, np.nan, 2.5]
        table = read_table(path, half_limits=True)
        np.testing.assert_array_equal(table.frame["a"], [0.25, 0.75, *rest])
        np.testing.assert_array_equal(read_table(path, missing="<").frame["a"], [np.nan, 0.75, *rest])
        table.write(table.frame.fillna(2.25), tmp_path / "out.xlsx")
        assert pd.read_excel(tmp_path / "out.xlsx")["a"].tolist() == ["<0,5", "0,75", 1.25, 3, 1234.5, 2.25, 2.5]

    def test_a_comma_in_text_of_a_workbook_is_asked_for(self, tmp_path):
        path, rest = self.saved(tmp_path, "1,234"), [1.25, 3, 1234.5, np.nan, 2.5]
        with pytest.raises(UnclearError, match=r"'1,234', .* is 1234 \(thousands=','\) or 1\.234 \(decimal=','\): say"):
            read_table(path)
        np.testing.assert_array_equal(read_table(path, decimal=",").frame["a"], [1.234, *rest])
        np.testing.assert_array_equal(read_table(path, thousands=",").frame["a"], [1234.0, *rest])
        path = self.saved(tmp_path, "1,234.5")
        np.testing.assert_array_equal(read_table(path).frame["a"], [1234.5, *rest])

    def test_titles_units_and_footers(self, tmp_path):
        import openpyxl

        path, out = tmp_path / "in.xlsx", tmp_path / "out.xlsx"
        book = openpyxl.Workbook()
        rows = [
            ["Bern, 2020"],
            [],
            ["day", "a"],
            [None, "mm"],
            *FRAME[["day", "a"]].to_numpy().tolist(),
            ["Total", 6.75],
        ]
        for row in rows:
            book.active.append([None if each is not None and each != each else each for each in row])
        book.save(path)
        table = read_table(path, skip_footer=1)
        np.testing.assert_array_equal(table.frame["a"], FRAME["a"])
        assert (
            table.understood.header
            == "line 3; left as they are: 1 line before the header, units in line 4, 1 line below the table"
        )
        table.write(table.frame.fillna(2.0), out)
        assert openpyxl.load_workbook(out).active["B6"].value == 2.0

    def test_rows_are_added(self, tmp_path):
        path, out = tmp_path / "in.xlsx", tmp_path / "out.xlsx"
        FRAME.drop(index=[1, 2]).to_excel(path, index=False)
        table = read_table(path, every="1D")
        table.write(table.frame.fillna(2.0), out)
        written = pd.read_excel(out)
        assert written["day"].tolist() == FRAME["day"].tolist()
        assert written["a"].tolist() == [1.5, 2.0, 2.0, 3.0]

    @pytest.mark.parametrize("ending", [".xlsx", ".parquet"])
    @pytest.mark.parametrize("clock", ["%H:%M", "%H:%M:%S", None])
    def test_dates_beside_times_of_day_are_read_and_added(self, clock, ending, tmp_path):
        """Cells that are dates have midnight for a time; those of times of day are text, or times."""
        import openpyxl

        pytest.importorskip("pyarrow")
        path, out = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
        times = pd.date_range("2024-01-13", periods=60, freq="h").as_unit("us")
        clocks = [*(times.time if clock is None else times.strftime(clock))]
        frame = pd.DataFrame({"Date": times.normalize(), "Time": clocks, "a": np.arange(60) + 0.5})
        given = frame.drop(index=[30, 31])
        if ending == ".parquet":
            given.to_parquet(path, index=False)
        else:  # pandas writes times of day as text
            book = openpyxl.Workbook()
            for row in ([*given], *given.itertuples(index=False)):
                book.active.append([*row])
            book.save(path)
        for options in ({}, {"index": ["Date", "Time"]}):
            table = read_table(path, every="1h", **options)
            assert (table.frame.index == times).all()
            table.write(table.frame.interpolate(), out)
            written = pd.read_excel(out) if ending == ".xlsx" else pd.read_parquet(out)
            pd.testing.assert_frame_equal(written, frame, check_dtype=False)

    def test_a_damaged_or_an_empty_one_is_said(self, tmp_path):
        import openpyxl

        path = tmp_path / "in.xlsx"
        path.write_bytes(b"PK")
        with pytest.raises(ValueError, match="expected a workbook, got a damaged file"):
            read_table(path)
        openpyxl.Workbook().save(path)
        with pytest.raises(ValueError, match="expected a table, got an empty workbook"):
            read_table(path)


@pytest.mark.parametrize("ending", [".parquet", ".xlsx", ".csv"])
@pytest.mark.parametrize("start", [".csv", ".parquet", ".xlsx"])
def test_a_file_is_written_as_its_own_kind_only(start, ending, tmp_path):
    """Times as times, numbers as numbers, words as they are; further rows in their places."""
    for each in {start, ending} & {".parquet", ".xlsx"}:
        pytest.importorskip({".parquet": "pyarrow", ".xlsx": "openpyxl"}[each])
    frame, path, out = FRAME.drop(columns="count"), tmp_path / f"in{start}", tmp_path / f"out{ending}"
    write = {".csv": frame.to_csv, ".parquet": frame.to_parquet, ".xlsx": frame.to_excel}[start]
    frame = frame.drop(index=2)
    getattr(frame, write.__name__)(path, index=False)
    table = read_table(path, every="1D")
    if start != ending:
        with pytest.raises(ValueError, match=f"expected a place that ends in {start}, as in{start} is "):
            table.write(table.frame.fillna(2.0), out)
        return
    table.write(table.frame.fillna(2.0), out)
    again = read_table(out)
    assert again.frame["a"].tolist() == [1.5, 2.0, 2.0, 3.0]
    assert [*again.frame.index] == [*FRAME["day"]]
    assert "id" in again.understood.left
