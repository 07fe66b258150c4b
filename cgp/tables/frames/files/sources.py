"""Files of each kind: their cells as text, and the same file with other cells and further rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cgp.spelling import meant

from .layout import delimited
from .numbers import LIMITS, NumberForm, looks_like_number
from .options import ReadOptions, UnclearError, option
from .text import BLANK, COMPRESSED, ONE_COLUMN, Encoded, Grid, packed, read_text

__all__ = ["Added", "Cell", "Source", "check_kind", "is_delimited_as", "kind_of_file", "open_source"]

_KINDS = {
    "text": ("", ".csv", ".tsv", ".tab", ".txt", ".dat", ".asc"),
    "workbook": (".xlsx", ".xlsm"),
    "parquet": (".parquet", ".pq"),
}
_NEEDS = {"workbook": ("openpyxl",), "parquet": ("pyarrow", "fastparquet")}


class Cell(NamedTuple):
    """What a cell becomes: as it is written in text, and its value."""

    text: str
    value: Any


class Added(NamedTuple):
    """A row that is added: the record that it follows, its cells by their field, and a record of the same kinds."""

    after: int
    cells: dict[int, Cell]
    like: int

    def values(self, others: Mapping[int, Any]) -> dict[int, Any]:
        """The values of the cells by field: times of day and text where the other record has such."""
        return {field: _as_kind(cell, others[field]) for field, cell in self.cells.items()}


def _as_kind(cell: Cell, other: Any) -> Any:
    """The value of a cell; a time as a time of day, as text or as a number where another one of its column is such."""
    if not isinstance(cell.value, datetime) or isinstance(other, datetime):
        return cell.value
    if isinstance(other, str):
        return cell.text
    if isinstance(other, int | float):
        return type(other)(cell.text.replace(",", "."))
    return cell.value.time() if isinstance(other, time) else cell.value


@dataclass(frozen=True)
class TextSource:
    """Text: every byte stays, but for the cells that change."""

    encoded: Encoded
    grid: Grid

    kind: ClassVar[str] = "text"

    @property
    def said(self) -> str:
        """Encoding and delimiter."""
        sign, mark = self.grid.delimiter, " with a mark" if self.encoded.mark else ""
        between = {"\t": "tabs", BLANK: "blanks"}.get(sign, repr(sign))
        return f"{self.encoded.encoding}{mark}, {'one column' if sign == ONE_COLUMN else f'{between} between fields'}"

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The bytes, compressed as the path says."""
        lines: dict[int, list[str]] = {}
        for row in added:
            lines.setdefault(row.after, []).append(self._line(row))
        changed = {place: self._raw(place, cell.text) for place, cell in cells.items()}
        return packed(self.encoded.encoded(self.grid.joined(changed, lines)), path)

    def written(self, frame: Any, path: Path) -> bytes:
        """The bytes of another table, written as this one is; commas are between fields where here blanks are."""
        sign = self.grid.delimiter if self.grid.delimiter in ";,|\t" else ","
        return packed(self.encoded.encoded(frame.to_csv(sep=sign, lineterminator=self.grid.end)), path)

    def _raw(self, place: tuple[int, int], text: str) -> str:
        """A field with the quotes and the width of the one in its place."""
        old = self.grid.records[place[0]][place[1]]
        blanks = old[: len(old) - len(old.lstrip())]
        if self.grid.delimiter == BLANK and len(text) >= len(old):
            return blanks + text
        new = f'"{text}"' if self.grid.delimiter in text or old.strip().startswith('"') else text
        return new.rjust(len(old)) if blanks else new

    def _line(self, row: Added) -> str:
        """A further row, its fields as wide as those of the one before it where blanks are between them."""
        olds, sign = self.grid.records[row.after], self.grid.delimiter
        texts = [row.cells[j].text if j in row.cells else "" for j in range(len(olds))]
        if sign != BLANK:
            return sign.join(f'"{text}"' if sign in text else text for text in texts)
        if not all(texts):
            raise ValueError("every: expected a value in each field of a further row, as blanks are between them")
        pairs = enumerate(zip(texts, olds, strict=True))
        return "".join(text.rjust(max(len(old), len(text) + (j > 0))) for j, (text, old) in pairs)


