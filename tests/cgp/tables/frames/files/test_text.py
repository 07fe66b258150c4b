"""Text files: what was read is written with the same bytes, and in pieces joined again it is the same text."""

import bz2
import codecs
import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgp.tables.frames.files.options import UnclearError
from cgp.tables.frames.files.text import ONE_COLUMN, packed, read_text, split

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
    assert split("x" * 99, ",").shown(0) == f"line 1, {'x' * 60 + '…'!r}"


@pytest.mark.parametrize(("raw", "content"), [(' "a ""b""" ', 'a "b"'), (" 1.5", "1.5"), ('"', '"'), ('" x "', "x")])
def test_contents_are_without_quotes_and_blanks(raw, content):
    assert split(raw, ";").fields(0) == [content]


@pytest.mark.parametrize(
    ("content", "encoding", "mark"),
    [
        (b"a,b\n", "utf-8", b""),
        ("a,µ\n".encode(), "utf-8", b""),
        (codecs.BOM_UTF8 + b"a,b\n", "utf-8", codecs.BOM_UTF8),
        (codecs.BOM_UTF16_LE + "a,µ\n".encode("utf-16-le"), "utf-16-le", codecs.BOM_UTF16_LE),
        (codecs.BOM_UTF16_BE + "a,µ\n".encode("utf-16-be"), "utf-16-be", codecs.BOM_UTF16_BE),
        ("a,µg/m³\n".encode("cp1252"), "cp1252", b""),
    ],
)
def test_an_encoding_is_found_and_kept(content, encoding, mark, tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    read = read_text(path)
    assert (read.encoding, read.mark) == (encoding, mark)
    assert read.encoded(read.text) == content


def test_an_encoding_is_named(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes("имя\n".encode("cp1251"))
    assert read_text(path, "cp1251").text == "имя\n"
    path.write_bytes(b"\x81\x8d\n")
    with pytest.raises(UnclearError, match="expected text in utf-8 or cp1252, got other bytes: name the encoding="):
        read_text(path)
    path.write_bytes("Süd\n".encode("cp1252"))
    with pytest.raises(UnclearError, match="expected text in utf-8, got other bytes: name the encoding='cp1252' it"):
        read_text(path, "utf-8")
    with pytest.raises(ValueError, match="encoding: expected a name such as utf-8 or cp1252, got 'x'"):
        read_text(path, "x")


@pytest.mark.parametrize(("ending", "module"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma)])
def test_compressed_files_are_read_and_written(ending, module, tmp_path):
    path = tmp_path / f"in.csv{ending}"
    path.write_bytes(module.compress(b"a,b\n"))
    assert read_text(path).text == "a,b\n"
    assert module.decompress(packed(b"x", path)) == b"x"
    path.write_bytes(module.compress(b"a,b\n" * 99)[:-9])
    with pytest.raises(ValueError, match="expected a compressed table, got a damaged file"):
        read_text(path)
    path.write_bytes(b"a,b\n")
    with pytest.raises(
        ValueError, match=r"expected a compressed table, got one that is not: rename it in\.csv, or compress"
    ):
        read_text(path)


@pytest.mark.parametrize(("content", "got"), [(b"", "an empty file"), (b" \n", "an empty file"), (b"a\0b", "no text")])
def test_what_is_no_text_is_refused(content, got, tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=got):
        read_text(path)
    assert packed(b"x", path) == b"x"
