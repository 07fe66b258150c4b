"""Numbers that look like codes for what is missing: one value, again and again, far from all others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["suspected_codes"]

_LEAST = 3  # times that it comes
_LEAST_VALUES = 10  # different ones of the column besides
_TAIL = 0.05  # of the others, on either side of the range that distances are measured in


def suspected_codes(values: NDArray[np.float64]) -> dict[float, list[int]]:
    """Values that repeat at an end of a column, farther from the others than these are wide.

    What is such a value in one column is one in every column at whose end it repeats.

    Args:
        values: NaN where missing, ``(n, P)``.

    Returns:
        For each the columns that have it.

    Example:
        >>> readings = np.arange(40.0)
        >>> readings[::9] = -200.0
        >>> suspected_codes(readings[:, None])
        {-200.0: [0]}
    """
    ends = [_repeated_ends(column[~np.isnan(column)]) for column in values.T]
    codes = sorted({value for repeated in ends for value, is_far in repeated.items() if is_far})
    return {code: [p for p, repeated in enumerate(ends) if code in repeated] for code in codes}


def _repeated_ends(column: NDArray[np.float64]) -> dict[float, bool]:
    """The smallest and the largest value, where they repeat, and whether they are far from the others."""
    levels, counts = np.unique(column, return_counts=True)
    if len(levels) <= _LEAST_VALUES:
        return {}
    far = {}
    for end, next_one in ((0, 1), (-1, -2)):
        if counts[end] >= _LEAST:
            others = column[column != levels[end]]
            low, high = np.quantile(others, [_TAIL, 1.0 - _TAIL])
            far[float(levels[end])] = bool(abs(levels[end] - levels[next_one]) > high - low)
    return far
