"""A table of a file: a frame to be filled, what was understood of the file, and the way back into it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgp.atomic_files import write_aside
from cgp.spelling import counted, first_of

from .assembling import Assembled
from .columns import Columns
from .layout import Layout
from .numbers import Precision, looks_like_number
from .options import as_arguments
from .rows import Rows
from .sources import Added, Cell, Source, TextSource, check_kind, is_delimited_as, kind_of_file
from .text import BLANK

__all__ = ["Pieces", "TableFile", "Understood"]

_KINDS = {"text": "text", "workbook": "a workbook", "parquet": "parquet"}
_SHOWN, _LEFT_SHOWN = 12, 6


class Understood(NamedTuple):
    """What was understood of a file.

    Attributes:
        file: kind, encoding, delimiter and form of numbers.
        header: where names, units and remarks are.
        rows: how many there are, and what they are known by.
        columns: each column of numbers, and how often each text stands for what is missing in it.
        left: why each of the other columns is left as it is.
        lacking: of rows that are not there, and what adds them; nothing where all are.
        notes: what else is to be known.
    """

    file: str
    header: str
    rows: str
    columns: dict[str, tuple[Any, dict[str, int]]]
    left: dict[str, str]
    lacking: str
    notes: list[str]

    @property
    def text(self) -> str:
        """A few lines, with options that are spelled later (:func:`.as_flags`)."""
        shown = [_said(name, *each) for name, each in self.columns.items()]
        if further := [values.isna() for values, _ in self.columns.values()][_SHOWN:]:
            values, gaps = sum((~each).sum() for each in further), sum(each.sum() for each in further)
            shown = [*shown[:_SHOWN], f"and {len(further)} more: {values} values, {gaps} missing"]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            reasons.setdefault(reason, []).append(name)
        left = [f"{first_of(names, _LEFT_SHOWN)} ({reason})" for reason, names in reasons.items()]
        lines = [("file", self.file), ("header", self.header), ("rows", self.rows)]
        lines += [("" if n else "columns", each) for n, each in enumerate(shown)]
        lines += [("" if n else "left alone", each) for n, each in enumerate(left)]
        lines += [("note", note) for note in (self.lacking, *self.notes) if note]
        return "\n".join(f"  {title:<11} {said}" for title, said in lines)

    def __repr__(self) -> str:
        return as_arguments(self.text)


class Pieces(NamedTuple):
    """What a file was taken apart into: the file, which lines are rows, their text, and what came of them."""

    source: Source
    layout: Layout
    cells: Any
    rows: Rows
    columns: Columns
    assembled: Assembled


@dataclass(frozen=True)
class TableFile:
    """A table that was read from a file by :func:`.read_table`.

    Attributes:
        path: of the file.
        understood: what was understood of the file.
        pieces: of the file, with the places of its cells, for :meth:`write`.
    """

    path: Path
    understood: Understood
    pieces: Pieces

    def __repr__(self) -> str:
        return f"{self.path}\n{self.understood}"

    @property
    def frame(self) -> Any:
        """Columns of numbers, NaN where missing; the index is of times, numbers, or the order of the rows."""
        return self.pieces.assembled.frame

    @property
    def inputs(self) -> list[str]:
        """Columns of the frame that say where a row is, for ``CorrelatedGPImputer(inputs=...)``; none for the index."""
        return self.pieces.assembled.inputs

    @property
    def gaps(self) -> int:
        """How many values are missing that have a place in the file, or get one."""
        parts = self.pieces.assembled
        return int((self._missing & ((parts.places >= 0) | parts.is_adding)).sum())

    def precision(self, name: str) -> Precision:
        """The digits of a column of the frame."""
        return self._precision([*self.pieces.assembled.values].index(name))

    def check_place(self, path: str | Path) -> None:
        """Refuse a path that the table cannot be written to, by its ending.

        Args:
            path: of a file.

        Raises:
            ValueError: if it is of another kind than the file, or its fields are apart by something else than tabs.
        """
        check_kind(path := Path(path))
        source = self.pieces.source
        if (kind := kind_of_file(path)) != source.kind:
            raise ValueError(
                f"{path}: expected a place that ends in {self.path.suffix}, as {self.path.name} is "
                f"{_KINDS[source.kind]}, got {_KINDS[kind]}"
            )
        if isinstance(source, TextSource) and not is_delimited_as(path, source.grid.delimiter):
            sign = source.grid.delimiter
            raise ValueError(
                f"{path}: expected .csv or .txt, as there is {sign!r} between the fields, got {path.suffix!r}"
            )

    def write(self, filled: Any, path: str | Path) -> None:
        """Write the file with its gaps filled: all else stays as it is, byte for byte in text.

        Args:
            filled: as ``frame``, without gaps; where totals are known, that of :func:`cgp.tables.adding_up`.
            path: of the same kind of file, by its ending.

        Raises:
            ValueError: if the values do not fit, or nothing can be written there.
        """
        self._write(self._values(filled, "filled"), self._missing, Path(path), is_error=False)

    def write_errors(self, std: Any, path: str | Path) -> None:
        """Write standard deviations in the places of the values, 0 for what was observed.

        A column has as many decimals as two digits of the smallest need. Columns of numbers that are left alone are
        empty, unless blanks are between the fields.

        Args:
            std: as ``frame``.
            path: as in :meth:`write`.

        Raises:
            ValueError: if they do not fit, or nothing can be written there.
        """
        self._write(self._values(std, "std"), np.ones_like(self._missing), Path(path), is_error=True)

    def write_answer(self, frame: Any, path: Path, *, is_of_rows: bool = False) -> None:
        """Write a further table, such as sums: text with the encoding, the delimiter and the line ends of this one.

        Args:
            frame: with numbers as :meth:`precision` writes them.
            path: of any kind of file; text is UTF-8, with commas, where this one is no text.
            is_of_rows: whether times are those of rows, and text has them as this file does; others are as 2024-01-31.
        """
        kind, source = kind_of_file(path), self.pieces.source
        frame = frame.rename_axis(index=self.frame.index.name or "row")
        if kind == "workbook" and self.pieces.rows.forms:
            frame.index = _in_cells(frame.index)
        if is_of_rows and self.inputs:
            frame = self._placed(frame, as_text=kind == "text")
        if kind == "text" and isinstance(source, TextSource):
            written = self._as_written(frame) if is_of_rows and self.pieces.rows.forms else frame
            write_aside(path, lambda aside: aside.write_bytes(source.written(written, path)))
        else:
            in_sheet = partial(frame.to_excel, merge_cells=False)  # of places side by side
            writers = {"text": frame.to_csv, "workbook": in_sheet, "parquet": frame.to_parquet}
            write_aside(path, writers[kind])

    def _placed(self, frame: Any, *, as_text: bool) -> Any:
        """A frame of some of the rows with what says where they are, as in the file, in place of their numbers."""
        import pandas as pd

        places = (self.pieces.cells if as_text else self.frame)[self.inputs]
        return frame.set_index(pd.MultiIndex.from_frame(places.iloc[self.frame.index.get_indexer(frame.index)]))

    def _as_written(self, frame: Any) -> Any:
        """A frame whose times are in columns as those of the file."""
        import pandas as pd

        return frame.set_index(pd.MultiIndex.from_frame(pd.DataFrame(self.pieces.rows.write(frame.index))))

    @property
    def _missing(self) -> Any:
        return self.pieces.assembled.values.isna().to_numpy()

    def _values(self, values: Any, name: str) -> Any:
        """The values of a frame with the rows and columns of this one, none of which is missing."""
        names = [*self.pieces.assembled.values]
        if not hasattr(values, "columns") or not {*names} <= {*values.columns} or len(values) != len(self.frame):
            raise ValueError(f"{name}: expected a frame of {len(self.frame)} rows with the columns {names}")
        if not values.index.equals(self.frame.index):
            raise ValueError(f"{name}: expected the rows of the frame in their order, got another index")
        numbers = values[names].to_numpy(dtype=np.float64)
        if without := int((~np.isfinite(numbers)).sum()):
            raise ValueError(f"{name}: expected a value in each place, got {without} without")
        return numbers

    def _write(self, values: Any, changed: Any, path: Path, *, is_error: bool) -> None:
        self.check_place(path)
        cells, added = self._changes(values, changed, is_error=is_error)
        content = self.pieces.source.content(path, cells, added)
        write_aside(path, lambda aside: aside.write_bytes(content))

    def _precision(self, column: int) -> Precision:
        parts = self.pieces.assembled
        seen = parts.places[~self._missing[:, column], column]
        return Precision.of(self.pieces.cells[parts.fields[column]].iloc[seen].tolist(), self.pieces.columns.form)

    def _changes(self, values: Any, changed: Any, *, is_error: bool) -> tuple[dict[tuple[int, int], Cell], list[Added]]:
        """Cells of the file that change, and rows that are added to it."""
        parts, rows = self.pieces.assembled, self.pieces.layout.rows
        fields = [self.pieces.layout.names.index(name) for name in parts.fields]
        cells: dict[tuple[int, int], Cell] = {}
        new: dict[tuple[int, int], dict[int, Cell]] = {}
        for p, name in enumerate(fields):
            digits = self._precision(p)
            least = digits.least(values[:, p]) if is_error else 0.0
            for i in np.flatnonzero(changed[:, p]).tolist():
                text = digits.write(values[i, p], least)
                cell = Cell(text, float(digits.form.numbers([text])[0]))
                if parts.places[i, p] >= 0:
                    cells[rows[parts.places[i, p]], name] = cell
                elif parts.is_adding:
                    new.setdefault((i, p if parts.series else 0), {})[name] = cell
        twins = self.pieces.layout.twins.items()
        if is_error:
            cells |= {(n, name): Cell("", None) for n in rows for name in self._numbers_left}
            fields += self._numbers_left
        cells |= {(n, name): cells[row, name] for n, row in twins for name in {*fields} if (row, name) in cells}
        return cells, self._added(new) if new else []

    @property
    def _numbers_left(self) -> list[int]:
        """Columns of the file with numbers that are left alone, where they can be empty."""
        columns, cells, source = self.pieces.columns, self.pieces.cells, self.pieces.source
        if isinstance(source, TextSource) and source.grid.delimiter == BLANK:
            return []
        left = [
            name for name in columns.left if name not in (self.pieces.assembled.series_field, *self.pieces.rows.columns)
        ]
        return [
            self.pieces.layout.names.index(name)
            for name in left
            if all(looks_like_number(text) for text in cells[name].unique() if text)
        ]

    def _added(self, new: dict[tuple[int, int], dict[int, Cell]]) -> list[Added]:
        """Rows for times that the file does not have, each after that of the time before it."""
        parts, names, rows = self.pieces.assembled, self.pieces.layout.names, self.pieces.layout.rows
        labels, dates = self.pieces.rows.write(self.frame.index), self.pieces.rows.dates(self.frame.index)
        order = [*range(len(self.frame))][:: -1 if self.pieces.rows.is_reversed else 1]
        added = []
        for p in {p for _, p in new}:
            series = {names.index(parts.series_field): Cell(parts.series[p], parts.series[p])} if parts.series else {}
            after = rows[next(parts.places[i, p] for i in order if parts.places[i, p] >= 0)] - 1
            for i in order:
                if parts.places[i, p] >= 0:
                    after = rows[parts.places[i, p]]
                elif (i, p) in new:
                    times = {names.index(each): Cell(texts[i], dates[each][i]) for each, texts in labels.items()}
                    added.append(Added(after, times | series | new[i, p], rows[0]))
        return added


def _in_cells(times: Any) -> Any:
    """Times as cells of workbooks have them: days alone where they are at midnight, text where they have zones."""
    if getattr(times, "tz", None) is not None:
        return times.astype(str)
    has_dates = hasattr(times, "normalize") and times.equals(times.normalize())
    return times.map(lambda time: time.date()) if has_dates else times


def _said(name: str, values: Any, texts: dict[str, int]) -> str:
    marks = ", ".join(f"{text!r} {counted(count, 'time')}" for text, count in texts.items())
    gaps = int(values.isna().sum())
    return f"{name}: {counted(len(values) - gaps, 'value')}, {gaps} missing" + (f" ({marks})" if marks else "")
