"""Tables in files: csv, compressed or not, and parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

__all__ = ["check_kind", "read_file", "write_file"]

_PARQUET = (".parquet", ".pq")
_ENGINES = ("pyarrow", "fastparquet")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_COMPRESSED: Mapping[str, tuple[str, Callable[..., TextIO]]] = {
    ".gz": ("gzip", gzip.open),
    ".bz2": ("bz2", bz2.open),
    ".xz": ("xz", lzma.open),
}
_WRITTEN = ("sep", "decimal")
_HEAD = 65_536  # characters that the form of a file is read from
_DECIMAL_COMMA = r'(?m)(?:^|{0})\s*"?[-+]?\d+,\d+"?\s*(?={0}|\r?$)'


def check_kind(path: Path) -> None:
    """Refuse a file that cannot be read or written, by its ending.

    Args:
        path: of a table.

    Raises:
        ValueError: if it is a spreadsheet.
        ImportError: if it is parquet, and nothing that reads it is installed.
    """
    if path.suffix.lower() in _SPREADSHEETS:
        raise ValueError(f"{path}: expected csv or parquet, got a spreadsheet: save it as csv")
    if path.suffix.lower() in _PARQUET and not any(map(find_spec, _ENGINES)):
        raise ImportError(f"{path}: parquet needs pyarrow: pip install pyarrow")


def read_file(path: Path) -> Any:
    """A file as a frame of pandas.

    Args:
        path: of a csv with a header (commas, semicolons, tabs; decimal points or commas; gzip, bz2 or xz; lines that
            start with # before the header are skipped), or a parquet file.

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
        frame = _read_csv(path)
    except (ValueError, csv.Error, EOFError, OSError, lzma.LZMAError) as error:
        raise ValueError(f"{path}: expected a table, csv or parquet: {error}") from error
    frame = frame.dropna(axis="columns", how="all").dropna(how="all") if _has_tails(frame) else frame
    if not len(frame) or frame.shape[1] < 1:
        raise ValueError(f"{path}: expected a table with rows below a header, got {len(frame)} rows")
    return frame


def write_file(frame: Any, path: Path) -> None:
    """Write a frame, beside its place first.

    Args:
        frame: of pandas.
        path: parquet by its ending, otherwise csv, compressed by its ending, with the separator and the decimal sign of
            the csv that the frame was read from.
    """
    from cgp.atomic_files import write_aside

    if path.suffix.lower() in _PARQUET:
        write_aside(path, lambda aside: frame.to_parquet(aside, index=False))
    else:
        kind = _COMPRESSED.get(path.suffix.lower(), (None,))[0]
        form = {name: frame.attrs[name] for name in _WRITTEN if name in frame.attrs}
        write_aside(path, lambda aside: frame.to_csv(aside, index=False, compression=kind, **form))


def _read_csv(path: Path) -> Any:
    """A csv in UTF-8, or else in the encoding of Western Windows, as spreadsheets write it."""
    import pandas as pd

    for encoding in ("utf-8-sig", "cp1252"):
        try:
            form = _form(path, encoding)
            frame = pd.read_csv(path, **form, encoding=encoding)
        except UnicodeDecodeError:
            continue
        frame.attrs = {name: form[name] for name in _WRITTEN}  # what is written has the form of what was read
        return frame
    raise ValueError("it has bytes that are no text")


def _form(path: Path, encoding: str) -> dict[str, Any]:
    """Separator, decimal sign and lines before the header, from the head of a file."""
    opened = _COMPRESSED.get(path.suffix.lower(), ("", open))[1]
    with opened(path, "rt", encoding=encoding, newline="") as file:
        head = file.read(_HEAD)
    if "\0" in head or not head.strip():
        raise ValueError("it is empty" if not head.strip() else "it has bytes that are no text")
    lines = head.splitlines()
    skipped = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    separator = max(";\t|,", key=lines[skipped].count)
    is_comma = separator != "," and re.search(_DECIMAL_COMMA.format(re.escape(separator)), head)
    return {"sep": separator, "decimal": "," if is_comma else ".", "skiprows": skipped}


def _has_tails(frame: Any) -> bool:
    """Whether columns have no name and no value, as where lines end in separators."""
    return any(str(name).startswith("Unnamed") and frame[name].isna().all() for name in frame.columns)
