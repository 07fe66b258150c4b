"""The door of files: read with what was understood said, and refused where they can be read in two ways."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from cgp.extras import needs_extra
from cgp.spelling import counted, meant, said_times

from .assembling import FEW_REPEATS, Assembled, pivoted, said_step, usual_step, wide
from .columns import PADDED, Columns, columns_of
from .layout import Layout, cells_of, layout_of
from .options import ReadOptions, UnclearError, check_columns, option
from .rows import Rows, calendar_columns, rows_of
from .sources import ParquetSource, Source, TextSource, open_source
from .table_file import Pieces, TableFile, Understood

__all__ = ["read_table"]

# A parquet file has names and rows, and nothing else
_TYPED: dict[str, Any] = {"header": True, "comment": "", "units_row": False, "skip_rows": None, "skip_footer": 0}


def read_table(path: str | Path, **options: Any) -> TableFile:
    r"""Read a table of a file: text, a workbook, or parquet.

    Delimiter, encoding, header, times and numbers are looked for in the file, and what can be read in two ways is
    refused with the option that decides. What was understood is in the result's ``understood``, which prints itself.

    Args:
        path: .csv, .txt, .tsv, .dat (compressed by .gz, .bz2, .xz), .xlsx or .parquet.
        **options: of :class:`.ReadOptions`: what is known of the file.

    Returns:
        The table: ``frame`` is for :class:`.CorrelatedGPImputer`, ``write`` puts what it fills into the same file. The
        units of a row of units are in ``frame.attrs["units"]``, from where pictures have them.

    Raises:
        UnclearError: if the file can be read in two ways, or in none.
        ValueError: if it is no table.
        TypeError: for an option that is not there.
        FileNotFoundError: if there is no such file.
        ImportError: if pandas, or what reads such a file, is not installed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "in.csv").write_text("day;flow\n30.01.2024;1,5\n31.01.2024;\n01.02.2024;2,5\n")
        >>> table = read_table(folder / "in.csv")
        >>> table.gaps, str(table.frame.index[0]), table.frame["flow"].tolist()
        (1, '2024-01-30 00:00:00', [1.5, nan, 2.5])
        >>> table.write(table.frame.fillna(2.04), folder / "out.csv")
        >>> (folder / "out.csv").read_text()
        'day;flow\n30.01.2024;1,5\n31.01.2024;2,0\n01.02.2024;2,5\n'
    """
    with needs_extra("frames", "read_table"):
        import pandas as pd  # noqa: F401
    path = Path(path)
    names = [each.name for each in fields(ReadOptions)]
    if strange := [name for name in options if name not in names]:
        raise TypeError(f"read_table: expected options of ReadOptions, {names}, got {strange}{meant(strange, names)}")
    known = ReadOptions(**options)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        return _read(path, known)
    except UnclearError as error:
        raise UnclearError(error.text if error.text.startswith(str(path)) else f"{path.name}: {error.text}") from error


def _read(path: Path, options: ReadOptions) -> TableFile:
    source = open_source(path, options)
    is_typed = isinstance(source, ParquetSource)
    layout = layout_of(source.grid, replace(options, **_TYPED) if is_typed else options)
    cells = cells_of(source.grid, layout)
    check_columns(options, ("long", "leave", "numbers"), cells)
    layout, cells = (layout, cells) if is_typed else _filled_rows(layout, cells, options)
    layout, cells, rows = _once_each(layout, cells, options)
    others = cells.drop(columns={*rows.columns, *options.long[:1]})
    columns = columns_of(others, options, source.grid.delimiter, calendar_columns(cells, rows))
    if not columns.numbers:
        raise UnclearError(f"expected a column of numbers, got none: {columns.left or [*cells]}")
    assembled = (pivoted if options.long else wide)(cells, rows, columns, options)
    if units := _units(source, layout, assembled):
        assembled.frame.attrs["units"] = units
    understood = _understood(source, layout, rows, columns, assembled)
    return TableFile(path, understood, Pieces(source, layout, cells, rows, columns, assembled))


def _filled_rows(layout: Layout, cells: Any, options: ReadOptions) -> tuple[Layout, Any]:
    """Rows without any cell are left as they are, unless they may be gaps, of rows that are taken in their order."""
    empty = (cells == "").all(axis=1).to_numpy()
    if not empty.any() or cells.shape[1] == 1:
        return layout, cells
    kept = cells[~empty].reset_index(drop=True)
    if not len(kept):
        raise UnclearError("expected rows with something in them, got none")
    if rows_of(kept, options).labels:
        rows = [record for record, is_empty in zip(layout.rows, empty, strict=True) if not is_empty]
        return layout._replace(
            rows=rows, left=[*layout.left, f"{counted(int(empty.sum()), 'row')} without a value"]
        ), kept
    ends = int(empty[::-1].cumprod().sum())
    if not ends or options.skip_footer is not None:
        return layout, cells
    raise UnclearError(
        f"the last {counted(ends, 'row is', 'rows are')} empty: say {option('skip_footer', ends)} if they are none, "
        f"{option('skip_footer', 0)} if they are gaps"
    )


def _once_each(layout: Layout, cells: Any, options: ReadOptions) -> tuple[Layout, Any, Rows]:
    """Lines that repeat another one, as where a logger is read out twice, are no rows; the last of them is one."""
    # Where many more repeat a time, times of day may be absent, and zeros of rain the same: these are refused later
    again = cells.duplicated(keep="last").to_numpy()
    if not again.any() or options.repeats:
        return layout, cells, rows_of(cells, options)
    kept = cells[~again].reset_index(drop=True)
    rows = rows_of(kept, options)
    labels = [*rows.labels.values()]
    others = int(labels[0].duplicated().sum()) if len(labels) == 1 and not options.long else 0
    if len(labels) != 1 or (others and others + again.sum() > FEW_REPEATS * len(cells)):
        return layout, cells, rows_of(cells, options)
    records = [record for record, is_twin in zip(layout.rows, again, strict=True) if not is_twin]
    first = dict(zip(kept.itertuples(index=False, name=None), records, strict=True))
    twins = {layout.rows[n]: first[tuple(cells.iloc[n])] for n in np.flatnonzero(again).tolist()}
    return layout._replace(rows=records, twins=twins), kept, rows


def _units(source: Source, layout: Layout, assembled: Assembled) -> dict[str, str]:
    """What the first row of units says of each column of the frame, without brackets."""
    if not layout.units:
        return {}
    texts = dict(zip(layout.names, source.grid.fields(layout.units[0]), strict=False))
    found = {
        name: texts.get(field, "").strip("()[] ")
        for name, field in zip(assembled.values, assembled.fields, strict=True)
    }
    return {name: unit for name, unit in found.items() if unit}


def _understood(source: Source, layout: Layout, rows: Rows, columns: Columns, assembled: Assembled) -> Understood:
    form = f"; {columns.form.said}" if isinstance(source, TextSource) else ""
    header = "none" if layout.header is None else f"line {source.grid.line(layout.header)}"
    left = f"; left as they are: {', '.join(layout.left)}" if layout.left else ""
    counts = {
        str(name): (values, {} if assembled.series else columns.numbers[field].missing)
        for (name, values), field in zip(assembled.values.items(), assembled.fields, strict=True)
    }
    padded = [name for name, reason in columns.left.items() if reason == PADDED]
    taken = [f"{option('numbers', padded)} takes numbers with leading zeros for numbers"] if padded else []
    halved = sum(columns.numbers[name].halved for name in {*assembled.fields})
    one, more = "value below a limit counts", "values below a limit count"
    below = [f"{counted(halved, one, more)} as half of it: intervals do not know that"] if halved else []
    twins = _said_twins(layout, is_long=bool(assembled.series))
    notes = [*layout.repeated, *twins, *assembled.notes, *taken, *below]
    said = _said_rows(rows, assembled)
    return Understood(f"{source.said}{form}", header + left, said, counts, columns.left, assembled.lacking, notes)


def _said_twins(layout: Layout, *, is_long: bool) -> list[str]:
    if not (count := len(layout.twins)):
        return []
    lines_are = counted(count, "line is the same as another", "lines are the same as others")
    they = "it counts" if count == 1 else "they count"
    otherwise = "" if is_long else f" ({option('repeats')} counts each as a reading)"
    return [f"{lines_are}: {they} once, and what is filled is written into each{otherwise}"]


def _said_rows(rows: Rows, assembled: Assembled) -> str:
    """Those of the frame: the columns are counted with what was added, too."""
    count, added = len(assembled.frame), int((assembled.places < 0).all(axis=1).sum())
    of_them = f", {added} of them added" if added else ""
    if not rows.labels:
        return f"{count}, taken in their order ({option('index', 'COLUMN')} names a column)"
    form = f" ({rows.said})" if rows.said else ""
    labels = [*rows.labels.values()]
    span = f": {' to '.join(said_times([labels[0].min(), labels[0].max()]))}" if len(labels) == 1 else ""
    step = f", mostly {said_step(usual_step(rows.times))} apart" if rows.times is not None and count > 1 else ""
    return f"{count}{of_them}, known by {', '.join(map(repr, rows.labels))}{form}{span}{step}"