@dataclass(frozen=True)
class WorkbookSource:
    """A sheet of a workbook; formulas, styles and other sheets stay."""

    path: Path
    sheet: str
    grid: Grid

    kind: ClassVar[str] = "workbook"

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
        like = {row.like: dict(enumerate(each.value for each in sheet[row.like + 1])) for row in added}
        for row in sorted(added, key=lambda each: each.after)[::-1]:  # from the last one, which moves no other
            sheet.insert_rows(row.after + 2)
            for field, value in row.values(like[row.like]).items():
                new, old = sheet.cell(row.after + 2, field + 1), sheet.cell(row.after + 1, field + 1)
                new.value, new.number_format = value, old.number_format
        stream = BytesIO()
        book.save(stream)
        return stream.getvalue()


@dataclass(frozen=True)
class ParquetSource:
    """A frame of a parquet file; types stay, but whole numbers become floating-point ones where others fill them."""

    frame: Any
    grid: Grid

    kind: ClassVar[str] = "parquet"

    said: ClassVar[str] = "parquet"

    def content(self, path: Path, cells: Mapping[tuple[int, int], Cell], added: Sequence[Added]) -> bytes:
        """The file's bytes."""
        import pandas as pd

        frame = _with_names(self.frame)
        for field in {field for _, field in cells}:
            values = {record - 1: cell.value for (record, place), cell in cells.items() if place == field}
            column = frame.iloc[:, field].copy()
            emptied = [row for row, value in values.items() if value is None]
            column = column.mask(np.isin(np.arange(len(frame)), emptied))
            values = {row: value for row, value in values.items() if value is not None}
            if column.dtype.kind in "iu" and any(value != int(value) for value in values.values()):
                column = column.astype("float64" if isinstance(column.dtype, np.dtype) else "Float64")
            elif column.dtype.kind in "iu":
                values = {row: int(value) for row, value in values.items()}
            column.iloc[[*values]] = [*values.values()]
            frame.isetitem(field, column)
        if added:
            like = {row.like: dict(enumerate(frame.iloc[row.like - 1])) for row in added}
            further = [row.values(like[row.like]) for row in added]
            new = pd.DataFrame([{frame.columns[j]: value for j, value in each.items()} for each in further])
            keys = [*range(len(frame)), *(row.after - 0.5 for row in added)]
            frame = pd.concat([frame, new]).set_axis(keys).sort_index(kind="stable").reset_index(drop=True)
        names = [name for name in self.frame.index.names if not isinstance(self.frame.index, pd.RangeIndex)]
        stream = BytesIO()
        (frame.set_index(names) if names and None not in names else frame).to_parquet(stream)
        return stream.getvalue()


Source = TextSource | WorkbookSource | ParquetSource


def open_source(path: Path, options: ReadOptions) -> Source:
    """Read a file: its cells, and the way back."""
    check_kind(path)
    kind = kind_of_file(path)
    if options.sheet is not None and kind != "workbook":
        raise UnclearError(f"{option('sheet', options.sheet)}: expected a workbook, got {kind}, which has no sheets")
    if kind == "parquet":
        return _read_parquet(path)
    if kind == "workbook":
        return _read_workbook(path, options)
    encoded = read_text(path, options.encoding)
    return TextSource(encoded, delimited(encoded.text, options))


def kind_of_file(path: Path) -> str:
    """The kind of a file by its ending."""
    plain = _ending(path)
    found = next((kind for kind, endings in _KINDS.items() if plain in endings), None)
    if found is None or (plain != path.suffix.lower() and found != "text"):
        endings = ", ".join(each for kind in _KINDS.values() for each in kind if each)
        raise ValueError(
            f"{path}: expected a table ({endings}; text also {', '.join(COMPRESSED)}), got {path.suffix!r}"
        )
    return found


