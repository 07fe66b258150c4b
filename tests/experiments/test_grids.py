"""Escaped names, dropped columns, Markdown and CSV."""

import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.grids import Cell, Fitted, Grid, as_markdown, escape, write_csv

HOSTILE = [
    *("=1+0.png", "+1", "-1", "@sum", "a|b", "<script>alert(1)</script>"),
    *("line\nbreak", "\u202egnp.exe", "a\x1b[2Jb", "\r\t"),
]
FORMATS = ("terminal", "markdown", "csv", "html")


@given(st.text(max_size=40) | st.sampled_from(HOSTILE), st.sampled_from(FORMATS))
def test_any_name_stays_on_one_line_and_visible(name, to):
    text = escape(name, to)
    assert all(unicodedata.category(letter)[0] != "C" for letter in text)
    assert not set(text) & {"\u2028", "\u2029"}
    assert len(text.splitlines()) <= 1


def test_plain_names_are_left_alone():
    for to in FORMATS:
        assert escape("CGP, direct (α = 0.7) 5 %", to) == "CGP, direct (α = 0.7) 5 %"


def test_csv_never_begins_a_formula(tmp_path):
    write_csv(tmp_path / "rows.csv", [*({"file": name, "loss": -0.5} for name in HOSTILE), {"file": "b", "extra": 1}])
    with (tmp_path / "rows.csv").open(newline="") as file:
        *rows, last = csv.DictReader(file)
    assert len(rows) == len(HOSTILE)
    assert all(row["file"][0] not in "=+-@" and row["loss"] == "-0.5" for row in rows)
    assert (last["loss"], last["extra"]) == ("", "1")


def test_markdown_keeps_its_columns_and_holds_no_markup():
    grid = Grid(["", "x"], [[Cell(name), Cell("1", best=True)] for name in HOSTILE])
    lines = as_markdown(grid).splitlines()
    assert len(lines) == 2 + len(HOSTILE)
    assert {line.replace("\\|", "").count("|") for line in lines} == {3}
    assert "<script>" not in as_markdown(grid)
    assert lines[2].endswith("| **1** |")


def printed(grid, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(Fitted(grid, more="in the file"))
    return console.file.getvalue()


GRID = Grid(
    ["", "NLL", "ECE", "Brier"],
    [[Cell("a long name of a method"), Cell("0.123 ± 0.004"), Cell("1.2 ± 0.3"), Cell("0.456 ± 0.007")]],
    title="Numbers",
)


@pytest.mark.parametrize(("width", "columns"), [(80, 4), (60, 3), (45, 2), (20, 2)])
def test_columns_drop_before_digits(width, columns):
    text = printed(GRID, width)
    numbers = ["0.123 ± 0.004", "1.2 ± 0.3", "0.456 ± 0.007"]
    joined = " ".join(text.split())
    assert [number in joined for number in numbers] == [place < columns - 1 for place in range(3)] or width == 20
    assert ("Not shown at" in text) == (columns < 4)
    assert all(len(line) <= width for line in text.splitlines())
