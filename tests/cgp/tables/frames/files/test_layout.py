"""Lines of a file: which hold names, units and rows, and which are left as they are."""

from io import StringIO

import pandas as pd
import pytest

from cgp.tables.frames.files.layout import cells_of, delimited, layout_of
from cgp.tables.frames.files.options import ReadOptions, UnclearError

ROWS = "2020-01-30,1.5,2\n2020-01-31,,3\n2020-02-01,2.5,4\n2020-02-02,2.5,5\n"


def layout(text, **options):
    known = ReadOptions(**options)
    return layout_of(delimited(text, known), known)


@pytest.mark.parametrize(
    ("before", "names", "header", "left"),
    [
        ("t,a,b\n", ["t", "a", "b"], 0, []),
        ("Bern\n\nt,a,b\n", ["t", "a", "b"], 2, ["1 line before the header"]),
        ("Bern,CH\nt,a,b\n", ["t", "a", "b"], 1, ["1 line before the header"]),
        ("Bern,,\nt,a,b\n", ["t", "a", "b"], 1, ["1 line before the header"]),
        ("# Bern\n# moved\nt,a,b\n", ["t", "a", "b"], 2, ["2 lines before the header"]),
        ("# Bern\n# t,a,b\n", ["t", "a", "b"], 1, ["1 line before the header"]),
        ("#t,a,b\n", ["t", "a", "b"], 0, []),
        ("t,a,b\n,mm,°C\n", ["t", "a", "b"], 0, ["units in line 2"]),
        ("t,a,b\nUTC,mm,°C\n,avg,avg\n", ["t", "a", "b"], 0, ["units in line 2, 3"]),
        (",2019,2020\n", ["unnamed 1", "2019", "2020"], None, []),
        (",0,1\n", ["unnamed 1", "0", "1"], 0, []),
        ("day,2019,2020\n", ["day", "2019", "2020"], 0, []),
        ("", ["column 1", "column 2", "column 3"], None, []),
        ("t,,b\n", ["t", "unnamed 2", "b"], 0, []),
        ("t,a,a\n", ["t", "a", "a (2)"], 0, []),
    ],
)
def test_a_header_is_found(before, names, header, left):
    if before == ",2019,2020\n":
        with pytest.raises(UnclearError, match="may hold names or values: say header=True or header=False"):
            layout(before + ROWS)
        assert layout(before + ROWS, header=True).names == names
        return
    found = layout(before + ROWS)
    assert (found.names, found.header, found.left) == (names, header, left)
    assert len(found.rows) == 4


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("1,2\n3,4\n", "line 1, '1,2', may hold names or values: say --header or --no-header"),
        ("x,1,2\ny,3,4\nz,5,6\n", "may hold names or values"),
        ("0,ND,5\n1,2,3\n2,3,4\n", "may hold names or values"),
        ("a,b\n" + ROWS, "line 1 names 2 columns, the rows below it have 3 fields"),
        ("a,b\n" + ROWS, "--no-header --skip-rows 1"),
        ("t,a,b,c\n" + ROWS, "line 1 names 4 columns, the rows below it have 3 fields"),
        ("t,a,b\n" + ROWS + "sum,3\n", "line 6, 'sum,3', has 2 fields, the rows above it have 3: say --skip-footer 1"),
        ("t,a,b\n" + ROWS + "sum,3\n(c) Bern\n", "--skip-footer 2"),
        ("t,a,b\n" + ROWS.replace(",,", ",", 1), "line 3, '2020-01-31,3', has 2 fields, the others have 3"),
        ("t,a,b\n" + ROWS.replace(",2\n", ",2,5\n", 1), "line 2, '2020-01-30,1.5,2,5', has 4 fields"),
        ("site,b,c\ndate,a,b\n" + ROWS, "line 2, 'date,a,b', may hold names or units: say --skip-rows 1"),
        ("flow\n1\n2\n\n\n", "the last 2 lines are blank: say --skip-footer 2"),
        ("flow\n1,5\n2,5\n3,5\n", "is a number with a decimal comma (--decimal ,) or two fields (--delimiter ,)"),
        ("a,b\n", "expected a table with rows below a header, got none"),
        ("# a\nb\n", "expected a table with rows below a header, got none"),
        ("t;a|b\n1;2|3\n2;3|4\n", "its lines have 2 columns (--delimiter ';') or 2 columns (--delimiter '|')"),
    ],
)
def test_what_may_be_two_things_is_refused(text, flags):
    with pytest.raises(UnclearError) as refused:
        layout(text)
    assert flags in refused.value.flags