def check_kind(path: Path) -> None:
    """Refuse a file that cannot be read or written, by its ending."""
    needed = _NEEDS.get(kind_of_file(path), ())
    if needed and not any(map(find_spec, needed)):
        raise ImportError(
            f"{path}: such files need {needed[0]}, which the extra 'files' installs: pip install \"cgp[files]\""
        )


def is_delimited_as(path: Path, delimiter: str) -> bool:
    """Whether the ending of a text file fits its delimiter."""
    return _ending(path) not in (".tsv", ".tab") or delimiter == "\t"


def _ending(path: Path) -> str:
    """The ending of a path, without that of a compressed file."""
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending in COMPRESSED else ending


def _read_parquet(path: Path) -> ParquetSource:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: expected parquet, got a damaged file: {error}") from error
    whole = _with_names(frame)
    columns = [_texts(whole.iloc[:, j]) for j in range(whole.shape[1])]
    return ParquetSource(frame, _grid([[str(name) for name in whole.columns], *zip(*columns, strict=True)]))


def _with_names(frame: Any) -> Any:
    """A frame whose index is among its columns, if it has one."""
    import pandas as pd

    return frame.copy() if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _texts(column: Any) -> list[str]:
    shown = np.float32 if str(column.dtype).lower() == "float32" else lambda value: value  # -999.9, not all its digits
    return ["" if is_missing else str(shown(value)) for value, is_missing in zip(column, column.isna(), strict=True)]


def _read_workbook(path: Path, options: ReadOptions) -> WorkbookSource:
    import zipfile

    import openpyxl

    try:
        book = openpyxl.load_workbook(path, data_only=True)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a workbook, got a damaged file: {error}") from error
    sheets = {sheet.title: [*sheet.values] for sheet in book.worksheets}
    full = [name for name, rows in sheets.items() if any(value not in (None, "") for row in rows for value in row)]
    if (wanted := options.sheet) is not None and wanted not in full:
        raise ValueError(f"sheet: expected one of {full}, got {wanted!r}{meant([wanted], full)}")
    if len(full) > 1 and wanted is None:
        raise UnclearError(f"it has {len(full)} sheets: say {' or '.join(option('sheet', name) for name in full)}")
    if not full:
        raise ValueError(f"{path}: expected a table, got an empty workbook")
    name = wanted or full[0]
    sign = _decimal_sign(sheets[name], options)
    rows = [[_cell_text(value, sign) for value in row] for row in sheets[name]]
    width = max(j + 1 for row in rows for j, text in enumerate(row) if text)
    last = max(n for n, row in enumerate(rows) if any(row))
    return WorkbookSource(path, name, _grid([row[:width] if any(row) else [""] for row in rows[: last + 1]]))


def _decimal_sign(rows: Iterable[Sequence[Any]], options: ReadOptions) -> str:
    """The decimal sign of numbers that are text in a sheet, such as <0,5: a point, unless all commas must be it."""
    cells = (value.strip().lstrip(LIMITS).strip() for row in rows for value in row if isinstance(value, str))
    texts = [text for text in cells if "," in text and looks_like_number(text)]
    if options.decimal or options.thousands or not texts:
        return options.decimal or ("," if options.thousands == "." else ".")
    is_grouped = all(NumberForm(".", ",").plain(text) for text in texts)
    if is_grouped and all(NumberForm(",").plain(text) for text in texts):
        raise UnclearError(
            f"{texts[0]!r}, a number that is text, is {texts[0].replace(',', '')} ({option('thousands', ',')}) or "
            f"{texts[0].replace(',', '.')} ({option('decimal', ',')}): say which"
        )
    return "." if is_grouped else ","


def _cell_text(value: Any, sign: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return str(value).replace(".", sign)
    return value.isoformat(" ") if hasattr(value, "hour") and hasattr(value, "year") else str(value)


def _grid(rows: Iterable[Sequence[str]]) -> Grid:
    """Cells as a grid: those with quotes in them are quoted, as in text."""
    records = [['"{}"'.format(text.replace('"', '""')) if '"' in text else text for text in row] for row in rows]
    return Grid(records, ["\n"] * len(records), "\t")
