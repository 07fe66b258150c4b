"""Values that need a word: codes for what is missing, which repeat far from all others, and columns without change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["suspected_codes", "warn_of_codes", "warn_of_constants"]

_LEAST = 3  # smallest number of repetitions
_LEAST_VALUES = 10  # smallest number of other distinct values of the column
_TAIL = 0.05  # share of the others on either side of the range that distances are compared with


def suspected_codes(values: NDArray[np.float64]) -> dict[float, list[int]]:
    """Extreme values of a column that repeat, farther from the others than the range of these.

    A code in one column is a code in every column where it repeats as an extreme value.

    Args:
        values: NaN where missing, ``(n, P)``.

    Returns:
        The columns that have each value.

    Example:
        >>> readings = np.arange(40.0)
        >>> readings[::9] = -200.0
        >>> suspected_codes(readings[:, None])
        {-200.0: [0]}
    """
    ends = [_repeated_ends(column[~np.isnan(column)]) for column in values.T]
    codes = sorted({value for repeated in ends for value, is_far in repeated.items() if is_far})
    return {code: [p for p, repeated in enumerate(ends) if code in repeated] for code in codes}


def warn_of_codes(values: NDArray[np.float64], names: Sequence[Any]) -> None:
    """Warn of values that look like codes, with what to do.

    Args:
        values: NaN where missing, ``(n, P)``.
        names: of the columns.

    Warns:
        UserWarning: if there are such values.
    """
    for code, columns in suspected_codes(values).items():
        warnings.warn(
            f"X: {code:g} repeats far from all other values in {[names[p] for p in columns]}; if it stands for "
            f"what is missing, say so: missing_values={code:g}",
            UserWarning,
            stacklevel=3,
        )


def warn_of_constants(values: NDArray[np.float64], names: Sequence[Any]) -> None:
    """Warn of columns with gaps whose values are all the same, or one: how far they vary cannot be learned.

    Args:
        values: NaN where missing, ``(n, P)``, at least one in each column.
        names: of the columns.

    Warns:
        UserWarning: if there are such columns.
    """
    constant = (np.nanmin(values, axis=0) == np.nanmax(values, axis=0)) & np.isnan(values).any(axis=0)
    if constant.any():
        named = [name for name, flag in zip(names, constant, strict=True) if flag]
        warnings.warn(
            f"X: only one value in {named}: gaps are filled with it, and their "
            "standard deviations say nothing, as how far the column varies is not known; leave it out",
            UserWarning,
            stacklevel=3,
        )


def _repeated_ends(column: NDArray[np.float64]) -> dict[float, bool]:
    """The smallest and the largest value, if they repeat, and whether they are far from the others."""
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
