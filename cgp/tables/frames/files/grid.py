"""Text as records of raw fields: joined again it is the same text, but for the fields that were replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BLANK", "ONE_COLUMN", "Grid", "split", "unquoted"]

_ENDS = re.compile(r"(\r\n|\r|\n)")
_BLANKS = re.compile(r'[ \t]*(?:"(?:[^"]|"")*"|[^ \t]+)')
BLANK = " "  # any number of them
ONE_COLUMN = "\x1f"  # is in no text
_SHOWN = 60
_NOTHING: Mapping[Any, Any] = {}


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

    def line(self, record: int) -> int:
        """The number of the line that a record begins in, from 1."""
        quoted = sum(len(_ENDS.findall(field)) for fields in self.records[:record] for field in fields)
        return record + 1 + quoted

    def text_of(self, record: int) -> str:
        """A record without its end."""
        return ("" if self.delimiter == BLANK else self.delimiter).join(self.records[record])

    def shown(self, record: int) -> str:
        """A record for an error message: not more than a line of it, in quotes."""
        text = self.text_of(record)
        return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

    def fields(self, record: int) -> list[str]:
        """The contents of a record's fields, without quotes and surrounding blanks."""
        return [unquoted(field) for field in self.records[record]]

    def width(self, record: int) -> int:
        """The number of a record's fields."""
        return len(self.records[record])

    def joined(
        self, changed: Mapping[tuple[int, int], str] = _NOTHING, added: Mapping[int, list[str]] = _NOTHING
    ) -> str:
        """The text.

        Args:
            changed: raw fields by record and field.
            added: lines by the record that they follow, -1 for none.

        Returns:
            The text with those fields replaced and those lines added.
        """
        rows: dict[int, dict[int, str]] = {}
        for (record, field), raw in changed.items():
            rows.setdefault(record, {})[field] = raw
        end = next((each for each in self.ends if each.strip(BLANK)), "\n")
        parts = [line + end for line in added.get(-1, [])]
        joiner = "" if self.delimiter == BLANK else self.delimiter
        for number, (fields, last) in enumerate(zip(self.records, self.ends, strict=True)):
            new = rows.get(number, {})
            parts += [joiner.join([new.get(j, raw) for j, raw in enumerate(fields)] if new else fields), last]
            further = added.get(number, [])
            if further and not last:  # of a text without a last line end
                parts += [end, end.join(further)]
            else:
                parts += [line + end for line in further]
        return "".join(parts)


def split(text: str, delimiter: str) -> Grid:
    """A text in records and fields; line ends and delimiters within quotes belong to their field.

    Args:
        text: decoded, with its line ends.
        delimiter: one character; a blank stands for any number of blanks and tabs.

    Returns:
        Its pieces.
    """
    if delimiter == BLANK:
        return _split_at_blanks(text)
    if '"' in text:
        return _split_quoted(text, delimiter)
    pieces = _ENDS.split(text)
    records, ends = [line.split(delimiter) for line in pieces[::2]], [*pieces[1::2], ""]
    return _without_tail(records, ends, delimiter)


def unquoted(raw: str) -> str:
    """The content of a raw field, without quotes and surrounding blanks."""
    text = raw.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text


def _split_at_blanks(text: str) -> Grid:
    pieces = _ENDS.split(text)
    records, ends = [], []
    for line, end in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        fields = _BLANKS.findall(line)
        rest = line[sum(map(len, fields)) :]
        records.append(fields or [""])
        ends.append(rest + end)
    return _without_tail(records, ends, BLANK)


def _split_quoted(text: str, delimiter: str) -> Grid:
    other = re.escape(delimiter)
    pattern = re.compile(rf'("(?:[^"]|"")*"[^{other}\r\n]*|[^{other}\r\n]*)({other}|\r\n|\r|\n|\Z)')
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
    records[-1:] = [[""]]
    return _without_tail(records, [*ends, ""], delimiter)


def _without_tail(records: list[list[str]], ends: list[str], delimiter: str) -> Grid:
    """What follows the last line end is a record only if it is not empty."""
    if records and records[-1] == [""] and not ends[-1]:
        records, ends = records[:-1], ends[:-1]
    return Grid(records, ends, delimiter)
