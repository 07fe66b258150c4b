"""The command line: what it reads, fills and writes, and what it refuses before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cgp import __version__, commands
from cgp.commands.columns import usable_columns
from cgp.commands.files import read_file
from cgp.regression.solvers.choice import Cost

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from cgp.tables import imputer

    original = imputer.CorrelatedGPImputer._regressor
    quickly = {"max_steps": 5, "structure": "coregionalised", "inference": "map"}
    monkeypatch.setattr(imputer.CorrelatedGPImputer, "_regressor", lambda self: original(self).set_params(**quickly))


def readings(rows=30):
    t = np.arange(rows) / 5.0
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=rows, freq="h").astype(str)})
    table = table.assign(site="A", warm=np.sin(t), wet=np.cos(t), count=np.arange(rows), dead=np.nan)
    table.loc[5:8, "warm"] = table.loc[12:14, "wet"] = np.nan
    return table


def run(path, *arguments):
    return commands.main(["fill", str(path), "--out", str(path.with_name("out.csv")), *map(str, arguments)])


def test_a_file_is_filled(tmp_path, capsys):
    """What was observed, text, and columns without a value stay as they were; standard deviations and a picture."""
    path, table = tmp_path / "in.csv", readings()
    table.to_csv(path, index=False)
    assert run(path, "--std", tmp_path / "std.csv", "--picture", tmp_path / "gaps.png") == 0
    filled, std = pd.read_csv(tmp_path / "out.csv"), pd.read_csv(tmp_path / "std.csv")
    assert list(filled) == list(table)
    pd.testing.assert_frame_equal(filled.where(table.notna()), table)
    assert not filled.drop(columns="dead").isna().any().any()
    assert ((std[["warm", "wet"]] > 0) == table[["warm", "wet"]].isna()).all().all()
    assert (tmp_path / "gaps.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().err
    assert "30 rows, 3 columns, 7 values missing; rows are known by 'when'" in said
    assert "left as they are: ['site', 'dead'] (no numbers)" in said
    assert "filled 7 values of 3 columns" in said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gaps.png", "in.csv", "out.csv", "std.csv"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"sep": ";", "decimal": ","}, "known by 'when'"),
        ({"sep": "\t"}, "known by 'when'"),
        ({"columns": ["warm", "wet"]}, "taken in their order"),
        ({"columns": ["warm", "wet"], "index": True}, "known by 'Unnamed: 0'"),
        ({"columns": ["count", "warm", "wet"]}, "taken in their order"),
    ],
)
def test_forms_and_indices_are_recognised(form, expected, tmp_path, capsys):
    """And what is written has the separator and the decimal sign of what was read."""
    readings().to_csv(tmp_path / "in.csv", **{"index": False} | form)
    assert run(tmp_path / "in.csv") == 0
    assert expected in capsys.readouterr().err
    written = {name: form[name] for name in ("sep", "decimal") if name in form}
    filled = pd.read_csv(tmp_path / "out.csv", **written)
    assert (filled[["warm", "wet"]].abs() < 5).all().all()


def test_a_time_of_day_is_no_index():
    table = readings().assign(when=[f"{hour % 6:02d}:00" for hour in range(30)])
    assert usable_columns(table, None, None, []).inputs == []
    assert usable_columns(readings(), None, None, []).inputs == ["when"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: {"Date": t.strftime("%d/%m/%Y"), "Time": t.strftime("%H:%M")}, ["Date Time"]),
        (lambda t: {"Date": t.strftime("%m/%d/%Y"), "Time": t.strftime("%H.%M.%S")}, ["Date Time"]),
        (lambda t: {"day": t.strftime("%Y-%m-%d"), "hr": t.hour}, ["day hr"]),
        (lambda t: {"Year": t.year, "Month": t.month, "Day": t.day, "Hour": t.hour}, ["Year Month Day Hour"]),
        (lambda t: {"no": np.arange(len(t)), "when": t.strftime("%d.%m.%Y %H:%M")}, ["when"]),
    ],
)
def test_times_in_several_columns_are_joined(change, expected):
    """The thirteenth cannot be a month, and rows that go on in one reading only are meant so."""
    times = pd.date_range("2024-01-30", periods=72, freq="h")
    table = pd.DataFrame(change(times)).assign(a=np.where(np.arange(72) % 5, 1.0, np.nan))
    columns = usable_columns(table)
    assert columns.inputs == expected
    pd.testing.assert_series_equal(columns.frame[expected[0]], pd.Series(times), check_names=False, check_dtype=False)
    assert [name for name in columns.frame if name not in expected] == [each for each in ("no", "a") if each in table]
    pd.testing.assert_frame_equal(columns.source, table)
    if len(expected[0].split()) == 2:
        assert usable_columns(table, index=expected[0].split()).inputs == expected


def test_numbers_beside_dates_are_no_times_of_day():
    """12.25 is a reading, and 12:75 no time."""
    dates = pd.date_range("2024-01-01", periods=12).repeat(2).strftime("%Y-%m-%d")
    level = np.arange(24) + np.tile([0.25, 0.31], 12)
    table = pd.DataFrame({"day": dates, "level": level, "a": np.where(np.arange(24) % 5, 1.0, np.nan)})
    assert usable_columns(table).inputs == ["day"]
    assert usable_columns(table.assign(level=[f"{hour}:75" for hour in range(24)])).inputs == ["day"]


def test_places_are_inputs_where_there_are_no_times():
    table = pd.DataFrame({"Lat": [46.9, 47.4, 46.2], "Lon": [7.4, 8.5, 6.1], "a": [1.0, np.nan, 2.0]})
    assert usable_columns(table).inputs == ["Lat", "Lon"]
    assert usable_columns(table.assign(when=["2024-01-01", "2024-01-02", "2024-01-03"])).inputs == ["when"]
    assert usable_columns(table.assign(Lon=[7.4, np.nan, 6.1])).inputs == []
    assert usable_columns(table.rename(columns={"Lat": "Y", "Lon": "X"})).inputs == ["X", "Y"]


def test_marks_stand_for_what_is_missing_and_words_do_not():
    table = readings().assign(
        warm=lambda t: t["warm"].astype(object).where(t["warm"].notna(), " - ").astype(str), note="off"
    )
    columns = usable_columns(table.assign(mixed=table["count"].astype(str).where(table["count"] > 2, "off")))
    assert columns.gaps == 7
    assert "taken for missing: '-' in 'warm'" in columns.notes
    assert "left as they are: ['site', 'dead', 'note', 'mixed'] (no numbers)" in columns.notes
    np.testing.assert_array_equal(columns.frame["warm"], readings()["warm"])


@pytest.mark.parametrize("mark", ["-", "---"])
def test_marks_stand_beside_decimal_commas(mark, tmp_path):
    path = tmp_path / "in.csv"
    readings().drop(columns="dead").to_csv(path, index=False, sep=";", decimal=",", na_rep=mark)
    columns = usable_columns(read_file(path))
    assert columns.gaps == 7
    np.testing.assert_array_equal(columns.frame["warm"], readings()["warm"])


def test_rows_that_are_not_there_are_added():
    """Every observed value stays in its row, times of other distances too; without the option they are counted."""
    table = readings().drop(columns="dead").ffill().drop(index=[7, 8, 20])
    with pytest.raises(ValueError, match="but 3 rows are not there, which --every adds"):
        usable_columns(table)
    table.attrs["sep"] = ";"
    columns = usable_columns(table, every="1h")
    assert columns.source.attrs == table.attrs
    assert (columns.gaps, len(columns.source)) == (9, 30)
    known = columns.source.dropna()
    np.testing.assert_array_equal(known[["warm", "wet", "count"]], table[["warm", "wet", "count"]])
    np.testing.assert_array_equal(known["when"], pd.to_datetime(table["when"]))
    for arguments, message in (
        ({"index": ["count"], "every": "1h"}, r"--every: expected rows that are known by times, got \['count'\]"),
        ({"every": "soon"}, "--every: expected a duration such as 1h, 15min or 1D, got 'soon'"),
    ):
        with pytest.raises(ValueError, match=message):
            usable_columns(table, **arguments)


@pytest.mark.parametrize("form", ["plain", "remarks", "gz", "xz", "bz2", "points", "degrees"])
def test_forms_of_files_are_read(form, tmp_path):
    """Lines before the header, compression, names with commas beside decimal points, and Windows' degree signs."""
    ending = f".{form}" if form in ("gz", "xz", "bz2") else ""
    table, path = readings(), tmp_path / f"in.csv{ending}"
    if form == "points":
        table = table.assign(site="Bern, CH").drop(columns="dead")
        table.to_csv(path, index=False, sep=";")
    elif form == "degrees":
        table = table.rename(columns={"warm": "°C"})
        table.to_csv(path, index=False, encoding="cp1252")
    else:
        path.touch()
        table.to_csv(path, index=False)
        if form == "remarks":
            path.write_text(f"# a station\n# its file, of 2024; 1,5\n{path.read_text()}")
    pd.testing.assert_frame_equal(read_file(path), table)


