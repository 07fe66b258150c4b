"""Files whose cells have types: workbooks and parquet. Their cells are read as text, and written with their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .changes import Added, Cell
from .grid import Grid
from .hints import UnclearError, option

__all__ = ["ParquetSource", "WorkbookSource", "read_parquet", "read_workbook"]


class WorkbookSource(NamedTuple):
    """A sheet of a workbook; formulas, styles and other sheets stay."""

    path: Path
    sheet: str
    grid: Grid

    @property
    def kind(self) -> str:
        """The kind of file."""
        return "workbook"

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
    def kind(self) -> str:
        """The kind of file."""
        return "parquet"

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


def read_parquet(path: Path) -> ParquetSource:
    """Read a parquet file.

    Args:
        path: of the file.

    Returns:
        Its cells as text, and the frame.

    Raises:
        ValueError: if it is damaged.
    """
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


def read_workbook(path: Path, wanted: str | None) -> WorkbookSource:
    """Read a sheet of a workbook.

    Args:
        path: of the file.
        wanted: name of the sheet, None for the only one that has cells.

    Returns:
        Its cells as text.

    Raises:
        UnclearError: if there are several sheets.
        ValueError: if it is damaged or empty, or has no such sheet.
    """
    import zipfile

    import openpyxl

    try:
        book = openpyxl.load_workbook(path, data_only=True)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a workbook, got a damaged file: {error}") from error
    full = [sheet.title for sheet in book.worksheets if any(any(v is not None for v in row) for row in sheet.values)]
    if wanted is not None and wanted not in full:
        raise ValueError(f"sheet: expected one of {full}, got {wanted!r}")
    if len(full) > 1 and wanted is None:
        ways = " or ".join(option("sheet", name) for name in full)
        raise UnclearError(f"it has {len(full)} sheets: say {ways}")
    if not full:
        raise ValueError(f"{path}: expected a table, got an empty workbook")
    name = wanted or full[0]
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
