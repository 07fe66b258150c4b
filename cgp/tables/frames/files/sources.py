"""Files of each kind: their cells as text, and the same file with other cells and further rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from .changes import Added, Cell
from .encoded import COMPRESSED, Encoded, packed, read_text
from .grid import BLANK, ONE_COLUMN, Grid
from .layout import delimited
from .options import ReadOptions
from .typed_sources import read_parquet, read_workbook

__all__ = [
    "Source",
    "TextSource",
    "check_kind",
    "is_delimited_as",
    "kind_of_file",
    "open_source",
]

_KINDS = {
    "text": ("", ".csv", ".tsv", ".tab", ".txt", ".dat", ".asc"),
    "workbook": (".xlsx", ".xlsm"),
    "parquet": (".parquet", ".pq"),
}
_TABS = (".tsv", ".tab")
_SEEN = 400  # records that quoting is known from


class Source(Protocol):
    """A file that was read."""

    @property
    def grid(self) -> Grid:
        """Its cells."""

    @property
    def kind(self) -> str:
        """As :func:`kind_of_file` has it."""

    @property
    def said(self) -> str:
        """What kind of file it is, in words."""

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The same file with other cells, by record and field, and with further rows."""


class TextSource(NamedTuple):
    """Text: every byte stays, but for the cells that change."""

    encoded: Encoded
    grid: Grid

    @property
    def kind(self) -> str:
        """The kind of file."""
        return "text"

    @property
    def said(self) -> str:
        """Encoding and delimiter."""
        sign, mark = self.grid.delimiter, " with a mark" if self.encoded.mark else ""
        between = {"\t": "tabs", BLANK: "blanks"}.get(sign, repr(sign))
        return f"{self.encoded.encoding}{mark}, {'one column' if sign == ONE_COLUMN else f'{between} between fields'}"

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The bytes, compressed as the path says."""
        fields = {field for _, field in cells} | {field for row in added for field in row.cells}
        quoted = {field for field in fields if self._is_mostly_quoted(field)}
        lines: dict[int, list[str]] = {}
        for row in added:
            lines.setdefault(row.after, []).append(self._line(row, quoted))
        text = self.grid.joined({place: self._raw(place, cell.text, quoted) for place, cell in cells.items()}, lines)
        return packed(self.encoded.encoded(text), path)

    def _raw(self, place: tuple[int, int], text: str, quoted: set[int]) -> str:
        """A field with the quotes and the width of the one in its place."""
        record, field = place
        old = self.grid.records[record][field]
        if self.grid.delimiter == BLANK:
            blanks = old[: len(old) - len(old.lstrip())]
            return text.rjust(len(old)) if len(text) < len(old) and blanks else blanks + text
        new = self._in_quotes(text, is_quoted=field in quoted or old.strip().startswith('"'))
        return new.rjust(len(old)) if old[:1] == " " else new

    def _in_quotes(self, text: str, *, is_quoted: bool) -> str:
        return f'"{text}"' if is_quoted or self.grid.delimiter in text else text

    def _is_mostly_quoted(self, field: int) -> bool:
        seen = [fields[field] for fields in self.grid.records[:_SEEN] if field < len(fields)]
        return 2 * sum(raw.startswith('"') for raw in seen) > sum(map(bool, seen))

    def _line(self, row: Added, quoted: set[int]) -> str:
        olds = self.grid.records[row.after]
        texts = [row.cells[j].text if j in row.cells else "" for j in range(len(olds))]
        if self.grid.delimiter == BLANK:
            if not all(texts):
                raise ValueError("every: expected a value in each field of a further row, as blanks are between them")
            pairs = enumerate(zip(texts, olds, strict=True))
            return "".join(text.rjust(max(len(old), len(text) + (j > 0))) for j, (text, old) in pairs)
        cells = [self._in_quotes(text, is_quoted=j in quoted) if text else "" for j, text in enumerate(texts)]
        return self.grid.delimiter.join(cells)


def kind_of_file(path: Path) -> str:
    """The kind of a file by its ending.

    Args:
        path: of a table.

    Returns:
        "text", "workbook" or "parquet".

    Raises:
        ValueError: if it is a file of another kind.
    """
    ending = path.suffix.lower()
    plain = Path(path.stem).suffix.lower() if ending in COMPRESSED else ending
    found = next((kind for kind, endings in _KINDS.items() if plain in endings), None)
    if found is None or (ending in COMPRESSED and found != "text"):
        endings = ", ".join(each for kind in _KINDS.values() for each in kind if each)
        raise ValueError(
            f"{path}: expected a table ({endings}; text also {', '.join(COMPRESSED)}), got {path.suffix!r}"
        )
    return found


def check_kind(path: Path) -> None:
    """Refuse a file that cannot be read or written, by its ending.

    Args:
        path: of a table.

    Raises:
        ImportError: if what reads it is not installed.
    """
    kind = kind_of_file(path)
    if kind == "workbook" and find_spec("openpyxl") is None:
        raise ImportError(
            f"{path}: workbooks need openpyxl, which the extra 'files' installs: pip install \"cgp[files]\""
        )
    if kind == "parquet" and not any(map(find_spec, ("pyarrow", "fastparquet"))):
        raise ImportError(
            f"{path}: parquet needs pyarrow, which the extra 'files' installs: pip install \"cgp[files]\""
        )


def open_source(path: Path, options: ReadOptions) -> Source:
    """Read a file.

    Args:
        path: of a table.
        options: what is known of it.

    Returns:
        Its cells, and the way back.
    """
    check_kind(path)
    kind = kind_of_file(path)
    if kind == "parquet":
        return read_parquet(path)
    if kind == "workbook":
        return read_workbook(path, options.sheet)
    encoded = read_text(path, options.encoding)
    return TextSource(encoded, delimited(encoded.text, options))


def is_delimited_as(path: Path, delimiter: str) -> bool:
    """Whether the ending of a text file fits its delimiter."""
    ending = Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()
    return ending not in _TABS or delimiter == "\t"
