"""The pattern of a table's gaps: runs of missing rows, how long they are, and which columns are missing together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EDGE",
    "JITTER",
    "Runs",
    "Shape",
    "absent_between",
    "length_bin",
    "length_label",
    "longest_runs",
    "made_runs",
    "ordered_rows",
    "row_distances",
    "runs_of",
    "usual_distance",
]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

EDGE = " at an end"
JITTER = 0.1  # of a step, within which distances are those of the clock
_FACTOR = 4  # between the lengths of two classes
_OVERLAP = 0.5  # intersection over union of two runs that belong together
_SHARE = 0.05  # of the rows: the longest gap that is made where a table has none


class Shape(NamedTuple):
    """Runs that are missing together.

    Attributes:
        columns: of each run.
        starts: in rows from that of the first run.
        lengths: in rows.
        edge: "start" or "end" where the first run reaches that end of the table, else "".
    """

    columns: Integers
    starts: Integers
    lengths: Integers
    edge: str

    @property
    def size(self) -> int:
        """Cells."""
        return int(self.lengths.sum())

    def shortened(self, size: int) -> Shape:
        """The shape in proportion, with no more cells than that, but one in each run."""
        factor = min(1.0, size / self.size)
        lengths = np.maximum((factor * self.lengths).astype(np.int64), 1)
        return self._replace(starts=np.round(factor * self.starts).astype(np.int64), lengths=lengths)


class Runs(NamedTuple):
    """Runs of missing rows, column by column.

    Attributes:
        columns: of each, ``(R,)``.
        starts: first rows, ``(R,)``.
        stops: rows after the last, ``(R,)``.
        num_rows: n.
        ordered: whether neighbouring rows have neighbouring inputs; otherwise every missing value is a run of its own.
    """

    columns: Integers
    starts: Integers
    stops: Integers
    num_rows: int
    ordered: bool = True

    @property
    def lengths(self) -> Integers:
        """In rows, ``(R,)``."""
        return self.stops - self.starts

    @property
    def labels(self) -> NDArray[np.str_]:
        """The class of each, ``(R,)``."""
        edge = self.ordered & ((self.starts == 0) | (self.stops == self.num_rows))
        names = [length_label(number) for number in length_bin(self.lengths)]
        return np.where(edge, [name + EDGE for name in names], names)

    def shape(self, number: int) -> Shape:
        """A run with those of other columns that overlap it by half of what the two cover."""
        start, stop = self.starts[number], self.stops[number]
        common = np.minimum(self.stops, stop) - np.maximum(self.starts, start)
        union = np.maximum(self.stops, stop) - np.minimum(self.starts, start)
        together = (common >= _OVERLAP * union) & (self.columns != self.columns[number])
        edge = "" if not self.ordered else "end" if stop == self.num_rows else "start" if start == 0 else ""
        if edge:
            together &= self.stops == stop if edge == "end" else self.starts == start
        chosen = np.concatenate([[number], np.flatnonzero(together)])
        return Shape(self.columns[chosen], self.starts[chosen] - start, self.lengths[chosen], edge)


def runs_of(missing: Booleans, *, ordered: bool = True) -> Runs:
    """The runs of a table.

    Args:
        missing: ``(n, P)``, rows in order.
        ordered: whether neighbouring rows have neighbouring inputs.

    Returns:
        The runs, column by column.

    Example:
        >>> runs = runs_of(np.array([[True], [False], [True], [True], [False]]))
        >>> runs.starts, runs.lengths, runs.labels.tolist()
        (array([0, 2]), array([1, 2]), ['1 at an end', '2–4'])
    """
    if not ordered:
        columns, rows = np.nonzero(missing.T)
        return Runs(columns, rows, rows + 1, len(missing), ordered=False)
    change = np.diff(np.pad(missing, ((1, 1), (0, 0))).astype(np.int8), axis=0).T  # (P, n + 1)
    columns, starts = np.nonzero(change == 1)
    return Runs(columns, starts, np.nonzero(change == -1)[1], len(missing))


def longest_runs(runs: Runs) -> dict[int, tuple[int, int]]:
    """The first row of each column's longest run, and the row after its last; the first one of several.

    Args:
        runs: of a table.

    Returns:
        By column, of those with any.

    Example:
        >>> longest_runs(runs_of(np.array([[True], [False], [True], [True], [False]])))
        {0: (2, 4)}
    """
    order = np.argsort(-runs.lengths, kind="stable")
    columns, first = np.unique(runs.columns[order], return_index=True)
    chosen = order[first]
    ends = zip(runs.starts[chosen].tolist(), runs.stops[chosen].tolist(), strict=True)
    return dict(zip(columns.tolist(), ends, strict=True))


def made_runs(num_rows: int, num_columns: int, *, ordered: bool = True) -> Runs:
    """Runs for a table without gaps: in every column of 1, 4, 16, … rows, up to a twentieth of the table, apart."""
    lengths = [1]
    while ordered and lengths[-1] * _FACTOR <= _SHARE * num_rows:
        lengths.append(lengths[-1] * _FACTOR)
    columns, length = (part.ravel() for part in np.meshgrid(np.arange(num_columns), lengths, indexing="ij"))
    starts = np.arange(len(columns)) * (2 * lengths[-1]) + 1  # apart, so that each is by itself
    return Runs(columns, starts, starts + length, int(starts[-1] + 2 * lengths[-1]), ordered)


def length_bin(lengths: Integers) -> Integers:
    """The number of the class of lengths in rows: 0 for 1, 1 for 2 to 4, 2 for 5 to 16, and so on."""
    return np.ceil(np.log(np.maximum(lengths, 1)) / np.log(_FACTOR) - 1e-9).astype(np.int64)


def length_label(number: int) -> str:
    """The name of a class.

    Args:
        number: as :func:`length_bin` gives it.

    Returns:
        Its shortest and longest length.

    Example:
        >>> [length_label(number) for number in range(4)]
        ['1', '2–4', '5–16', '17–64']
    """
    return "1" if number == 0 else f"{_FACTOR ** (number - 1) + 1}–{_FACTOR**number}"


def ordered_rows(inputs: NDArray[np.float64]) -> Integers:
    """Rows in the order of their one input ``(n, 1)``; as they are, where there are several."""
    return np.argsort(inputs[:, 0], kind="stable") if inputs.shape[1] == 1 else np.arange(len(inputs))


def row_distances(missing: Booleans, *, ordered: bool = True) -> Integers:
    """Rows to the nearest observed value of the same column.

    Args:
        missing: ``(n, P)``, rows in order.
        ordered: whether neighbouring rows have neighbouring inputs; otherwise all distances are one.

    Returns:
        ``(n, P)``, 0 for observed values, n where the column has none.

    Example:
        >>> row_distances(np.array([[False], [True], [True], [True]])).T
        array([[0, 1, 2, 3]])
    """
    if not ordered:
        return missing.astype(np.int64)
    size = len(missing)
    rows = np.arange(size)[:, None]
    before = rows - np.maximum.accumulate(np.where(missing, -size, rows), axis=0)
    after = np.minimum.accumulate(np.where(missing, 2 * size, rows)[::-1], axis=0)[::-1] - rows
    return np.minimum(np.minimum(before, after), size)


def usual_distance(apart: NDArray[np.float64]) -> float:
    """The most frequent distance, or nearly so.

    Args:
        apart: distances of successive rows, above 0, ``(m,)``.

    Returns:
        The distance, NaN where there is none.

    Example:
        >>> usual_distance(np.array([1.0, 2.0, 1.01, 3.0, 0.99]))
        1.0
    """
    apart = np.sort(apart)
    if not len(apart):
        return np.nan
    first = apart.searchsorted((1.0 - JITTER) * apart)
    last = apart.searchsorted((1.0 + JITTER) * apart, "right")
    most = int((last - first).argmax())
    return float(np.median(apart[first[most] : last[most]]))


def absent_between(apart: NDArray[np.float64]) -> Integers | None:
    """How many rows are absent between successive ones, if most distances are whole multiples of the usual one.

    Args:
        apart: distances of successive rows, above 0, ``(m,)``.

    Returns:
        ``(m,)``; None where rows are at irregular distances, so that none can be said to be absent.

    Example:
        >>> absent_between(np.array([1.0, 1.02, 3.0, 1.0])), absent_between(np.array([1.0, 1.5, 2.3, 2.8]))
        (array([0, 0, 2, 0]), None)
    """
    steps = apart / usual_distance(apart)
    whole = np.round(steps).astype(np.int64).clip(min=1)
    return whole - 1 if 2 * np.sum(np.abs(steps - whole) <= JITTER) >= len(apart) else None
