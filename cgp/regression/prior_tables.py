"""Tables that a prior is learned from, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["tables_of"]

Array = NDArray[np.float64]


def tables_of(tables: Any, window: Any) -> list[tuple[Array, Array]]:
    """Inputs ``(n, d)`` and outputs ``(n, P)`` of every table.

    Args:
        tables: pairs of inputs and outputs, or a frame of pandas, whose index is the input.
        window: of a frame, the length of the tables that it is cut into: a duration, or a number in units of the index.

    Returns:
        A pair for each table; inputs are in days where the index is times, otherwise in units of the index.

    Raises:
        ValueError: if the window does not fit, inputs are not finite, or outputs are infinite.
    """
    if hasattr(tables, "iloc"):
        return _checked(_windows(tables, window))
    if window is not None:
        raise ValueError(f"window: expected None for a list of tables, got {window!r}")
    pairs = ((np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)) for X, y in tables)
    return _checked((X.reshape(len(X), -1), y.reshape(len(y), -1)) for X, y in pairs)


def _checked(tables: Iterable[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    kept = list(tables)
    for number, (X, y) in enumerate(kept):
        if len(X) != len(y):
            raise ValueError(f"tables: expected inputs and outputs of equal length in table {number}")
        if not np.isfinite(X).all() or np.isinf(y).any():
            raise ValueError(
                f"tables: expected finite inputs, and outputs that are finite or NaN, got others in table {number}"
            )
    return kept


def _windows(frame: Any, window: Any) -> list[tuple[Array, Array]]:
    """Consecutive parts of a frame."""
    import pandas as pd

    if not len(frame):
        raise ValueError("tables: expected a frame with rows, got none")
    elapsed = frame.index - frame.index[0]
    is_time = elapsed.dtype.kind == "m"
    length = _length(window, is_time=is_time)
    inputs = np.asarray(elapsed / pd.Timedelta(days=1) if is_time else elapsed, dtype=np.float64)
    place = np.floor(np.asarray(elapsed / length, dtype=np.float64))
    values = frame.to_numpy(dtype=np.float64)
    parts = [np.flatnonzero(place == number) for number in np.unique(place)]
    return [(inputs[part, None], values[part]) for part in parts]


def _length(window: Any, *, is_time: bool) -> Any:
    """The length of windows, as a duration of pandas or a number."""
    import pandas as pd

    wanted = "a positive duration such as '3D' for times" if is_time else "a positive number for an index of numbers"
    try:
        if window is None or isinstance(window, Real) == is_time:
            raise ValueError
        length = pd.Timedelta(window) if is_time else float(window)
        if not length > type(length)(0):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"window: expected {wanted}, got {window!r}") from None
    return length
