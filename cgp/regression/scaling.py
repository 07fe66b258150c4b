"""From the user's units to unit variance and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_argmin

__all__ = ["Scaling", "process_signs", "stacked_rows"]

Array = NDArray[Any]


class Scaling(NamedTuple):
    """An affine map of each column to mean 0 and variance 1.

    Columns are divided by their largest magnitude first, so that no square overflows or vanishes.

    Attributes:
        largest: ``(d,)``.
        centre: in units of ``largest``, ``(d,)``.
        spread: likewise; 1 for a constant column.
    """

    largest: Array
    centre: Array
    spread: Array

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """The scaling of columns, whatever is NaN in them left out.

        Args:
            values: ``(n, d)``, at least one number a column.

        Returns:
            One entry a column.

        Example:
            >>> Scaling.of(np.array([[1e300], [3e300]])).apply(np.array([[3e300]]))
            array([[1.]])
        """
        largest = np.nanmax(np.abs(values), axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        relative = values / largest
        spread = np.nanstd(relative, axis=0)
        # Rounding of a constant column is no spread.
        return cls(largest, np.nanmean(relative, axis=0), np.where(spread > 1e-12, spread, 1.0))

    def apply(self, values: Array) -> Array:
        """To unit variance.

        Args:
            values: ``(n, d)``.

        Returns:
            ``(n, d)``.
        """
        return (values / self.largest - self.centre) / self.spread

    def undo(self, values: Array) -> Array:
        """Back to the user's units.

        Args:
            values: ``(..., d)``.

        Returns:
            ``(..., d)``.
        """
        return (values * self.spread + self.centre) * self.largest

    @property
    def unit(self) -> Array:
        """What a standard deviation of 1 is in the user's units, ``(d,)``."""
        return self.spread * self.largest


def stacked_rows(x: Array, observed: Array) -> Array:
    """One row for each observation, the number of the process in the last column, process by process.

    Args:
        x: ``(n, d)``.
        observed: ``(n, P)`` of booleans.

    Returns:
        ``(observed.sum(), d + 1)``.

    Example:
        >>> stacked_rows(np.array([[0.3], [0.5]]), np.array([[True, False], [True, True]]))
        array([[0.3, 0. ],
               [0.5, 0. ],
               [0.5, 1. ]])
    """
    parts = [np.column_stack([x[seen], np.full(seen.sum(), float(p))]) for p, seen in enumerate(observed.T)]
    return np.concatenate(parts)


def process_signs(x: Array, y: Array) -> Array:
    """Whether each process rises or falls with the earlier one that it is most correlated with.

    Pairs are an observation of one process and the nearest observation of the other.

    Args:
        x: ``(n, d)``, of unit variance.
        y: ``(n, P)``, NaN where not observed.

    Returns:
        +1 or -1 for each process, +1 for the first, ``(P,)``.

    Example:
        >>> process_signs(np.arange(3.0)[:, None], np.array([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]))
        array([ 1., -1.])
    """
    signs = np.ones(y.shape[1])
    for later in range(1, y.shape[1]):
        found = [_correlation(x, y[:, earlier], y[:, later]) for earlier in range(later)]
        strongest = int(np.argmax(np.abs(found)))
        signs[later] = signs[strongest] * (-1.0 if found[strongest] < 0 else 1.0)
    return signs


def _correlation(x: Array, first: Array, second: Array) -> float:
    seen = ~np.isnan(first), ~np.isnan(second)
    nearest = pairwise_distances_argmin(x[seen[1]], x[seen[0]])
    pair = first[seen[0]][nearest], second[seen[1]]
    if min(np.std(value) for value in pair) < 1e-12:
        return 0.0
    return float(np.corrcoef(*pair)[0, 1])
