"""What the commands share: lines for the user, pictures written aside, and errors before anything heavy is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

__all__ = ["check_extras", "check_files", "check_pictures", "check_places", "say", "shown_by", "write_picture"]


_PICTURES = (".png", ".pdf", ".svg", ".jpg")


def say(text: str) -> None:
    """Write a line to the standard error stream."""
    sys.stderr.write(f"{text}\n")


def shown_by(command: str) -> Callable[..., None]:
    """What the module warnings shows a warning with: a line; the place in the code says nothing to a user."""

    def show(
        message: Warning | str,
        category: type[Warning],  # noqa: ARG001
        filename: str,  # noqa: ARG001
        lineno: int,  # noqa: ARG001
        file: TextIO | None = None,  # noqa: ARG001
        line: str | None = None,  # noqa: ARG001
    ) -> None:
        say(f"cgp {command}: warning: {message}")

    return show


def check_files(paths: Iterable[Path]) -> None:
    """Refuse to read what is not there."""
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")


def check_places(paths: Iterable[Path | None]) -> None:
    """Refuse to write where there is no folder."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{path}: no folder {path.absolute().parent}")


def check_pictures(paths: Iterable[Path]) -> None:
    """Refuse a picture of a kind that is not drawn."""
    for path in paths:
        if path.suffix.lower() not in _PICTURES:
            raise ValueError(f"{path}: expected a picture, {', '.join(_PICTURES)}, got {path.suffix!r}")


def check_extras(needed: dict[str, str]) -> None:
    """Refuse what needs a package that is not installed; ``needed`` has the extra of each."""
    for package, extra in needed.items():
        if find_spec(package) is None:
            raise ImportError(f'needs {package}, which the extra {extra!r} installs: pip install "cgp[{extra}]"')


def write_picture(draw: Callable[[], Any], path: Path | None) -> None:
    """Draw a figure and write it to a path, if there is one, beside its place first."""
    if path is None:
        return
    import matplotlib as mpl

    from cgp.atomic_files import write_aside

    mpl.use("agg")
    figure = draw()
    write_aside(path, lambda aside: figure.savefig(aside, format=path.suffix.lstrip(".").lower()))
