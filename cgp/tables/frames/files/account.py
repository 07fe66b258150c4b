"""What was understood of a file, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .hints import as_arguments

__all__ = ["Understood"]

_SHOWN = 12


class Understood(NamedTuple):
    """What was understood of a file.

    Attributes:
        file: kind, encoding, delimiter and form of numbers.
        header: where names, units and remarks are.
        rows: how many there are, and what they are known by.
        index: of the frame.
        columns: for each column of numbers its values, gaps, and how often each text stands for what is missing.
        left: why each of the other columns is left as it is.
        notes: what else is to be known.
    """

    file: str
    header: str
    rows: str
    index: Any
    columns: dict[str, tuple[int, int, dict[str, int]]]
    left: dict[str, str]
    notes: list[str]

    @property
    def text(self) -> str:
        """A few lines, with options that are spelled later (:func:`.as_flags`)."""
        lines = [("file", self.file), ("header", self.header), ("rows", self.rows)]
        shown = [*self.columns.items()][:_SHOWN]
        lines += [("columns" if not n else "", _said(name, each)) for n, (name, each) in enumerate(shown)]
        if len(self.columns) > _SHOWN:
            values, gaps = np.sum([each[:2] for each in [*self.columns.values()][_SHOWN:]], axis=0)
            lines.append(("", f"and {len(self.columns) - _SHOWN} more: {values} values, {gaps} missing"))
        lines += [("left alone" if not n else "", each) for n, each in enumerate(_grouped(self.left))]
        lines += [("note", note) for note in self.notes]
        return "\n".join(f"  {title:<11} {said}" for title, said in lines)

    def __str__(self) -> str:
        return as_arguments(self.text)


def _said(name: str, column: tuple[int, int, dict[str, int]]) -> str:
    values, gaps, texts = column
    marks = ", ".join(f"{text!r} {count} times" for text, count in texts.items())
    return f"{name}: {values} values, {gaps} missing" + (f" ({marks})" if marks else "")


def _grouped(left: dict[str, str]) -> list[str]:
    """Columns of the same reason in a line."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left.items():
        reasons.setdefault(reason, []).append(name)
    lines = []
    for reason, names in reasons.items():
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        lines.append(f"{', '.join(names[:6])}{more} ({reason})")
    return lines
