"""What changes in a file: cells, and rows that are added."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Added", "Cell"]


class Cell(NamedTuple):
    """What a cell becomes: as it is written in text, and its value."""

    text: str
    value: Any


class Added(NamedTuple):
    """A row that is added.

    Attributes:
        after: the record that it follows.
        cells: by their field.
    """

    after: int
    cells: dict[int, Cell]
