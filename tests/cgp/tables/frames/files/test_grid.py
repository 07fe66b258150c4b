"""Text in pieces: joined again it is the same text, whatever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgp.tables.frames.files.grid import ONE_COLUMN, split, unquoted

TEXTS = st.text(st.sampled_from('ab"1,; \t\n\r|'), max_size=30)


@given(TEXTS, st.sampled_from([",", ";", "\t", "|", " ", ONE_COLUMN]))
def test_a_split_text_is_the_same_once_it_is_joined(text, delimiter):
    grid = split(text, delimiter)
    assert grid.joined() == text
    assert len(grid.records) == len(grid.ends)
    assert all(grid.records)


@pytest.mark.parametrize(
    ("text", "delimiter", "records"),
    [
        ("a,b\n1,\n", ",", [["a", "b"], ["1", ""]]),
        ("a,b\r\n1,", ",", [["a", "b"], ["1", ""]]),
        ('a,"b\nc",d\n"",2\n', ",", [["a", '"b\nc"', "d"], ['""', "2"]]),
        ('"a"\n\n"b"\n', ";", [['"a"'], [""], ['"b"']]),
        ("  a  b \n c\td\n", " ", [["  a", "  b"], [" c", "\td"]]),
        ("a\n\n\nb\n", ONE_COLUMN, [["a"], [""], [""], ["b"]]),
        ("a\u2028b\x0cc\n", ",", [["a\u2028b\x0cc"]]),
    ],
)
def test_records_end_at_line_ends_outside_of_quotes(text, delimiter, records):
    assert split(text, delimiter).records == records


def test_fields_are_replaced_and_lines_added():
    """With the line end of the text, before its first line and after a last one without an end as well."""
    grid = split("a;b\r\n1;2\r\n3;4", ";")
    assert grid.joined({(1, 1): "x", (2, 0): "y"}) == "a;b\r\n1;x\r\ny;4"
    assert grid.joined({}, {-1: ["0"], 0: ["p", "q"], 2: ["r", "s"]}) == "0\r\na;b\r\np\r\nq\r\n1;2\r\n3;4\r\nr\r\ns"
    assert split("a", ",").joined({}, {0: ["b"]}) == "a\nb"


def test_lines_are_counted_with_those_in_quotes():
    grid = split('a,"b\nc"\n1,2\n', ",")
    assert [grid.line(0), grid.line(1)] == [1, 3]
    assert grid.fields(0) == ["a", "b\nc"]
    assert grid.width(1) == 2
    assert split("x" * 99, ",").shown(0) == repr("x" * 60 + "…")


def test_contents_are_without_quotes_and_blanks():
    assert [unquoted(raw) for raw in (' "a ""b""" ', " 1.5", '"', '" x "')] == ['a "b"', "1.5", '"', "x"]
