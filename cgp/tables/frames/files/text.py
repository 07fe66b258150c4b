"""Text files as records of raw fields, which joined again are the same bytes but for the fields that were replaced."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .options import UnclearError, option

__all__ = ["BLANK", "COMPRESSED", "ONE_COLUMN", "Encoded", "Grid", "packed", "read_text", "split"]

COMPRESSED: Mapping[str, Any] = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
_PACKED = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ"}
BLANK = " "  # any number of them
ONE_COLUMN = "\x1f"  # is in no text
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ENCODINGS = ("utf-8", "cp1252", "latin-1")  # the last one has every byte
_ENDS = re.compile(r"(\r\n|\r|\n)")
_BLANKS = re.compile(r'[ \t]*(?:"(?:[^"]|"")*"|[^ \t]+)')
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_SHOWN = 60
_NOTHING: Mapping[Any, Any] = {}


class Encoded(NamedTuple):
    """A text, decoded with its line ends, its encoding, and its byte order mark or nothing."""

    text: str
    encoding: str
    mark: bytes

    def encoded(self, text: str) -> bytes:
        """Another text, written as this one was."""
        return self.mark + text.encode(self.encoding)


def read_text(path: Path, encoding: str | None = None) -> Encoded:
    """Read a text file: UTF-8 or UTF-16 by its mark, UTF-8, or else what Windows writes in Western Europe."""
    content, module = path.read_bytes(), COMPRESSED.get(path.suffix.lower())
    try:
        content = content if module is None else module.decompress(content)
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        is_packed = content.startswith(_PACKED[path.suffix.lower()])
        what = f"a damaged file: {error}" if is_packed else f"one that is not: rename it {path.stem}, or compress it"
        raise ValueError(f"{path}: expected a compressed table, got {what}") from error
    if not content.strip():
        raise ValueError(f"{path}: expected a table, got an empty file")
    mark, marked = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", None))
    candidates = [encoding] if encoding else [marked] if marked else [*_ENCODINGS[:2]]
    if b"\0" in content and not candidates[0].lower().startswith(("utf-16", "utf-32", "utf_16")):
        raise ValueError(f"{path}: expected a table as text, got bytes that are no text")
    for name in candidates:
        if (text := _decoded(content[len(mark) :], name)) is not None:
            return Encoded(text, name, mark)
    fits = next(name for name in _ENCODINGS if name not in candidates and _decoded(content, name) is not None)
    tried = " or ".join(candidates)
    raise UnclearError(f"{path}: expected text in {tried}, got other bytes: name the {option('encoding', fits)} it has")


def _decoded(content: bytes, encoding: str) -> str | None:
    """The text that is written as these bytes; None if none is."""
    try:
        text = content.decode(encoding)
        return text if text.encode(encoding) == content else None
    except UnicodeError:
        return None
    except LookupError as error:
        raise ValueError(f"encoding: expected a name such as utf-8 or cp1252, got {encoding!r}") from error


def packed(content: bytes, path: Path) -> bytes:
    """Bytes, compressed as the ending of a path says."""
    module = COMPRESSED.get(path.suffix.lower())
    return content if module is None else bytes(module.compress(content))


class Grid(NamedTuple):
    r"""A text in pieces.

    Attributes:
        records: raw fields of each record, with quotes and blanks as they stand.
        ends: what ends each record: a line end, or nothing for the last one.
        delimiter: between fields; a blank where any number of them is, which belong to the field they precede.

    Example:
        >>> grid = split('a;"b;c"\n1;2\n', ";")
        >>> grid.records, grid.joined({(1, 1): "3"})
        ([['a', '"b;c"'], ['1', '2']], 'a;"b;c"\n1;3\n')
    """

    records: list[list[str]]
    ends: list[str]
    delimiter: str

    @property
    def joiner(self) -> str:
        """What is between raw fields."""
        return "" if self.delimiter == BLANK else self.delimiter

    @property
    def end(self) -> str:
        """What lines end with."""
        return next((each for each in self.ends if each.strip(BLANK)), "\n")

    def line(self, record: int) -> int:
        """The number of the line that a record begins in, from 1."""
        return record + 1 + sum(len(_ENDS.findall(field)) for fields in self.records[:record] for field in fields)

    def shown(self, record: int) -> str:
        """The number of a record's line and its beginning, for an error message."""
        text = self.joiner.join(self.records[record])
        return f"line {self.line(record)}, {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'!r}"

    def fields(self, record: int) -> list[str]:
        """The contents of a record's fields, without quotes and surrounding blanks."""
        return [_unquoted(field) for field in self.records[record]]

    def width(self, record: int) -> int:
        """The number of a record's fields."""
        return len(self.records[record])

    def is_broken(self, record: int) -> bool:
        """Whether a quote is not closed in a record, or text follows it."""
        return any(
            field[0] == '"' and not _QUOTED.fullmatch(field) for field in map(str.strip, self.records[record]) if field
        )

    def joined(
        self, changed: Mapping[tuple[int, int], str] = _NOTHING, added: Mapping[int, list[str]] = _NOTHING
    ) -> str:
        """The text."""
        records = [[*fields] for fields in self.records]
        for (record, field), raw in changed.items():
            records[record][field] = raw
        end = self.end
        parts = [line + end for line in added.get(-1, [])]
        for number, (fields, last) in enumerate(zip(records, self.ends, strict=True)):
            further = added.get(number, [])
            parts += [self.joiner.join(fields), last]
            is_open = not last.strip(BLANK)  # a text without a last line end has none after further lines either
            parts += [end + line if is_open else line + end for line in further]
        return "".join(parts)


def split(text: str, delimiter: str) -> Grid:
    """A text in records and fields; line ends and delimiters within quotes belong to their field."""
    pieces = _ENDS.split(text)
    lines, ends = pieces[::2], [*pieces[1::2], ""]
    if delimiter == BLANK:
        records = [_BLANKS.findall(line) or [""] for line in lines]
        ends = [line[len("".join(record)) :] + end for line, record, end in zip(lines, records, ends, strict=True)]
    elif '"' in text:
        records, ends = _split_quoted(text, delimiter)
    else:
        records = [line.split(delimiter) for line in lines]
    if records[-1] == [""] and not ends[-1]:
        records, ends = records[:-1], ends[:-1]
    return Grid(records, ends, delimiter)


def _split_quoted(text: str, delimiter: str) -> tuple[list[list[str]], list[str]]:
    sign = re.escape(delimiter)
    pattern = re.compile(rf'("(?:[^"]|"")*"[^{sign}\r\n]*|[^{sign}\r\n]*)({sign}|\r\n|\r|\n|\Z)')
    records: list[list[str]] = [[]]
    ends, last = [], ""
    for match in pattern.finditer(text):
        if match.start() == len(text) and last != delimiter:
            break
        field, last = match.groups()
        records[-1].append(field)
        if last != delimiter:
            ends.append(last)
            records.append([])
    return [*records[:-1], [""]], [*ends, ""]


def _unquoted(raw: str) -> str:
    text = raw.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text
