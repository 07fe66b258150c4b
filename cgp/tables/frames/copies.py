"""Columns that are exact linear functions of others, such as a temperature in °C and in °F."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Copy", "copies_of", "said_copies"]

_LEAST = 10  # rows with both
_EXACT = 1e-6  # of the column's deviation
_ALIKE = 0.99  # squared correlation
_FINE = 0.05  # likewise, that steps of rounded readings are below


class Copy(NamedTuple):
    """A column that is ``slope * other + shift`` wherever both have a value.

    Attributes:
        column: its number.
        of: that of the other.
        slope: of the function.
        shift: of the function.
    """

    column: int
    of: int
    slope: float
    shift: float


def copies_of(values: NDArray[np.float64]) -> list[Copy]:
    """Columns that follow exactly, or up to the rounding of both, from an earlier one.

    Args:
        values: NaN where there is none, ``(n, P)``.

    Returns:
        One of each such column.

    Example:
        >>> celsius = np.sin(np.arange(30.0))
        >>> [copy] = copies_of(np.column_stack([celsius, 1.8 * celsius + 32]))
        >>> copy.column, copy.of, round(copy.slope, 3), round(copy.shift, 3)
        (1, 0, 1.8, 32.0)
    """
    found, alike = [], _are_alike(values)
    for column in range(1, values.shape[1]):
        lines = (
            (other, _line(values[:, other], values[:, column])) for other in np.flatnonzero(alike[column, :column])
        )
        found += next(([Copy(column, int(other), *line)] for other, line in lines if line is not None), [])
    return found


def said_copies(copies: Sequence[Copy], names: Sequence[str]) -> list[str]:
    """A line for each copy."""
    lines = []
    for column, of, slope, shift in copies:
        factor, further = f"{slope:.4g}", f"{abs(shift):.4g}"
        term = names[of] if factor == "1" else f"{factor} {names[of]}"
        sum_ = "" if abs(shift) < _EXACT * max(abs(slope), 1.0) else f" {'-' if shift < 0.0 else '+'} {further}"
        lines.append(f"{names[column]} follows exactly from {names[of]}, as {term}{sum_}: each fills gaps of the other")
    return lines


def _are_alike(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which columns are so correlated, of the rows that both have, that the rounding of a copy may be between them."""
    seen = ~np.isnan(values)
    count = seen.sum(axis=0).clip(min=1)
    z = np.where(seen, values, 0.0)
    z = np.where(seen, z - z.sum(axis=0) / count, 0.0)
    z /= np.abs(z).max(axis=0, initial=1e-300)
    both, sums, squares = seen.T @ seen.astype(np.float64), z.T @ seen, (z**2).T @ seen
    across = both * (z.T @ z) - sums * sums.T
    spread = both * squares - sums**2
    return np.asarray(across**2 > _ALIKE * spread * spread.T)


def _line(other: NDArray[np.float64], column: NDArray[np.float64]) -> tuple[float, float] | None:
    """Slope and shift of the line on which all pairs are, or None."""
    both = ~(np.isnan(other) | np.isnan(column))
    x, y = other[both], column[both]
    if len(x) < _LEAST or not (np.ptp(x) and np.ptp(y)):
        return None
    centred = x - x.mean()
    slope = float(f"{centred @ (y - y.mean()) / (centred @ centred):.9g}")
    steps = np.array([np.diff(np.unique(x)).min() * abs(slope), np.diff(np.unique(y)).min()])
    rounding = steps.sum() / 2 if (steps < _FINE * y.std()).all() else 0.0
    shift = float(f"{y.mean() - slope * x.mean():.9g}")
    left = np.abs(y - slope * x - shift).max()
    return (slope, shift) if left <= max(_EXACT * y.std(), rounding * (1.0 + _FINE)) else None
