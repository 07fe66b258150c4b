"""Totals that are known in gaps: those of hidden blocks, and methods that take none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from cgp.regression.sums import Sums
from cgp.tables.frames.table import Table, read_table
from cgp.tables.imputer import CorrelatedGPImputer
from cgp.tables.known import known_sums
from cgp.tables.masking import HiddenBlocks

from .baselines import PointImputer

__all__ = ["SummedImputer", "takes_totals", "with_hidden_blocks"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_ROUNDING = 1e-10  # of the largest singular value


def takes_totals(method: Any) -> bool:
    """Whether an imputer is fitted with totals by itself."""
    return isinstance(method, (CorrelatedGPImputer, SummedImputer))


def with_hidden_blocks(known: Sums, table: Table, hidden: HiddenBlocks, masking: int) -> Sums:
    """The totals, and those of the blocks that a masking hides in columns that have some.

    Of a block that is longer than its column's totals are, each stretch of as many rows has one.

    Args:
        known: totals of a table.
        table: n rows, P columns.
        hidden: the blocks.
        masking: the number of the masking.

    Returns:
        Sums with the further ones last.
    """
    lengths = _lengths(known)
    stretches = [
        (rows, column)
        for block in np.flatnonzero(hidden.maskings == masking)
        for rows, column in _stretches(hidden, int(block), lengths)
    ]
    if not stretches:
        return known
    counts = [len(rows) for rows, _ in stretches]
    rows, columns = np.concatenate([rows for rows, _ in stretches]), np.repeat([c for _, c in stretches], counts)
    numbers = np.repeat(np.arange(len(stretches)), counts)
    return Sums(
        np.concatenate([known.places, np.column_stack([table.inputs[rows], columns])]),
        np.concatenate([known.weights, np.ones(len(rows))]),
        np.concatenate([known.sums, len(known.values) + numbers]),
        np.concatenate([known.values, np.bincount(numbers, table.values[rows, columns])]),
        np.concatenate([known.noise, np.zeros(len(stretches))]),
        np.concatenate([known.of_readings, np.ones(len(stretches), dtype=bool)]),
        (
            *known.names,
            *(f"{table.names[column]!r}, hidden rows {rows[0]} to {rows[-1]}" for rows, column in stretches),
        ),
    )


def _lengths(known: Sums) -> dict[int, int]:
    """The median number of rows in the totals of each column."""
    first = np.unique(known.sums, return_index=True)[1]
    counts, columns = np.bincount(known.sums), known.outputs[first]
    return {int(column): int(np.median(counts[columns == column])) for column in np.unique(columns)}


def _stretches(hidden: HiddenBlocks, block: int, lengths: dict[int, int]) -> Iterator[tuple[Integers, int]]:
    """Rows of a block, and their column, that a total is known of."""
    mine = hidden.blocks == block
    for column in np.intersect1d(hidden.columns[mine], [*lengths]):
        rows = hidden.rows[mine & (hidden.columns == column)]
        for first in range(0, len(rows), lengths[column]):
            yield rows[first : first + lengths[column]], int(column)


class SummedImputer(PointImputer):
    r"""An imputer that knows no totals, with its values moved to have them: by as little as possible.

    .. math:: x + W^\top (W W^\top)^+ (t - W x)

    A total of a gap is spread over it in equal parts. Totals over rows that the table does not have are left out.

    Args:
        imputer: with ``fit_transform``.
        inputs: columns with the inputs of the rows; None is the index.
        missing_values: codes of missing values, besides NaN.

    Attributes:
        imputer_: the fitted one.

    Example:
        >>> from cgp.regression.sums import Sums
        >>> from .baselines import LinearInterpolation
        >>> table = np.array([[1.0], [np.nan], [np.nan], [4.0]])
        >>> places = np.array([[1.0, 0.0], [2.0, 0.0]])
        >>> total = Sums(places, np.ones(2), np.zeros(2, int), np.array([9.0]), np.zeros(1), np.array([True]), ("",))
        >>> SummedImputer(LinearInterpolation()).fit(table, totals=total).transform(table).T
        array([[1., 4., 5., 4.]])
    """

    def __init__(self, imputer: Any, *, inputs: Any = None, missing_values: Any = np.nan) -> None:
        super().__init__(inputs=inputs, missing_values=missing_values)
        self.imputer = imputer

    def fit(self, X: Any, y: Any = None, *, totals: Any = None) -> Self:
        """Fit the imputer to a table, and keep its totals.

        Args:
            X: a frame, a series, or an array ``(n, k)``; NaN is missing.
            y: not used.
            totals: as :meth:`.CorrelatedGPImputer.fit` takes them.

        Returns:
            The imputer.
        """
        table, axis = read_table(X, self.inputs, self.missing_values)
        self._sums = known_sums(totals, table, axis)
        self.imputer_ = clone(self.imputer).fit(X)
        return self

    def _means(self, table: Table) -> Array:
        check_is_fitted(self)
        filled = table.values_of(self.imputer_.transform(table.given))
        return filled if self._sums is None else _moved(filled, table, self._sums)


def _moved(filled: Array, table: Table, sums: Sums) -> Array:
    """Values ``(n, P)`` whose missing ones are moved to have sums."""
    order = np.argsort(table.inputs[:, 0], kind="stable")
    inputs, places, columns = table.inputs[order, 0], sums.places[:, 0], sums.outputs
    at = np.searchsorted(inputs, places).clip(max=len(inputs) - 1)
    absent = np.bincount(sums.sums, inputs[at] != places, len(sums.values)) > 0
    cells = np.ravel_multi_index((order[at], columns), filled.shape)
    moves = table.missing.ravel()[cells] & ~absent[sums.sums]
    if not moves.any():
        return filled
    rest = sums.values - np.bincount(sums.sums, sums.weights * filled.ravel()[cells], len(sums.values))
    unknown, number = np.unique(cells[moves], return_inverse=True)
    which, row = np.unique(sums.sums[moves], return_inverse=True)
    W = coo_array((sums.weights[moves], (row, number)), (len(which), len(unknown))).tocsr()
    result = filled.copy()
    result.ravel()[unknown] += W.T @ (np.linalg.pinv((W @ W.T).toarray(), rcond=_ROUNDING) @ rest[which])
    return result
