"""A table of a file: a frame to be filled, what was understood of the file, and the way back into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgp.atomic_files import write_aside

from .account import Understood
from .assembling import Assembled
from .changes import Added, Cell
from .clocks import Rows
from .encoded import packed
from .layout import Layout
from .notation import NumberForm, Precision
from .sources import Source, TextSource, check_kind, is_delimited_as, kind_of_file

__all__ = ["Pieces", "TableFile"]


class Pieces(NamedTuple):
    """What a file was taken apart into.

    Attributes:
        source: the file.
        layout: which of its lines are rows.
        cells: the text of these.
        rows: what they are known by.
        assembled: the frame, and where its cells are among them.
        form: of the numbers.
    """

    source: Source
    layout: Layout
    cells: Any
    rows: Rows
    assembled: Assembled
    form: NumberForm


@dataclass(frozen=True)
class TableFile:
    """A table that was read from a file by :func:`.read_table`.

    Attributes:
        path: of the file.
        frame: its columns of numbers, NaN where missing; the index is of times, numbers, or the order of the rows.
        inputs: columns of the frame that say where a row is, as ``CorrelatedGPImputer(inputs=...)`` takes them; none
            where the index says it.
        understood: what was understood of the file.
        pieces: of the file, with the places of its cells, for :meth:`write`.
    """

    path: Path
    frame: Any
    inputs: list[str]
    understood: Understood
    pieces: Pieces = field(repr=False)

    @property
    def gaps(self) -> int:
        """How many values are missing that have a place in the file, or get one."""
        return int((self._missing & self._has_place).sum())

    @property
    def delimiter(self) -> str:
        """What is between the fields of the file, a comma where it is no text or fields are apart by blanks."""
        sign = self.pieces.source.grid.delimiter if isinstance(self.pieces.source, TextSource) else ","
        return sign if sign in ";,|\t" else ","

    def precision(self, name: str) -> Precision:
        """The digits of a column of the frame."""
        return self._precision([each for each in self.frame if each not in self.inputs].index(name))

    def check_place(self, path: str | Path) -> None:
        """Refuse a path that the table cannot be written to, by its ending.

        Args:
            path: of a file.

        Raises:
            ValueError: if it is of a kind that is not written, or its fields are apart by something else than tabs.
        """
        check_kind(path := Path(path))
        if isinstance(self.pieces.source, TextSource) and kind_of_file(path) == "text":
            sign = self.pieces.source.grid.delimiter
            if not is_delimited_as(path, sign):
                raise ValueError(
                    f"{path}: expected .csv or .txt, as there is {sign!r} between the fields, got {path.suffix!r}"
                )

    def write(self, filled: Any, path: str | Path) -> None:
        """Write the file with its gaps filled: all else stays as it is, byte for byte in text.

        Args:
            filled: as ``frame``, without gaps.
            path: of the same kind of file, or of another one, by its ending.

        Raises:
            ValueError: if the values do not fit, or nothing can be written there.
        """
        self._write(self._values(filled), self._missing, Path(path), is_error=False)

    def write_errors(self, std: Any, path: str | Path) -> None:
        """Write standard deviations in the places of the values, with their digits: 0 for what was observed.

        Args:
            std: as ``frame``.
            path: as in :meth:`write`.

        Raises:
            ValueError: if they do not fit, or nothing can be written there.
        """
        self._write(self._values(std), np.ones_like(self._missing), Path(path), is_error=True)

    @property
    def _missing(self) -> Any:
        return self.frame.drop(columns=self.inputs).isna().to_numpy()

    @property
    def _has_place(self) -> Any:
        is_added = (self.pieces.assembled.places < 0).all(axis=1, keepdims=True) & (not self.pieces.assembled.series)
        return (
            (self.pieces.assembled.places >= 0)
            | is_added
            | bool(self.pieces.assembled.series and not self.frame.attrs.get("absent"))
        )

    def _values(self, values: Any) -> Any:
        names = [name for name in self.frame if name not in self.inputs]
        if [*getattr(values, "columns", [])] and len(values) == len(self.frame) and {*names} <= {*values.columns}:
            return values[names].to_numpy(dtype=np.float64)
        raise ValueError(f"filled: expected a frame of {len(self.frame)} rows with the columns {names}")

    def _write(self, values: Any, changed: Any, path: Path, *, is_error: bool) -> None:
        self.check_place(path)
        cells, added = self._changes(values, changed, is_error=is_error)
        if type(self.pieces.source).__name__.lower().startswith(kind_of_file(path)):
            content = self.pieces.source.content(path, cells, added)
        else:
            content = self._converted(cells, added, path)
        write_aside(path, lambda aside: aside.write_bytes(content))

    def _changes(self, values: Any, changed: Any, *, is_error: bool) -> tuple[dict[tuple[int, int], Cell], list[Added]]:
        """Cells of the file that change, and rows that are added to it."""
        places, columns = self.pieces.assembled.places, {name: j for j, name in enumerate(self.pieces.layout.names)}
        digits = [self._precision(p) for p in range(places.shape[1])]
        cells: dict[tuple[int, int], Cell] = {}
        new: dict[int, dict[int, Cell]] = {}
        for i, p in zip(*np.nonzero(changed), strict=True):
            value = float(values[i, p])
            text = digits[p].write_error(value) if is_error else digits[p].write(value)
            cell = Cell(text, self._form_number(text))
            if places[i, p] >= 0:
                cells[self.pieces.layout.rows[places[i, p]], columns[self.pieces.assembled.fields[p]]] = cell
            elif not self.frame.attrs.get("absent"):
                new.setdefault(int(i) * places.shape[1] + int(p) if self.pieces.assembled.series else int(i), {})[
                    int(p)
                ] = cell
        return cells, self._added(new, columns) if new else []

    def _form_number(self, text: str) -> float:
        plain = self.pieces.form.plain(text)
        assert plain is not None
        return float(plain)

    def _precision(self, column: int) -> Precision:
        rows = self.pieces.assembled.places[:, column]
        seen = ~self._missing[:, column] & (rows >= 0)
        return Precision.of(
            self.pieces.cells[self.pieces.assembled.fields[column]].to_numpy()[rows[seen]].tolist(), self.pieces.form
        )

    def _added(self, new: dict[int, dict[int, Cell]], columns: dict[str, int]) -> list[Added]:
        """Rows for times that the file does not have, each after the one before it."""
        assert self.pieces.rows.write is not None
        width, is_long = self.pieces.assembled.places.shape[1], bool(self.pieces.assembled.series)
        times = [self.frame.index[key // width if is_long else key] for key in new]
        labels = self.pieces.rows.write(times)
        rows = []
        for number, (key, cells) in enumerate(new.items()):
            known = {columns[name]: Cell(texts[number], times[number]) for name, texts in labels.items()}
            series = self.pieces.assembled.series[key % width] if is_long else None
            if series is not None:
                known[columns[self._names_of_series]] = Cell(series, series)
            known |= {columns[self.pieces.assembled.fields[p]]: cell for p, cell in cells.items()}
            rows.append((times[number], Added(self._record_before(times[number], series), known)))
        return [row for _, row in sorted(rows, key=lambda each: each[0], reverse=self._is_reversed)]

    @property
    def _names_of_series(self) -> str:
        return next(name for name in self.pieces.cells if {*self.pieces.assembled.series} == {*self.pieces.cells[name]})

    @property
    def _is_reversed(self) -> bool:
        return bool(self.pieces.rows.times.is_monotonic_decreasing and len(self.pieces.rows.times) > 1)

    def _record_before(self, time: Any, series: str | None) -> int:
        """The record that a further row follows: the nearest time before it in the order of the file."""
        times = self.pieces.rows.times
        own = times if series is None else times[self.pieces.cells[self._names_of_series] == series]
        earlier = own[own > time] if self._is_reversed else own[own < time]
        if earlier.empty:
            return self.pieces.layout.rows[int(own.index[0])] - 1
        nearest = earlier[earlier == (earlier.min() if self._is_reversed else earlier.max())]
        return self.pieces.layout.rows[int(nearest.index[-1])]

    def _converted(self, cells: dict[tuple[int, int], Cell], added: list[Added], path: Path) -> bytes:
        """The table as another kind of file: times as times, numbers as numbers, words as they are."""
        import pandas as pd

        whole = self._typed(cells, added)
        stream = BytesIO()
        kind = kind_of_file(path)
        if kind == "parquet":
            whole.to_parquet(stream, index=False)
        elif kind == "workbook":
            for name in whole.select_dtypes("datetimetz"):
                whole[name] = whole[name].astype(str)
            with pd.ExcelWriter(stream, engine="openpyxl") as writer:
                whole.to_excel(writer, index=False)
        else:
            sign = "\t" if not is_delimited_as(path, ",") else ","
            return packed(whole.to_csv(index=False, sep=sign, lineterminator="\n").encode(), path)
        return stream.getvalue()

    def _typed(self, cells: dict[tuple[int, int], Cell], added: list[Added]) -> Any:
        import pandas as pd

        place = {record: row for row, record in enumerate(self.pieces.layout.rows)}
        whole = self.pieces.cells.copy()
        numbers = dict.fromkeys(self.pieces.assembled.fields)
        for name in numbers:
            texts = [self.pieces.form.plain(text) for text in whole[name]]
            whole[name] = [np.nan if text is None else float(text) for text in texts]
        for j, name in enumerate(self.pieces.layout.names):
            changes = {place[record]: cell.value for (record, column), cell in cells.items() if column == j}
            if changes:
                whole.loc[[*changes], name] = [*changes.values()]
        if len(self.pieces.rows.columns) == 1:
            whole[self.pieces.rows.columns[0]] = next(iter(self.pieces.rows.labels.values()))
        if added:
            new = pd.DataFrame([{self.pieces.layout.names[j]: c.value for j, c in row.cells.items()} for row in added])
            keys = [*self.pieces.layout.rows, *(row.after + 0.5 for row in added)]
            whole = pd.concat([whole, new]).set_axis(keys).sort_index(kind="stable")
        return whole
