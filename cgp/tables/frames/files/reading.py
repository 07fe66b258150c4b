"""The door of files: read with what was understood said, and refused where they can be read in two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cgp.extras import needs_extra

from .account import Understood
from .assembling import Assembled, absent_rows, assembled, pivoted
from .clocks import Rows
from .columns import Columns, columns_of
from .hints import UnclearError, option
from .layout import Layout, cells_of, layout_of
from .options import ReadOptions
from .rows import rows_of
from .sources import Source, TextSource, open_source
from .spacing import median_step, said_step
from .table_file import Pieces, TableFile
from .typed_sources import ParquetSource

__all__ = ["read_table"]


def read_table(path: str | Path, **options: Any) -> TableFile:
    r"""Read a table of a file: text, a workbook, or parquet.

    Delimiter, encoding, header, times and numbers are looked for in the file, and what can be read in two ways is
    refused with the option that decides. What was understood is in the result's ``understood``, which prints itself.

    Args:
        path: .csv, .txt, .tsv, .dat (compressed by .gz, .bz2, .xz), .xlsx or .parquet.
        **options: of :class:`.ReadOptions`: what is known of the file.

    Returns:
        The table: ``frame`` is for :class:`.CorrelatedGPImputer`, ``write`` puts what it fills into the same file.

    Raises:
        UnclearError: if the file can be read in two ways, or in none.
        ValueError: if it is no table.
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
    known = ReadOptions(**options)
    try:
        return _read(path, known)
    except UnclearError as error:
        raise UnclearError(error.text if error.text.startswith(str(path)) else f"{path.name}: {error.text}") from error


def _read(path: Path, options: ReadOptions) -> TableFile:
    source = open_source(path, options)
    layout = _layout(source, options)
    cells = cells_of(source.grid, layout)
    if not isinstance(source, ParquetSource):
        layout, cells = _filled_rows(layout, cells, options)
    _check_names(cells, options)
    rows = _rows(cells, options)
    columns = columns_of(cells.drop(columns=_known_by(rows, options)), options, source.grid.delimiter)
    if not columns.numbers:
        raise UnclearError(f"expected a column of numbers, got none: {columns.left or [*cells]}")
    parts = (pivoted if options.long else assembled)(cells, rows, columns, options)
    understood = _understood(source, layout, rows, columns, parts)
    pieces = Pieces(source, layout, cells, rows, parts, columns.form)
    return TableFile(path, parts.frame, parts.inputs, understood, pieces)


def _layout(source: Source, options: ReadOptions) -> Layout:
    if isinstance(source, ParquetSource):
        options = ReadOptions(header=True, comment="", units_row=False, skip_footer=0)
    return layout_of(source.grid, options)


def _filled_rows(layout: Layout, cells: Any, options: ReadOptions) -> tuple[Layout, Any]:
    """Rows without any cell are left as they are, unless they may be gaps, of rows that are taken in their order."""
    import pandas as pd

    empty = (cells == "").all(axis=1).to_numpy()
    if not empty.any() or cells.shape[1] == 1:
        return layout, cells
    kept = cells[~empty].reset_index(drop=True)
    if not len(kept):
        raise UnclearError("expected rows with something in them, got none")
    if not _rows(kept, options).labels:
        ends = int(pd.Series(empty[::-1]).cumprod().sum())
        if not ends or options.skip_footer is not None:
            return layout, cells
        raise UnclearError(
            f"the last {ends} rows are empty: say {option('skip_footer', ends)} if they are none, "
            f"{option('skip_footer', 0)} if they are gaps"
        )
    rows = [record for record, is_empty in zip(layout.rows, empty, strict=True) if not is_empty]
    return layout._replace(rows=rows, left=[*layout.left, f"{int(empty.sum())} rows without a value"]), kept


def _rows(cells: Any, options: ReadOptions) -> Rows:
    if not options.long:
        return rows_of(cells, options)
    return rows_of(
        cells, ReadOptions(index=[options.long[1]], dayfirst=options.dayfirst, time_format=options.time_format)
    )


def _check_names(cells: Any, options: ReadOptions) -> None:
    absent = [name for name in (*options.long, *options.leave) if name not in cells]
    if absent:
        raise ValueError(f"expected columns of the table, {[*cells]}, got {absent}")


def _known_by(rows: Rows, options: ReadOptions) -> list[str]:
    return [*dict.fromkeys([*rows.columns, *options.long[:1]])]


def _understood(source: Source, layout: Layout, rows: Rows, columns: Columns, parts: Assembled) -> Understood:
    form = f"; {columns.form.said}" if isinstance(source, TextSource) else ""
    header = "none" if layout.header is None else f"line {source.grid.line(layout.header)}"
    left = f"; left as they are: {', '.join(layout.left)}" if layout.left else ""
    values = parts.frame.drop(columns=parts.inputs)
    marks = {name: columns.numbers[field].missing for name, field in zip(values, parts.fields, strict=True)}
    marks = marks if not parts.series else {name: {} for name in marks}
    counts = {
        str(name): (int(column.notna().sum()), int(column.isna().sum()), marks[name]) for name, column in values.items()
    }
    notes = [*layout.repeated, *parts.notes, *_absent(rows, parts)]
    said = _said_rows(rows, len(layout.rows))
    return Understood(f"{source.said}{form}", header + left, said, parts.frame.index, counts, columns.left, notes)


def _said_rows(rows: Rows, count: int) -> str:
    known = ", ".join(map(repr, rows.labels))
    by = f"known by {known}" if known else f"taken in their order ({option('index', 'COLUMN')} names a column)"
    form = f" ({rows.said})" if rows.said and known else ""
    labels = [*rows.labels.values()]
    span = f": {labels[0].min()} to {labels[0].max()}" if len(labels) == 1 else ""
    step = f", mostly {said_step(median_step(rows.times))} apart" if rows.times is not None and count > 1 else ""
    return f"{count}, {by}{form}{span}{step}"


def _absent(rows: Rows, parts: Assembled) -> list[str]:
    """Rows that are not there, where they are not added."""
    if rows.times is None or parts.series or (parts.places < 0).any():
        return []
    count = absent_rows(rows.times)
    step = median_step(rows.times)
    said = option(
        "every", f"{step:g}s" if step % 60 else f"{step / 60:g}min" if step % 86_400 else f"{step / 86_400:g}D"
    )
    return [f"{count} rows are not there, which {said} adds"] if count else []
