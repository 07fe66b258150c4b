"""Files and folders that survive a kill at any moment, and are never destroyed by a later run."""

import contextlib
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from filelock import FileLock, Timeout
from numpy.typing import NDArray

__all__ = ["OutputFolder", "open_output", "read_arrays", "read_json", "write_atomically", "write_json", "write_text"]

_CONFIG = "config.yaml"
_COMPLETE = "complete.json"
_LOCK = ".lock"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file aside and rename it: readers see the old file or the whole new one.

    Args:
        path: the file to write; its folder is made if need be.
        write: writes to the path that it is given.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "a" / "b.txt", lambda aside: aside.write_text("hello"))
        ...     (Path(folder) / "a" / "b.txt").read_text()
        'hello'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Args:
        path: the file to write.
        text: what it shall hold.
    """
    write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically.

    Args:
        path: the file to write.
        content: what it shall hold.
    """
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Args:
        path: the file.

    Raises:
        ValueError: if it is damaged; names it.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got a damaged file ({error})") from error


def read_arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read arrays of an npz file.

    Args:
        path: the file.
        names: which; those that are not there are left out.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged; names it.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. `python -m experiments predict RUN` predicts what is missing")
    try:
        # NumPy leaves a file that it opened itself open where it turns out to be damaged.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in names if name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: expected arrays, got a damaged file ({error}); remove it and predict again"
        ) from error


class OutputFolder(NamedTuple):
    """A folder that one run at a time may write.

    Attributes:
        path: the folder.
        message: in words, what became of the folder that was asked for.
    """

    path: Path
    message: str

    def complete(self, content: Mapping[str, Any]) -> None:
        """Mark the run as complete: no later run writes here.

        Args:
            content: what to note in the mark.
        """
        write_json(self.path / _COMPLETE, content)


@contextlib.contextmanager
def open_output(asked: Path, config: Mapping[str, Any]) -> Iterator[OutputFolder]:
    """Open a folder to write: new, or an interrupted run of the same configuration to go on with.

    A folder that holds a complete run, a run of another configuration, a run that is being written, or
    anything else is left alone; the first free `NAME-2`, `NAME-3`, … beside it is taken instead.

    Args:
        asked: the folder to write if possible.
        config: the resolved configuration, of plain values.

    Yields:
        The folder, locked.
    """
    resolved = yaml.safe_dump(dict(config), sort_keys=False)
    reasons: list[str] = []
    for path in _candidates(asked):
        obstacle = _obstacle(path, resolved)
        lock = None if obstacle else _lock(path)
        if lock is not None:
            break
        reasons.append(f"{path} {obstacle or 'is being written by another process'} and is left as it is")
    with lock:
        action = f"going on with the interrupted run in {path}" if _content(path) else f"writing to {path}"
        write_text(path / _CONFIG, resolved)
        yield OutputFolder(path, "; ".join([*reasons, action]))


def _candidates(asked: Path) -> Iterator[Path]:
    """Yield the folder asked for, then its siblings without end."""
    yield asked
    for number in itertools.count(2):
        yield asked.with_name(f"{asked.name}-{number}")


def _lock(path: Path) -> FileLock | None:
    """Make the folder and lock it, or return nothing if another process holds it."""
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def _content(path: Path) -> set[str]:
    """Return the names in a folder, its lock apart."""
    return {entry.name for entry in path.iterdir()} - {_LOCK}


def _obstacle(path: Path, resolved: str) -> str | None:
    """Say why a folder may not be written, if so."""
    if not path.exists():
        return None
    if not path.is_dir():
        return "is a file"
    content = _content(path)
    if _COMPLETE in content:
        return "holds a complete run"
    if content and _CONFIG not in content:
        return "holds something else"
    if content and (path / _CONFIG).read_text(encoding="utf-8") != resolved:
        return "holds a run of another configuration"
    return None