def test_filled_values_are_as_precise_as_observed_ones(tmp_path):
    """One decimal more, small and large numbers alike; what was observed is as it was."""
    path, table = tmp_path / "in.csv", readings().drop(columns="dead")
    table["warm"], table["wet"] = table["warm"].round(2), (1e-6 * table["wet"]).round(9)
    table.to_csv(path, index=False)
    assert run(path) == 0
    filled = pd.read_csv(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(filled.where(table.notna()), table)
    for name, decimals in (("warm", 3), ("wet", 10)):
        new = filled[name][table[name].isna()]
        np.testing.assert_allclose(new, new.round(decimals), rtol=1e-12)
        assert (new != new.round(decimals - 2)).any()


def test_what_is_written_is_compressed_as_it_says(tmp_path):
    path = tmp_path / "in.csv.gz"
    readings().to_csv(path, index=False)
    assert run(path, "--out", tmp_path / "out.csv.gz") == 0
    assert (tmp_path / "out.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    assert not read_file(tmp_path / "out.csv.gz")[["warm", "wet"]].isna().any().any()


def test_parquet_in_and_out(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "in.parquet"
    table = readings().assign(when=lambda t: pd.to_datetime(t["when"])).set_index("when")
    table.to_parquet(path)
    assert run(path, "--out", tmp_path / "out.pq") == 0
    filled = pd.read_parquet(tmp_path / "out.pq")
    pd.testing.assert_frame_equal(filled.where(table.reset_index().notna()), table.reset_index())
    assert not filled[["warm", "wet"]].isna().any().any()


def test_parquet_says_what_it_needs(tmp_path, monkeypatch, capsys):
    """Before anything is read or fitted."""
    readings().to_csv(tmp_path / "in.csv", index=False)
    monkeypatch.setattr("cgp.commands.files.find_spec", lambda name: None)
    assert run(tmp_path / "in.csv", "--std", tmp_path / "std.parquet") == 1
    assert "parquet needs pyarrow: pip install pyarrow" in capsys.readouterr().err
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    assert run(tmp_path / "in.parquet", "--out", tmp_path / "out.csv") == 1
    assert "in.parquet: parquet needs pyarrow: pip install pyarrow" in capsys.readouterr().err


def test_an_index_inputs_and_codes_are_named(tmp_path, capsys):
    path = tmp_path / "in.csv"
    readings().fillna({"warm": -200.0}).to_csv(path, index=False)
    assert run(path, "--index", "count", "--missing", -200, -999) == 0
    assert "7 values missing; rows are known by 'count'" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "out.csv")["warm"].min() > -10
    assert run(path, "--inputs", "count", "when", "--missing", "-200") == 0
    assert "known by 'count', 'when'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, [], "no such file"),
        (b"", [], "expected a table, csv or parquet: it is empty"),
        (b"\x89PNG\x00\xff", [], "expected a table, csv or parquet"),
        (b"a,b\n", [], "expected a table with rows below a header, got 0 rows"),
        (b"a,b\n1,2\n3,4\n", [], "expected gaps in columns of numbers, ['a', 'b'], got none"),
        (b"a,b\nx,1 mm\ny,2 mm\n", [], "expected a column of numbers, got none: 'a' with 'x', 'b' with '1 mm'"),
        (b"a,b\n1,\n3,4\n", ["--index", "c"], "expected columns of the table, ['a', 'b'], got ['c']"),
        (b"a,b\n1,\n3,4\n", ["--out", "/nowhere/x.csv"], "no folder /nowhere"),
        (b"a,b\n1,\n3,4\n", ["--out", "x.xlsx"], "expected csv or parquet, got a spreadsheet: save it as csv"),
        (b"a,b\n1,\n3,4\n", ["--picture", "gaps.doc"], "expected a picture, .png, .pdf, .svg, .jpg, got '.doc'"),
    ],
)
def test_what_cannot_be_filled_is_said_in_a_line(content, arguments, message, tmp_path):
    """And torch is not imported for it."""
    path = tmp_path / "in.csv"
    if content is not None:
        path.write_bytes(content)
    script = "import sys; from cgp.commands import main; code = main(sys.argv[1:]); print(code, 'torch' in sys.modules)"
    command = [sys.executable, "-c", script, "fill", str(path), "--out", str(tmp_path / "x.csv"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "1 False\n"
    assert done.stderr.startswith("cgp fill: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x.csv").exists()


def test_nothing_is_half_written(tmp_path, monkeypatch):
    path = tmp_path / "in.csv"
    readings().to_csv(path, index=False)
    (tmp_path / "out.csv").write_text("before")

    def broken(self, file, **_):
        Path(file).write_text("half")
        raise OSError("the disk is full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", broken)
    assert run(path) == 1
    assert (tmp_path / "out.csv").read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_without_a_command_there_is_help(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main([])
    assert ended.value.code == 0
    assert "cgp fill readings.csv --out filled.csv" in capsys.readouterr().out


def test_help_and_version_need_nothing_heavy():
    script = "import sys, runpy; sys.argv = ['cgp', {!r}]; runpy.run_module('cgp', run_name='__main__')"
    probe = "try:\n exec({0!r})\nexcept SystemExit:\n print(*{{'torch', 'pandas', 'numpy'}} & set(sys.modules))"
    for argument, first in (("--help", "usage: cgp"), ("version", f"cgp {__version__}")):
        code = "import sys\n" + probe.format(script.format(argument))
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.stdout.startswith(first), done.stderr
        assert done.stdout.splitlines()[-1] == ""


def test_the_referee_fills_with_what_it_recommends(tmp_path, capsys, monkeypatch):
    """Two columns that are alike, each with gaps of its own: the other column says what is missing, lines do not.

    The seconds of five processes in three maskings, and of the fit at the end, are said beforehand.
    """
    monkeypatch.setattr("cgp.regression.CorrelatedGPRegressor.estimate", lambda *_: Cost(7.0, 1.0))
    path, rng = tmp_path / "in.csv", np.random.default_rng(0)
    values = rng.normal(size=80)
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=80, freq="h"), "a": values})
    table["b"] = values + 0.1 * rng.normal(size=80)
    table.loc[::7, "a"] = table.loc[3::7, "b"] = np.nan
    table.to_csv(path, index=False)
    pictures = [tmp_path / "gaps.png", tmp_path / "scores.png"]
    assert run(path, "--std", tmp_path / "std.csv", "--picture", pictures[0], "--assess", pictures[1]) == 0
    printed = capsys.readouterr()
    assert "about 112 s on one core" in printed.err
    *report, sentence = printed.out.splitlines()
    assert any(line.startswith("ridge on the other columns") for line in report)
    assert sentence.startswith("Use ")
    assert "linear interpolation by" in sentence
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["a"], values, atol=0.5)
    assert (pd.read_csv(tmp_path / "std.csv")["a"][::7].between(0.02, 0.4)).all()
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
