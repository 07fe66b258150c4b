"""Files of each kind: their cells as text, and the same file with other cells and further rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .encoded import COMPRESSED, Encoded, packed, read_text
from .grid import BLANK, ONE_COLUMN, Grid
from .hints import UnclearError, option
from .layout import delimited
from .options import Options

__all__ = [
    "Added",
    "Cell",
    "ParquetSource",
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


class Cell(NamedTuple):
    """What a cell becomes: as it is written in text, and its value."""

    text: str
    value: Any


class Added(NamedTuple):
    """A row that is added.

    Attributes:
        after: the record that it follows.
        cells: by their field.
    """

    after: int
    cells: dict[int, Cell]


class Source(Protocol):
    """A file that was read."""

    @property
    def grid(self) -> Grid:
        """Its cells."""

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


class WorkbookSource(NamedTuple):
    """A sheet of a workbook; formulas, styles and other sheets stay."""

    path: Path
    sheet: str
    grid: Grid

    @property
    def said(self) -> str:
        """The sheet."""
        return f"sheet {self.sheet!r}"

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The workbook's bytes."""
        import openpyxl

        book = openpyxl.load_workbook(self.path, keep_vba=path.suffix.lower() == ".xlsm")
        sheet = book[self.sheet]
        for (record, field), cell in cells.items():
            sheet.cell(record + 1, field + 1).value = cell.value
        for row in sorted(added, key=lambda each: each.after)[::-1]:  # from the last one, which moves no other
            sheet.insert_rows(row.after + 2)
            for field, cell in row.cells.items():
                new, old = sheet.cell(row.after + 2, field + 1), sheet.cell(row.after + 1, field + 1)
                new.value, new.number_format = cell.value, old.number_format
        stream = BytesIO()
        book.save(stream)
        return stream.getvalue()


class ParquetSource(NamedTuple):
    """A frame of a parquet file; types stay, but whole numbers become floating-point ones where others fill them."""

    frame: Any
    grid: Grid

    @property
    def said(self) -> str:
        """The kind."""
        return "parquet"

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The file's bytes."""
        import pandas as pd

        frame = _with_names(self.frame)
        places: dict[int, dict[int, Any]] = {}
        for (record, field), cell in cells.items():
            places.setdefault(field, {})[record - 1] = cell.value
        for field, values in places.items():
            column = frame.iloc[:, field]
            if column.dtype.kind in "iu" and any(value != int(value) for value in values.values()):
                column = column.astype("float64" if isinstance(column.dtype, np.dtype) else "Float64")
            column = column.copy()
            column.iloc[[*values]] = [*values.values()]
            frame.isetitem(field, column)
        if added:
            new = pd.DataFrame([{frame.columns[j]: cell.value for j, cell in row.cells.items()} for row in added])
            keys = [*range(len(frame)), *(row.after - 0.5 for row in added)]
            frame = pd.concat([frame, new]).set_axis(keys).sort_index(kind="stable").reset_index(drop=True)
        names = [*self.frame.index.names] if not isinstance(self.frame.index, pd.RangeIndex) else []
        stream = BytesIO()
        (frame.set_index(names) if names and None not in names else frame).to_parquet(stream)
        return stream.getvalue()


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


def open_source(path: Path, options: Options) -> Source:
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
        return _parquet(path)
    if kind == "workbook":
        return _workbook(path, options)
    encoded = read_text(path, options.encoding)
    return TextSource(encoded, delimited(encoded.text, options))


def is_delimited_as(path: Path, delimiter: str) -> bool:
    """Whether the ending of a text file fits its delimiter."""
    ending = Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()
    return ending not in _TABS or delimiter == "\t"


def _parquet(path: Path) -> ParquetSource:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: expected parquet, got a damaged file: {error}") from error
    whole = _with_names(frame)
    columns = [_texts(whole.iloc[:, j]) for j in range(whole.shape[1])]
    names = [str(name) for name in whole.columns]
    return ParquetSource(frame, _grid([names, *zip(*columns, strict=True)]))


def _with_names(frame: Any) -> Any:
    """A frame whose index is among its columns, if it has one."""
    import pandas as pd

    return frame.copy() if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _texts(column: Any) -> list[str]:
    shown = np.float32 if str(column.dtype).lower() == "float32" else lambda value: value  # -999.9, not all its digits
    return ["" if is_missing else str(shown(value)) for value, is_missing in zip(column, column.isna(), strict=True)]


def _workbook(path: Path, options: Options) -> WorkbookSource:
    import zipfile

    import openpyxl

    try:
        book = openpyxl.load_workbook(path, data_only=True)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a workbook, got a damaged file: {error}") from error
    full = [sheet.title for sheet in book.worksheets if any(any(v is not None for v in row) for row in sheet.values)]
    if options.sheet is not None and options.sheet not in full:
        raise ValueError(f"sheet: expected one of {full}, got {options.sheet!r}")
    if len(full) > 1 and options.sheet is None:
        ways = " or ".join(option("sheet", name) for name in full)
        raise UnclearError(f"it has {len(full)} sheets: say {ways}")
    if not full:
        raise ValueError(f"{path}: expected a table, got an empty workbook")
    name = options.sheet or full[0]
    rows = [
        [_cell_text(value) for value in row] for row in book[name].iter_rows(min_row=1, min_col=1, values_only=True)
    ]
    while not any(rows[-1]):
        rows.pop()
    width = max(max((j + 1 for j, text in enumerate(row) if text), default=0) for row in rows)
    return WorkbookSource(path, name, _grid([row[:width] if any(row) else [""] for row in rows]))


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat(" ") if hasattr(value, "hour") and hasattr(value, "year") else str(value)


def _grid(rows: Iterable[Sequence[str]]) -> Grid:
    """Cells as a grid: fields with quotes in them are quoted."""
    records = [[_field(text) for text in row] for row in rows]
    return Grid(records, ["\n"] * len(records), "\t")


def _field(text: str) -> str:
    plain = " ".join(text.split("\t")) if "\t" in text else text
    return '"{}"'.format(plain.replace('"', '""')) if any(sign in plain for sign in '"\r\n') else plain
