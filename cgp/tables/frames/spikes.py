"""Single values that neither their neighbours nor other columns lead to expect, such as the spikes of a logger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import first_of, said_times
from cgp.warning import warn_user

if TYPE_CHECKING:
    from .table import Table

__all__ = ["said_spikes", "spikes_of", "warn_of_spikes"]

Array = NDArray[np.float64]

_FAR = 6.0  # standard deviations: of 1e4 normal values one is beyond it in 5e4 tables
_APART = 2.5  # times the errors of all others: heavy tails have many large ones
_STEPS, _EVEN = 6.0, 0.5  # of the typical step to a neighbour, and of the larger one: a jump has a large step only once
_MOST, _SHARE = 3, 0.01  # of the values of a column
_NAMED = 5  # in a warning


def spikes_of(errors: Array, values: Array, inputs: Array) -> list[tuple[int, int]]:
    """Values far from both neighbours and from their predictions, farther than any other of the column is.

    Args:
        errors: standardised, of every observed value predicted from all others, NaN where there is none, ``(n, P)``.
        values: likewise.
        inputs: of the rows, ``(n,)``.

    Returns:
        Row and column of each, the largest of a column first.

    Example:
        >>> values = np.sin(np.arange(40.0))[:, None]
        >>> errors = values.copy()
        >>> values[7] = errors[7] = 20.0
        >>> spikes_of(errors, values, np.arange(40.0))
        [(7, 0)]
    """
    order = np.argsort(inputs, kind="stable")
    found = []
    for column, (error, value) in enumerate(zip(errors.T, values.T, strict=True)):
        rows = order[~np.isnan(error[order])]
        places = _spikes(np.abs(error[rows]), value[rows]) if len(rows) > 2 else []
        found += [(int(rows[place]), column) for place in places]
    return found


def said_spikes(spikes: Mapping[tuple[int, int], float], table: Table) -> str:
    """The first spikes of a table in words, by row and column with the value that is expected in place of each."""
    times = said_times([table.labels(0)[row] for row, _ in spikes])
    return first_of(
        (
            f"{table.values[row, column]:.12g} in {table.names[column]!r} at {time} ({expected:.3g} expected)"
            for ((row, column), expected), time in zip(spikes.items(), times, strict=True)
        ),
        _NAMED,
    )


def warn_of_spikes(spikes: Mapping[tuple[int, int], float], table: Table) -> None:
    """Warn of spikes, by row and column with the value that is expected in place of each."""
    if not spikes:
        return
    value = table.values[next(iter(spikes))]
    is_code = len(spikes) == np.sum(table.values == value) == 1 and float(f"{value:.12g}") == value
    gap = f"missing_values={value:.12g}, or NaN in its place," if is_code else "NaN in its place"
    warn_user(
        f"table: {said_spikes(spikes, table)}: far from its neighbours and from what all other values lead to expect, "
        f"and one such value can spoil the fills of its column; if it is wrong, {gap} makes it a gap"
    )


def _spikes(sizes: Array, values: Array) -> list[int]:
    """The places of spikes in a column, by the sizes of their errors, ``(m,)``."""
    steps = np.diff(values)
    up, down = steps[:-1], -steps[1:]  # to a value from those beside it
    least, most = np.minimum(np.abs(up), np.abs(down)), np.maximum(np.abs(up), np.abs(down))
    typical = np.median(np.abs(steps[steps != 0.0])) if steps.any() else np.inf
    is_alone = (up * down > 0.0) & (least > _EVEN * most) & (least > _STEPS * typical)
    possible = 1 + np.flatnonzero(is_alone & (sizes[1:-1] > _FAR))
    possible = possible[np.argsort(-sizes[possible], kind="stable")][: max(_MOST, int(_SHARE * len(sizes)))]
    for count in range(len(possible), 0, -1):
        chosen = possible[:count]
        others = np.delete(sizes, np.concatenate([chosen - 1, chosen, chosen + 1]))
        if sizes[chosen[-1]] > _APART * others.max(initial=0.0):
            return [int(place) for place in chosen]
    return []