def test_options_decide():
    assert layout("1,2\n3,4\n", header=False).names == ["column 1", "column 2"]
    assert layout("1,2\n3,4\n", header=True).names == ["1", "2"]
    assert layout("x,1,2\nt,a,b\n" + ROWS, skip_rows=1).names == ["t", "a", "b"]
    assert len(layout("t,a,b\n" + ROWS, skip_footer=2).rows) == 2
    assert layout("t,a,b\n" + ROWS, units_row=True).units == [1]
    assert layout("t,a,b\n,mm,K\n" + ROWS, units_row=False).units == []
    assert layout("flow\n1\n\n", skip_footer=0).rows == [1, 2]
    assert layout("flow\n1\n\n", skip_footer=1).rows == [1]
    assert layout("t,a,b\n%x\n" + ROWS, comment="%").left == ["1 line of remarks below it"]
    assert layout("#t,a,b\n" + ROWS, comment="").names[0] == "t"


def test_a_sign_that_ends_every_line_ends_no_column():
    for text in ("t,a,b\n" + ROWS.replace("\n", ",\n"), ("t,a,b\n" + ROWS).replace("\n", ",\n")):
        assert layout(text).names == ["t", "a", "b"]
    assert layout("t,a,b,\n" + ROWS).names == ["t", "a", "b"]


def test_blank_lines_are_rows_of_one_column_only():
    assert layout("flow\n1\n\n2\n").rows == [1, 2, 3]
    assert layout("\nflow\n1\n2\n").header == 1
    found = layout("t,a,b\n\n" + ROWS + "\n\n")
    assert (len(found.rows), found.left) == (4, ["3 blank lines"])


def test_marks_of_most_lines_are_no_remarks():
    assert len(layout("id,a\n#1,2\n#2,3\n#3,4\n").rows) == 3
    assert layout("id,a\n1,2\n#2,3\n4,4\n").left == ["1 line of remarks below it"]


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_delimiters_are_found(sign):
    text = ("t,a,b\n" + ROWS).replace(",", sign)
    assert delimited(text, ReadOptions()).delimiter == sign
    assert delimited(text.replace("1.5", "1,5").replace("2.5", "2,5"), ReadOptions()).delimiter == sign or sign == ","


def test_blanks_are_between_fields_where_nothing_else_is():
    assert delimited("t a\n1  2\n2  3\n", ReadOptions()).delimiter == " "
    assert delimited("flow\n1\n2\n", ReadOptions()).records == [["flow"], ["1"], ["2"]]
    assert delimited("a;b\n1;2\n", ReadOptions(delimiter=",")).records[0] == ["a;b"]


def test_cells_are_those_of_pandas():
    text = 't,"a ""x""",b\n1, 2 ,"x, y"\n2,NA,\n3,5" pipe,"2\n4"\n'
    known = ReadOptions(header=True)
    grid = delimited(text, known)
    cells = cells_of(grid, layout_of(grid, known))
    theirs = pd.read_csv(StringIO(text), dtype="str", keep_default_na=False, na_filter=False)
    pd.testing.assert_frame_equal(cells, theirs.apply(lambda column: column.str.strip()))


@pytest.mark.parametrize("broken", ['t,a\n1,"2\n3,4\n', 't,a\n1,2\n3,"x"y"\n', 't,a\n1, "2,5"\n2,3\n'])
def test_broken_quotes_are_refused(broken):
    with pytest.raises(UnclearError, match="quote"):
        layout(broken, header=True, delimiter=",")
