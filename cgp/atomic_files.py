"""Files that survive a kill at any moment."""

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_aside"]


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, then rename it: readers see the old file or the complete new one.

    Args:
        path: file.
        write: function that writes the content to a path of the same suffix.
    """
    aside = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
