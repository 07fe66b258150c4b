"""Blocks like a table's gaps, hidden where it has values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .frames.gaps import (
    EDGE,
    Runs,
    Shape,
    length_bin,
    length_label,
    made_runs,
    ordered_rows,
    row_distances,
    runs_of,
)
from .frames.table import Table

__all__ = ["Block", "HiddenBlocks", "class_order", "hidden_cells", "masked_blocks"]

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

_MOST_BLOCKS = 40  # of a class in a masking
_LEAST = 0.05  # of what a masking may hide, for each class
_FIRST = 0.5  # of what it may still hide, for the first block of a class
_OVER = 1.5  # of what is left to a class, for each further one
_COLUMN = 0.5  # of the values of a column, hidden at most
_DENSE = (0.8, 0.4, 0.0)  # share of a block's cells that have values, where there are such places
_TRIES = 5  # places for a shape at an end


class Block(NamedTuple):
    """Values that are hidden together.

    Attributes:
        rows: of each, ``(m,)``.
        columns: of each, ``(m,)``.
        label: the class of its length.
    """

    rows: Integers
    columns: Integers
    label: str


class HiddenBlocks(NamedTuple):
    """Blocks of several maskings, value by value.

    Attributes:
        rows: of the table, ``(m,)``.
        columns: ``(m,)``.
        blocks: the number of each value's block, ``(m,)``.
        distances: rows to the nearest visible value of the column, ``(m,)``.
        maskings: of the blocks, ``(B,)``.
        labels: classes of the blocks, ``(B,)``.
        runs: the pattern that they were drawn from.
    """

    rows: Integers
    columns: Integers
    blocks: Integers
    distances: Integers
    maskings: Integers
    labels: NDArray[np.str_]
    runs: Runs

    @classmethod
    def of(cls, table: Table, maskings: int, share: float, seed: int) -> HiddenBlocks:
        """Blocks like the gaps of a table, or of a few lengths where it has none."""
        ordered = table.inputs.shape[1] == 1
        order = ordered_rows(table.inputs)
        missing = table.missing[order]
        runs = runs_of(missing, ordered=ordered) if missing.any() else made_runs(*missing.shape, ordered=ordered)
        drawn = masked_blocks(~missing, runs, maskings, share, seed)
        blocks = [block for masking in drawn for block in masking]
        if not blocks:
            raise ValueError("X: expected values that can be hidden, got too few in every column")
        masked = [missing | hidden_cells(masking, missing.shape) for masking in drawn]
        apart = [row_distances(each, ordered=ordered) for each in masked]
        number = np.repeat(np.arange(len(drawn)), [len(masking) for masking in drawn])
        cells = [(order[b.rows], b.columns, apart[k][b.rows, b.columns]) for k, b in zip(number, blocks, strict=True)]
        rows, columns, away = (np.concatenate(part) for part in zip(*cells, strict=True))
        of_values = np.repeat(np.arange(len(blocks)), [len(block.rows) for block in blocks])
        return cls(rows, columns, of_values, away, number, np.array([block.label for block in blocks]), runs)

    def cells(self, masking: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
        """Which cells of the table ``(n, P)`` a masking hides."""
        result = np.zeros(shape, dtype=bool)
        values = self.maskings[self.blocks] == masking
        result[self.rows[values], self.columns[values]] = True
        return result


def class_order(labels: list[str]) -> list[str]:
    """Classes of gaps, the shortest first, those at the ends last."""
    return sorted(set(labels), key=lambda label: (label.endswith(EDGE), int(label.split(" ")[0].split("–")[0])))


def hidden_cells(blocks: list[Block], shape: tuple[int, int]) -> Booleans:
    """Which cells of a table ``(n, P)`` blocks hide."""
    hidden = np.zeros(shape, dtype=bool)
    for block in blocks:
        hidden[block.rows, block.columns] = True
    return hidden


def masked_blocks(observed: Booleans, runs: Runs, maskings: int, share: float, seed: int) -> list[list[Block]]:
    """Draw the blocks that each masking hides: runs, with those of other columns at the same rows, at random places.

    Classes of lengths have parts of what may be hidden, in proportion to what they miss; a run that is too long for it
    is shortened. A run at the end of the table is hidden at the end of its columns, or at the beginning,
    there in any columns. No value is hidden twice.

    Args:
        observed: values that can be hidden, ``(n, P)``, rows in order.
        runs: the pattern.
        maskings: number of maskings.
        share: largest share of the observed values that a masking hides.
        seed: seed of the places.

    Returns:
        The blocks of each masking; none where nothing can be hidden.
    """
    generator = np.random.default_rng(seed)
    free = observed.copy()
    drawn = []
    for _ in range(maskings):
        places = _Places(observed, free, generator, ordered=runs.ordered)
        drawn.append(list(_one_masking(places, runs, share * observed.sum())))
        free &= ~hidden_cells(drawn[-1], observed.shape)
    return drawn


def _one_masking(places: _Places, runs: Runs, budget: float) -> Iterator[Block]:
    """The blocks of one masking, class by class, in proportion to the missing values of each."""
    labels, lengths = runs.labels, runs.lengths
    classes = class_order(labels.tolist())[::-1]
    weights = [max(lengths[labels == label].sum() / lengths.sum(), _LEAST) for label in classes]
    for position, label in enumerate(classes):
        part = budget * weights[position] / sum(weights[position:])
        for block in _of_class(places, runs, np.flatnonzero(labels == label), part, max(part, _FIRST * budget)):
            budget -= len(block.rows)
            yield block


def _of_class(places: _Places, runs: Runs, numbers: Integers, part: float, most: float) -> Iterator[Block]:
    """Blocks like runs of these numbers, of so many cells together, the first one of at most so many."""
    shape = runs.shape(int(places.generator.choice(numbers))).shortened(int(most))
    for _ in range(_MOST_BLOCKS):
        block = places.place(shape) if shape.size <= most else None
        if block is not None:
            yield block
            part -= len(block.rows)
            most = _OVER * part
        if part < 1:
            return
        shape = runs.shape(int(places.generator.choice(numbers)))


class _Places:
    """Where blocks can still be hidden in a masking."""

    def __init__(self, observed: Booleans, free: Booleans, generator: np.random.Generator, *, ordered: bool) -> None:
        self.observed, self.free, self.generator, self.ordered = observed, free.copy(), generator, ordered
        self.visible = observed.copy()
        self.most = _COLUMN * observed.sum(axis=0)

    def place(self, shape: Shape) -> Block | None:
        """Hide a block of that shape at a random place, or None where there is no such place."""
        block = self._at_edge(shape) if shape.edge else self._inside(shape)
        if block is not None:
            self.free[block.rows, block.columns] = False
            self.visible[block.rows, block.columns] = False
        return block

    def _inside(self, shape: Shape) -> Block | None:
        size, reach = len(self.free), int((shape.starts + shape.lengths).max())
        first = int(shape.starts.min())
        starts = np.arange(-first, size - reach + 1)
        if len(starts) == 0:
            return None
        hidden, clear = np.zeros(len(starts)), np.ones(len(starts), dtype=bool)
        for column, start, length in zip(shape.columns, shape.starts, shape.lengths, strict=True):
            counts = np.concatenate([[0], np.cumsum(self.free[:, column])])
            hidden += counts[starts + start + length] - counts[starts + start]
            beside = np.pad(self.visible[:, column], 1)  # what stands before and after
            clear &= beside[starts + start] & beside[starts + start + length + 1]
        start = self._chosen(starts, hidden / shape.size, clear)
        return None if start is None else self._block(shape, start)

    def _chosen(self, starts: Integers, share: NDArray[np.float64], clear: Booleans) -> int | None:
        """A random place, where most can be hidden and the run is as long as it should be, if there are such."""
        for least in _DENSE:
            for allowed in (clear, True):
                possible = starts[(share > 0) & (share >= least) & allowed]
                if len(possible):
                    return int(self.generator.choice(possible))
        return None

    def _block(self, shape: Shape, start: int) -> Block | None:
        parts = [
            (np.arange(start + s, start + s + length), np.full(length, column))
            for column, s, length in zip(shape.columns, shape.starts, shape.lengths, strict=True)
        ]
        rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self._kept(rows, columns, "")

    def _kept(self, rows: Integers, columns: Integers, label: str) -> Block | None:
        """The free ones of some cells as a block, if its columns keep enough."""
        free = self.free[rows, columns]
        rows, columns = rows[free], columns[free]
        hidden = (self.observed & ~self.visible).sum(axis=0) + np.bincount(columns, minlength=len(self.most))
        if len(rows) == 0 or (hidden > self.most).any():
            return None
        return Block(rows, columns, label or self._label(rows, columns))

    def _label(self, rows: Integers, columns: Integers) -> str:
        """The class of the median length of the runs that the block makes."""
        if not self.ordered:
            return length_label(0)
        lengths = []
        for column in np.unique(columns):
            visible = self.visible[:, column].copy()
            visible[rows[columns == column]] = False
            known = np.flatnonzero(visible)
            after = np.searchsorted(known, rows[columns == column])
            bounds = np.concatenate([[-1], known, [len(visible)]])
            lengths.append(bounds[after + 1] - bounds[after] - 1)
        return length_label(int(length_bin(np.array([np.median(np.concatenate(lengths))]))[0]))

    def _at_edge(self, shape: Shape) -> Block | None:
        """The last values of its columns hidden, or the first ones, of these or of as many others."""
        for attempt in range(_TRIES):
            columns = shape.columns
            at_end = (shape.edge == "end") == (attempt == 0)
            if attempt > 1:
                columns = self.generator.permutation(self.free.shape[1])[: len(columns)]
            cells = [self._last(column, length, at_end) for column, length in zip(columns, shape.lengths, strict=True)]
            if any(len(rows) == 0 for rows in cells):
                continue
            rows = np.concatenate(cells)
            label = length_label(int(length_bin(np.median(shape.lengths, keepdims=True))[0])) + EDGE
            block = self._kept(rows, np.repeat(columns, [len(part) for part in cells]), label)
            if block is not None:
                return block
        return None

    def _last(self, column: int, length: int, at_end: bool) -> Integers:
        """The last rows of a column, or the first ones; none where some of them have been hidden before."""
        known = np.flatnonzero(self.observed[:, column])
        if len(known) == 0:
            return known
        rows = np.arange(known[-1] - length + 1, known[-1] + 1) if at_end else known[0] + np.arange(length)
        rows = rows[(rows >= 0) & (rows < len(self.observed))]
        allowed = self.observed[rows, column]
        return rows if self.free[rows, column][allowed].all() else rows[:0]
