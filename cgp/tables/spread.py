"""Standard deviations for imputers without an uncertainty, by distance to the nearest observation and by column."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .gaps import length_bin

__all__ = ["Residuals", "Spread"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_WEIGHT = 3.0  # blocks that the variance of all columns counts for in that of each
_LEAST = 1e-4  # of the column's standard deviation


class Residuals(NamedTuple):
    """Errors of hidden values.

    Attributes:
        errors: in units of the column's standard deviation, ``(m,)``.
        columns: of each, ``(m,)``.
        distances: rows to the nearest value that was not hidden, ``(m,)``.
        blocks: the number of the block of each, ``(m,)``.
    """

    errors: Array
    columns: Integers
    distances: Integers
    blocks: Integers

    def of_blocks(self, chosen: NDArray[np.bool_]) -> Residuals:
        """The residuals of some blocks, ``(B,)``."""
        values = chosen[self.blocks]
        return Residuals(self.errors[values], self.columns[values], self.distances[values], self.blocks[values])


class Spread(NamedTuple):
    r"""Standard deviations of errors by class of distance and by column.

    .. math:: s_{kp}^2 = \frac{b_{kp} \hat s_{kp}^2 + 3 \hat s_k^2}{b_{kp} + 3}

    with the mean squares of class k in column p, over its b blocks, and in all columns.

    Attributes:
        sd: in units of the column's standard deviation, ``(classes, P)``.
    """

    sd: Array

    @classmethod
    def of(cls, residuals: Residuals, num_columns: int) -> Self:
        """The spread of residuals; a class without any has that of the next class below, or above.

        Args:
            residuals: at least one.
            num_columns: P.

        Returns:
            The spread.
        """
        bins = length_bin(residuals.distances)
        squares = residuals.errors**2
        variance = np.full((bins.max() + 1, num_columns), np.nan)
        for number in np.unique(bins):
            chosen = bins == number
            common = _mean_of_blocks(squares[chosen], residuals.blocks[chosen])[0]
            for column in range(num_columns):
                inside = chosen & (residuals.columns == column)
                mean, count = _mean_of_blocks(squares[inside], residuals.blocks[inside])
                variance[number, column] = (count * mean + _WEIGHT * common) / (count + _WEIGHT)
        known = np.flatnonzero(~np.isnan(variance[:, 0]))
        below = np.maximum(np.searchsorted(known, np.arange(len(variance)), side="right") - 1, 0)
        return cls(np.maximum(np.sqrt(variance[known[below]]), _LEAST))

    def at(self, distances: Integers, columns: Integers) -> Array:
        """Standard deviations ``(m,)`` of values at distances ``(m,)`` in columns ``(m,)``."""
        return self.sd[np.minimum(length_bin(distances), len(self.sd) - 1), columns]


def _mean_of_blocks(values: Array, blocks: Integers) -> tuple[float, int]:
    """The mean over blocks of their means, and how many there are."""
    if len(values) == 0:
        return 0.0, 0
    _, number, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    return float(np.mean(np.bincount(number, values) / counts)), len(counts)
