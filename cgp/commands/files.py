"""Tables in files: csv and parquet, whose columns are looked through for times and gaps."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Columns", "read_file", "usable_columns", "write_file"]

_PARQUET = (".parquet", ".pq")
_HEAD = 65_536  # characters that the form of a file is read from
_COUNTED = ("", "index", "id", "row", "time", "t")  # names of numbers that rows are known by


class Columns(NamedTuple):
    """The columns of a table that are used.

    Attributes:
        frame: what is filled, with its inputs.
        inputs: columns that say where a row is; none for the index.
        gaps: values that are missing.
        notes: for the user, what was chosen and what is left as it is.
    """

    frame: Any
    inputs: list[str]
    gaps: int
    notes: list[str]


def read_file(path: Path) -> Any:
    """A file as a frame of pandas.

    Args:
        path: of a csv with a header (commas, semicolons with decimal commas, tabs), or a parquet file.

    Returns:
        The frame.

    Raises:
        ValueError: if it is no table.
    """
    import pandas as pd

    try:
        if path.suffix.lower() in _PARQUET:
            frame = pd.read_parquet(path)
            return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
        frame = pd.read_csv(path, **_form(path))
    except (ValueError, csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a table, csv or parquet: {error}") from error
    frame = frame.dropna(axis="columns", how="all").dropna(how="all") if _has_tails(frame) else frame
    if not len(frame) or frame.shape[1] < 1:
        raise ValueError(f"{path}: expected a table with rows below a header, got {len(frame)} rows")
    return frame


def write_file(frame: Any, path: Path) -> None:
    """Write a frame, beside its place first.

    Args:
        frame: of pandas.
        path: parquet by its ending, otherwise csv.
    """
    from cgp.model.weights import write_aside

    if path.suffix.lower() in _PARQUET:
        write_aside(path, lambda aside: frame.to_parquet(aside, index=False))
    else:
        write_aside(path, lambda aside: frame.to_csv(aside, index=False))


def usable_columns(frame: Any, index: str | None, inputs: list[str] | None, codes: list[float]) -> Columns:
    """The columns of a table that can be filled, and its inputs.

    Args:
        frame: as it was read.
        index: the column with the times or numbers of rows, or None to look for one.
        inputs: columns that say where a row is, or None.
        codes: numbers that stand for what is missing.

    Returns:
        The columns; those of text and those without a value are left out.

    Raises:
        ValueError: if a column is not there, or nothing is missing.
    """
    absent = [name for name in [*([index] if index else []), *(inputs or [])] if name not in frame.columns]
    if absent:
        raise ValueError(f"expected columns of the table, {[*frame.columns]}, got {absent}")
    chosen = inputs or ([index] if index else _index_of(frame))
    used = frame.assign(**{name: times for name in chosen if (times := _times(frame[name])) is not None})
    numbers = [name for name in used.columns if name not in chosen and used[name].dtype.kind in "biuf"]
    filled = used[numbers].where(~used[numbers].isin(codes))
    dead = [name for name in numbers if filled[name].isna().all()]
    text = [name for name in used.columns if name not in (*chosen, *numbers)]
    kept = [name for name in numbers if name not in dead]
    gaps = int(filled[kept].isna().sum().sum())
    if not gaps:
        raise ValueError(f"expected gaps in columns of numbers, {kept}, got none; codes are named by --missing -200")
    where = f"rows are known by {', '.join(map(repr, chosen))}" if chosen else "rows are taken in their order"
    notes = [f"{len(frame)} rows, {len(kept)} columns, {gaps} values missing; {where}"]
    notes += [f"left as they are: {text + dead} (no numbers)"] if text or dead else []
    table = used[[*chosen, *kept]]
    return Columns(table if chosen else table.reset_index(drop=True), chosen, gaps, notes)


def _form(path: Path) -> dict[str, Any]:
    """Separator and decimal sign, from the head of a file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        head = file.read(_HEAD)
    if "\0" in head or not head.strip():
        raise ValueError("it is empty" if not head.strip() else "it has bytes that are no text")
    separator = max(";\t|,", key=lambda sign: head.splitlines()[0].count(sign))
    return {"sep": separator, "decimal": "," if separator == ";" and "," in head else ".", "encoding": "utf-8-sig"}


def _has_tails(frame: Any) -> bool:
    """Whether columns have no name and no value, as where lines end in separators."""
    return any(str(name).startswith("Unnamed") and frame[name].isna().all() for name in frame.columns)


def _index_of(frame: Any) -> list[str]:
    """The first column of times, or a first column of growing numbers whose name says so."""
    for name in frame.columns:
        # The time of day, beside a column of dates, repeats every day.
        distinct = 2 * frame[name].nunique() >= len(frame)
        if distinct and frame[name].dtype.kind not in "biuf" and _times(frame[name]) is not None:
            return [name]
    first = frame.columns[0]
    named = str(first).lower() in _COUNTED or str(first).startswith("Unnamed")
    if named and frame[first].dtype.kind in "iuf" and frame[first].is_monotonic_increasing:
        return [first]
    return []


def _times(column: Any) -> Any:
    """A column of text or dates as times, or None if it is none."""
    import pandas as pd

    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.DatetimeTZDtype):
        return column
    if column.dtype.kind in "biuf" or column.isna().any():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of dates whose form is guessed
        try:
            return pd.to_datetime(column, utc=bool(column.astype(str).str.contains(r"[+-]\d\d:?\d\d$").any()))
        except (ValueError, TypeError):
            return None
