"""From the user's units to unit variance and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaling", "stacked_rows"]

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
        """The scaling of columns ``(n, d)``, whatever is NaN in them left out."""
        largest = np.nanmax(np.abs(values), axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        relative = values / largest
        spread = np.nanstd(relative, axis=0)
        # Rounding of a constant column is no spread.
        return cls(largest, np.nanmean(relative, axis=0), np.where(spread > 1e-12, spread, 1.0))

    def apply(self, values: Array) -> Array:
        """Values ``(n, d)`` at unit variance."""
        return (values / self.largest - self.centre) / self.spread

    def undo(self, values: Array) -> Array:
        """Values ``(..., d)`` in the user's units."""
        return (values * self.spread + self.centre) * self.largest

    @property
    def unit(self) -> Array:
        """What a standard deviation of 1 is in the user's units, ``(d,)``."""
        return self.spread * self.largest


def stacked_rows(x: Array, observed: Array) -> Array:
    """One row ``(d + 1)`` for each observation of ``(n, P)``, its process in the last column, process by process."""
    parts = [np.column_stack([x[seen], np.full(seen.sum(), float(p))]) for p, seen in enumerate(observed.T)]
    return np.concatenate(parts)
