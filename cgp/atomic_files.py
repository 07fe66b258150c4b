"""Files that survive a kill at any moment."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["write_aside"]

_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, then rename it: readers see the old file or the complete new one.

    A symbolic link stays one, and the file that it leads to is replaced; mode and owner are kept. What is no file (a
    pipe, a terminal, /dev/null, /dev/stdout) is written to as it is, once everything is there.

    Args:
        path: file.
        write: function that writes the content to a path of the same suffix.

    Raises:
        FileNotFoundError: if its folder is none.
        ValueError: if there is a folder, a disk or a socket.
    """
    if _is_stream(path):
        with tempfile.TemporaryDirectory() as folder:
            aside = Path(folder) / f"aside{path.suffix}"
            write(aside)
            with aside.open("rb") as source, path.open("wb") as stream:
                shutil.copyfileobj(source, stream)
        return
    place = path.resolve()
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected a place in a folder that exists, got {place.parent}, which is none")
    before = place.stat() if place.exists() else None
    aside = place.with_name(f".{place.stem}-{os.getpid()}{place.suffix}")
    try:
        write(aside)
        if before is not None:
            _take_over(aside, before)
        aside.replace(place)
    finally:
        aside.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether a path leads to what is written to, rather than replaced."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISREG(mode):
        return str(path.absolute().parent) in _STREAMS
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    kind = "folder" if stat.S_ISDIR(mode) else "disk" if stat.S_ISBLK(mode) else "socket"
    raise ValueError(f"{path}: expected a file to write, got a {kind}")


def _take_over(aside: Path, before: os.stat_result) -> None:
    """Give a file the owner, where that is allowed, and the mode of the one that it replaces."""
    with suppress(PermissionError, AttributeError):  # nobody may, or Windows
        os.chown(aside, before.st_uid, before.st_gid)
    aside.chmod(stat.S_IMODE(before.st_mode))
