"""What the commands share: lines for the user, pictures written aside, and errors before anything heavy is imported."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from cgp.spelling import counted

__all__ = [
    "check_extras",
    "check_files",
    "check_pictures",
    "check_places",
    "folded",
    "in_flags",
    "said_seconds",
    "said_together",
    "say",
    "shown_by",
    "write_picture",
]


_FLAGS = {
    "missing_values": "--missing",
    "steps": "--forecast",
    "random_state": "--seed",
    "train": "--train",
    "maskings": "--maskings",
}
_SAME = ("inputs", "transforms", "index", "long", "every", "missing", "leave", "time_format", "decimal", "thousands")
_WRITTEN = ("periods", "delimiter", "encoding", "sheet", "skip_rows", "skip_footer")
_FLAGS |= {name: "--" + name.replace("_", "-") for name in (*_SAME, *_WRITTEN)}
_ARGUMENT = re.compile(rf"\b({'|'.join(_FLAGS)})=('?)([^\s',;)]+)\2")
_BUSY = 1.5  # processes at work for each core
_BY_NAME = re.compile(r"""\btransforms=(\{(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"}])*\})""")
_CYCLES = re.compile(r"structure=MultiScale\(periods=\[([^\]]*)\]\)")
_STEPS = re.compile(r"; inference=MAP\(max_steps=\d+\) takes more steps")  # which has no flag
_PYTHON = {
    "pandas.to_datetime(..., dayfirst=True), or format=, tells": "--dayfirst, --monthfirst or --time-format tells",
    "sums that lack some are NaN": "sums that lack some are empty",
    "NaN in its place": "an empty field in its place",
    "if the table has empty rows there": "if lines of their times are added to the file, with empty fields",
    "table.asfreq(...) before the fit makes": "--every STEP makes",
    "are added by frame.asfreq, or frame.reindex": "are added by --every STEP",
    ", an object such as BoxCox(), or None, got": ", got",
    "leave out a column that follows exactly": "--leave COLUMN for one that follows exactly",
    "take logarithms of one": "--transforms COLUMN=log for one",
}
_WIDTH = 100
_PICTURES = (".png", ".pdf", ".svg", ".jpg")


def say(text: str) -> None:
    """Write a line to the standard error stream."""
    sys.stderr.write(f"{text}\n")


def folded(text: str) -> str:
    """A text whose lines are folded to the terminal's width, of at most 100 signs, each as far in as it starts."""
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 1)).columns)
    indented = ((line, line[: len(line) - len(line.lstrip())]) for line in text.splitlines())
    return "\n".join(textwrap.fill(line, width, subsequent_indent=indent) for line, indent in indented)


def said_seconds(coming: float) -> str:
    """Seconds that are to come, of one core, or on the clock of a machine that is busy.

    Args:
        coming: seconds of one core that are expected.

    Returns:
        A part of a line, such as "about 7 s more on one core".
    """
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load < _BUSY * cores:
        return f"about {coming:.0f} s more on one core"
    return f"about {coming * load / cores:.0f} s more ({counted(cores, 'core')} shared by {load:.0f} processes)"


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
        say(f"cgp {command}: warning: {in_flags(str(message))}")

    return show


@contextmanager
def said_together() -> Iterator[None]:
    """Show the warnings of values below 0, of what is filled and of a forecast, as one, and others once."""
    from cgp.tables.frames.codes import BelowZeroWarning

    show, found, said = warnings.showwarning, list[BelowZeroWarning](), set[str]()

    def keep(message: Warning | str, *others: Any, **named: Any) -> None:
        if isinstance(message, BelowZeroWarning):
            found.append(message)
        elif str(message) not in said:
            said.add(str(message))
            show(message, *others, **named)

    warnings.showwarning = keep
    try:
        yield
    finally:
        warnings.showwarning = show
        if found:
            transforms = {name: kind for each in found for name, kind in each.transforms.items()}
            show(BelowZeroWarning(", ".join(each.said for each in found), transforms), BelowZeroWarning, "", 0)


def in_flags(text: str) -> str:
    """A text of the library whose arguments are spelled as the command line does."""
    name, colon, rest = text.partition(": ")
    if colon and (name in ("X", "table") or name in _FLAGS):
        text = f"{_FLAGS[name]}: {rest}" if name in _FLAGS else rest
    for spelled, on_the_command_line in _PYTHON.items():
        text = text.replace(spelled, on_the_command_line)
    text = _CYCLES.sub(lambda m: " ".join([_FLAGS["periods"], *(span.strip(" '") for span in m[1].split(","))]), text)
    text = _BY_NAME.sub(lambda m: f"{_FLAGS['transforms']} {_pairs(m[1])}", text)
    text = _STEPS.sub("", text)
    return _ARGUMENT.sub(lambda m: f"{_FLAGS[m[1]]} {m[3]}", text)


def _pairs(mapping: str) -> str:
    """What Python writes as a mapping of columns to kinds."""
    pairs = literal_eval(mapping).items()
    return " ".join(shlex.quote(f"{name}={'none' if kind is None else kind}") for name, kind in pairs)


def check_files(paths: Iterable[Path]) -> None:
    """Refuse to read what is not there."""
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")


def check_places(paths: Iterable[Path | None], read: Iterable[Path] = ()) -> None:
    """Refuse to write where there is no folder, twice to one place, or into what is read."""
    taken = {_place(path): "which is read" for path in read}
    for path in paths:
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{path}: no folder {path.absolute().parent}")
        place = _place(path)
        if place in taken and not path.is_char_device():
            raise ValueError(f"{path}: expected a place of its own for each file, got one {taken[place]}")
        taken[place] = "for two of them"


def _place(path: Path) -> tuple[int, int] | Path:
    """What tells a file from others, by whatever path: where it is on the disk, or where it will be."""
    return (path.stat().st_dev, path.stat().st_ino) if path.exists() else path.resolve()


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
