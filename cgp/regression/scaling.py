"""From the user's units to unit variance and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaling", "stacked_rows"]

Array = NDArray[Any]

_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # of a column's largest magnitude: such a spread is none
_WIDER = 60.0


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
        r"""The scaling of outputs ``(n, P)``, wider where few observations say little of how wide an output is.

        .. math:: u_p = s_p\,(1 + 60 / k_p^3) \quad (k_p > 2), \qquad
            u_p^2 = c^2 + s_p^2 + (\bar y_p - \tilde y_{-p})^2 \quad (k_p \le 2)

        k are counts, s standard deviations (0 of a single observation), c is the median of them over outputs with three
        observations or more, and the last term the distance from the level of the other outputs. Where no output has
        three, c has these distances in it. A constant output is as wide as the others, and where nothing varies the
        scale is the distance from zero.

        Returns:
            The scaling.
        """
        scaling, count = cls.of(values), (~np.isnan(values)).sum(axis=0)
        varies = np.nanmax(values, axis=0) - np.nanmin(values, axis=0) > _ROUNDING * scaling.largest
        own = np.where(varies, scaling.unit * np.sqrt(count / np.maximum(count - 1, 1)), 0.0)
        several, middle = varies & (count > 2), scaling.undo(np.zeros(len(count)))
        level = np.where(count < 3, _from_others(middle), 0.0)
        common = np.median(own[several]) if several.any() else np.hypot(_spread_of(own[varies]), _spread_of(level))
        few = np.hypot(np.hypot(common, own), level)
        few = np.where(few > 0.0, few, np.where(middle == 0.0, 1.0, np.abs(middle)))
        unit = np.where(several, scaling.unit * (1.0 + _WIDER / count**3.0), few)
        return scaling._replace(spread=unit / scaling.largest)

    def apply(self, values: Array) -> Array:
        """Values ``(n, d)`` at unit variance."""
        return (values / self.largest - self.centre) / self.spread

    def undo(self, values: Array) -> Array:
        """Values ``(..., d)`` in the user's units."""
        return (values * self.spread + self.centre) * self.largest

    def chosen(self, columns: Array) -> Scaling:
        """That of some columns, in their order."""
        return Scaling(*(field[columns] for field in self))

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


def _from_others(values: Array) -> Array:
    """How far each value is from the median of the others; 0 of a single one."""
    if len(values) == 1:
        return np.zeros(1)
    return np.abs([value - np.median(np.delete(values, index)) for index, value in enumerate(values)])


def _spread_of(sizes: Array) -> float:
    return float(np.median(sizes)) if len(sizes) else 0.0
