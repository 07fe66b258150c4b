"""Bytes and text: what was read is written with the same bytes."""

import bz2
import codecs
import gzip
import lzma

import pytest

from cgp.tables.frames.files.encoded import packed, read_text
from cgp.tables.frames.files.hints import UnclearError


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


@pytest.mark.parametrize(("content", "got"), [(b"", "an empty file"), (b" \n", "an empty file"), (b"a\0b", "no text")])
def test_what_is_no_text_is_refused(content, got, tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=got):
        read_text(path)
    assert packed(b"x", path) == b"x"
