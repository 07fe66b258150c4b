"""Files that survive a kill at any moment: written under another name and renamed, checked when they are read."""

import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from cgp.atomic_files import write_aside

__all__ = ["read_arrays", "read_json", "read_yaml", "write_atomically", "write_json", "write_text"]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file aside and rename it, in a folder that is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of `write_json`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got a damaged file ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, got {type(content).__name__}")
    return content


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings by name."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        words = " ".join(str(error).split())
        raise ValueError(f"config: {path} cannot be read ({words}). Expected YAML") from error
    if not isinstance(content, dict):
        raise ValueError(f"config: expected settings by name in {path}, got {content!r}")
    return content


class _Loader(yaml.SafeLoader):
    """YAML loader that reads 1e-3 as a number, and raises for a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)} twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read arrays of an npz file."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. `python -m experiments predict RUN` predicts what is missing")
    try:
        # NumPy does not close a damaged file that it opened itself.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in names if name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: expected arrays, got a damaged file ({error}); remove it and predict again"
        ) from error
