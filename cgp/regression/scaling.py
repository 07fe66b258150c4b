"""From the user's units to unit variance and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaling", "stacked_rows"]

Array = NDArray[Any]

_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # of a column's largest magnitude: such a spread is none


class Scaling(NamedTuple):
    """An affine map of each column to mean 0 and variance 1.

    Columns are divided by a power of two first, exactly, so that no square overflows or vanishes.

    Attributes:
        largest: a power of two, at least the largest magnitude, ``(d,)``.
        centre: in units of ``largest``, ``(d,)``.
        spread: likewise; 1 for a constant column.
    """

    largest: Array
    centre: Array
    spread: Array

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """The scaling of columns ``(n, d)``, whatever is NaN in them left out."""
        largest = _power_of_two(np.nanmax(np.abs(values), axis=0))
        relative = values / largest
        centre = np.nanmean(relative, axis=0)
        centre = centre + np.nanmean(relative - centre, axis=0)  # a mean's rounding may be more than the spread
        spread = np.sqrt(np.nanmean((relative - centre) ** 2, axis=0))
        return cls(largest, centre, np.where(spread > _ROUNDING, spread, 1.0))

    @classmethod
    def of_outputs(cls, values: Array) -> Scaling:
        """The scaling of outputs ``(n, P)``, of which those with little to tell a scale by get it from the others.

        An output has a scale of its own if it has three observations or more that are not all the same. The median of
        these is the scale of an output with one observation, or a constant one, and counts as one more degree of
        freedom beside the difference of two. Where none has a scale, two observations have their own, then the outputs
        are compared with each other, and a single constant output is as wide as its distance from zero.

        Returns:
            The scaling.
        """
        scaling, count = cls.of(values), (~np.isnan(values)).sum(axis=0)
        deviation = scaling.unit * np.sqrt(count / np.maximum(count - 1, 1))
        varies = np.nanmin(values, axis=0) < np.nanmax(values, axis=0)
        varies &= deviation > _ROUNDING * scaling.largest
        several, pair = varies & (count > 2), varies & (count == 2)
        middle = scaling.undo(np.zeros(len(count)))
        common = next(
            (float(np.median(some)) for some in (deviation[several], deviation[pair]) if len(some)), _between(middle)
        )
        unit = np.where(pair, np.hypot(deviation, common) / np.sqrt(2.0), common)
        return scaling._replace(spread=np.where(several, scaling.spread, unit / scaling.largest))

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


def _power_of_two(magnitude: Array) -> Array:
    """The smallest power of two that is not below each magnitude, within what a float holds; 1 for 0."""
    return np.ldexp(1.0, np.clip(np.frexp(magnitude)[1], -1021, 1023) * (magnitude > 0))


def _between(values: Array) -> float:
    """How much constants differ from each other; a single one, from zero; 1 where all is zero."""
    spread = Scaling.of(values[:, None]).unit[0] if np.ptp(values) > 0 else abs(values[0])
    return float(spread) or 1.0
