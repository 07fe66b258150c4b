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
from .columns import IDLE
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
        parts = self.pieces.assembled
        return int((self._missing & ((parts.places >= 0) | parts.is_adding)).sum())

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
        self._write(self._values(filled, "filled"), self._missing, Path(path), is_error=False)

    def write_errors(self, std: Any, path: str | Path) -> None:
        """Write standard deviations in the places of the values, with their digits: 0 for what was observed.

        Args:
            std: as ``frame``.
            path: as in :meth:`write`.

        Raises:
            ValueError: if they do not fit, or nothing can be written there.
        """
        self._write(self._values(std, "std"), np.ones_like(self._missing), Path(path), is_error=True)

    @property
    def _missing(self) -> Any:
        return self.frame.drop(columns=self.inputs).isna().to_numpy()

    def _values(self, values: Any, name: str) -> Any:
        """The values of a frame with the rows and columns of this one, none of which is missing."""
        names = [each for each in self.frame if each not in self.inputs]
        if not hasattr(values, "columns") or not {*names} <= {*values.columns} or len(values) != len(self.frame):
            raise ValueError(f"{name}: expected a frame of {len(self.frame)} rows with the columns {names}")
        if not values.index.equals(self.frame.index):
            raise ValueError(f"{name}: expected the rows of the frame in their order, got another index")
        numbers = values[names].to_numpy(dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"{name}: expected a value in each place, got {int((~np.isfinite(numbers)).sum())} without"
            )
        return numbers

    def _write(self, values: Any, changed: Any, path: Path, *, is_error: bool) -> None:
        self.check_place(path)
        cells, added = self._changes(values, changed, is_error=is_error)
        if self.pieces.source.kind == kind_of_file(path):
            content = self.pieces.source.content(path, cells, added)
        else:
            content = self._converted(cells, added, path)
        write_aside(path, lambda aside: aside.write_bytes(content))

    def _changes(self, values: Any, changed: Any, *, is_error: bool) -> tuple[dict[tuple[int, int], Cell], list[Added]]:
        """Cells of the file that change, and rows that are added to it."""
        parts, rows = self.pieces.assembled, self.pieces.layout.rows
        digits = [self._precision(p) for p in range(parts.places.shape[1])]
        fields = [self.pieces.layout.names.index(name) for name in parts.fields]
        cells: dict[tuple[int, int], Cell] = {}
        new: dict[tuple[int, str | None], dict[int, Cell]] = {}
        for i, p in np.argwhere(changed).tolist():
            text = digits[p].write_error(values[i, p]) if is_error else digits[p].write(values[i, p])
            cell = Cell(text, float(self.pieces.form.numbers([text])[0]))
            if parts.places[i, p] >= 0:
                cells[rows[parts.places[i, p]], fields[p]] = cell
            elif parts.is_adding:
                new.setdefault((i, parts.series[p] if parts.series else None), {})[fields[p]] = cell
        return cells, self._added(new) if new else []

    def _precision(self, column: int) -> Precision:
        rows, name = self.pieces.assembled.places[:, column], self.pieces.assembled.fields[column]
        seen = rows[~self._missing[:, column] & (rows >= 0)]
        return Precision.of(self.pieces.cells[name].iloc[seen].tolist(), self.pieces.form)

    def _added(self, new: dict[tuple[int, str | None], dict[int, Cell]]) -> list[Added]:
        """Rows for times that the file does not have, each after the one before it."""
        assert self.pieces.rows.write is not None
        names, series = self.pieces.layout.names, self.pieces.assembled.series_field
        times = self.frame.index[[row for row, _ in new]]
        labels = self.pieces.rows.write(times)
        before = {name: self._records_before(times, name) for name in {name for _, name in new}}
        rows = []
        for number, ((_, name), cells) in enumerate(new.items()):
            known = {names.index(each): Cell(texts[number], times[number]) for each, texts in labels.items()}
            if name is not None:
                known[names.index(series)] = Cell(name, name)
            rows.append((times[number], Added(before[name][number], known | cells)))
        return [row for _, row in sorted(rows, key=lambda each: each[0], reverse=self._is_reversed)]

    @property
    def _is_reversed(self) -> bool:
        times = self.pieces.rows.times
        return bool(len(times) > 1 and times.is_monotonic_decreasing and not times.is_monotonic_increasing)

    def _records_before(self, further: Any, name: str | None) -> list[int]:
        """The records that further rows follow: of the nearest time before them, in the order of the file."""
        times, rows = self.pieces.rows.times, np.asarray(self.pieces.layout.rows)
        if name is not None:
            own = (self.pieces.cells[self.pieces.assembled.series_field] == name).to_numpy()
            times, rows = times[own], rows[own]
        order = np.argsort(times.to_numpy(), kind="stable")
        ordered = times.iloc[order]
        if self._is_reversed:
            nearest = ordered.searchsorted(further, side="right")
            return [int(rows[order[place]]) for place in nearest]
        nearest = ordered.searchsorted(further, side="left") - 1
        return [int(rows[order[place]]) if place >= 0 else int(rows[order[0]]) - 1 for place in nearest]

    def _converted(self, cells: dict[tuple[int, int], Cell], added: list[Added], path: Path) -> bytes:
        """The table as another kind of file: times as times, numbers as numbers, words as they are."""
        import pandas as pd

        kind = kind_of_file(path)
        whole = self._whole(cells, added, as_text=kind == "text")
        stream = BytesIO()
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

    def _whole(self, cells: dict[tuple[int, int], Cell], added: list[Added], *, as_text: bool) -> Any:
        """All columns with what changes in them, numbers as they were written or as numbers."""
        import pandas as pd

        names, whole = self.pieces.layout.names, self.pieces.cells.copy()
        idle = [name for name, reason in self.understood.left.items() if reason in IDLE]
        numbers = {*self.pieces.assembled.fields, *idle}
        for name in () if as_text else numbers:
            whole[name] = self.pieces.form.numbers(whole[name].tolist())
        place = {record: row for row, record in enumerate(self.pieces.layout.rows)}
        for j in {column for _, column in cells}:
            changes = {place[record]: cell for (record, column), cell in cells.items() if column == j}
            whole.loc[[*changes], names[j]] = [cell.text if as_text else cell.value for cell in changes.values()]
        if len(self.pieces.rows.columns) == 1:
            whole[self.pieces.rows.columns[0]] = next(iter(self.pieces.rows.labels.values()))
        if added:
            rows = [
                {names[j]: c.text if as_text and names[j] in numbers else c.value for j, c in row.cells.items()}
                for row in added
            ]
            keys = [*self.pieces.layout.rows, *(row.after + 0.5 for row in added)]
            whole = pd.concat([whole, pd.DataFrame(rows)]).set_axis(keys).sort_index(kind="stable")
        return whole
