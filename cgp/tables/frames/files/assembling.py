"""Columns and rows as one frame, and where in the file each of its cells is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .clocks import Rows
from .columns import Columns
from .hints import UnclearError, option
from .options import ReadOptions
from .spacing import absent_times

__all__ = ["Assembled", "absent_rows", "assembled", "pivoted"]

_HOURS = 24
_FEW_REPEATS = 0.05
_SERIES_SHARE = 0.2  # of the rows, that distinct names of series may be


class Assembled(NamedTuple):
    """A frame and the places of its cells.

    Attributes:
        frame: numbers to fill, ``(n, P)`` and inputs; the index is of times or numbers where rows are known by one.
        inputs: columns of the frame that say where a row is; none for the index.
        places: row of the file of each value, -1 for none, ``(n, P)``.
        fields: column of the file of each column of the frame.
        series: name of the series of each column of the frame, where the file is long.
        series_field: column of the file with these names.
        is_adding: whether values without a place get a row.
        notes: for the reader.
    """

    frame: Any
    inputs: list[str]
    places: NDArray[np.int64]
    fields: list[str]
    series: list[str]
    series_field: str
    is_adding: bool
    notes: list[str]


def assembled(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> Assembled:
    """The frame of a file with one row for each time.

    Args:
        cells: text of all columns.
        rows: what rows are known by.
        columns: those of numbers.
        options: whether times repeat, and at which distance rows should be.

    Returns:
        The frame; rows that are not there are added where a distance is given.

    Raises:
        UnclearError: if times repeat.
    """
    notes = _repeats(cells, rows, columns, options)
    numbers = {name: each.values for name, each in columns.numbers.items()}
    frame = cells[[]].assign(**(rows.labels if len(rows.labels) > 1 else {}), **numbers)
    if len(rows.labels) == 1:
        ((name, label),) = rows.labels.items()
        frame = frame.set_axis(_index(label, name), axis="index")
    inputs = [*rows.labels] if len(rows.labels) > 1 else []
    places = np.repeat(np.arange(len(frame))[:, None], len(numbers), axis=1)
    if options.every is not None:
        added = absent_times(_needed_times(rows, options), options.every)
        notes += [f"{len(added)} rows are added"]
        frame, places = _with_rows(frame, places, added)
    return Assembled(frame, inputs, places, [*numbers], [], "", options.every is not None, notes)


def pivoted(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> Assembled:
    """The frame of a file with one value in each row: a column for each series.

    Args:
        cells: text of all columns.
        rows: what rows are known by.
        columns: those of numbers, the values among them.
        options: with the columns of series, time and value.

    Returns:
        The frame; values that have no row are in it, and have no place.

    Raises:
        UnclearError: if a series has two values at one time, or there are no numbers.
    """
    import pandas as pd

    series, time, value = options.long
    if value not in columns.numbers:
        raise UnclearError(
            f"{value!r}: expected a column of numbers, got {columns.left.get(value, 'what rows are known by')}"
        )
    keys = pd.MultiIndex.from_arrays([rows.labels[time], cells[series]])
    if (cells[series] == "").any() or keys.duplicated().any():
        twice = [*map(str, keys[keys.duplicated()][0])] if keys.duplicated().any() else "no name"
        raise UnclearError(f"expected one row for each {series!r} and {time!r}, got several: {twice}")
    positions = pd.Series(np.arange(len(cells)), index=keys).unstack(fill_value=-1)
    if options.every is not None:
        added = absent_times(_needed_times(rows, options), options.every)
        positions = pd.concat([positions, pd.DataFrame(-1, index=added, columns=positions.columns)]).sort_index()
    order = [*dict.fromkeys(cells[series])]
    places = positions[order].to_numpy().astype(np.int64)
    values = np.where(places >= 0, columns.numbers[value].values.to_numpy()[places], np.nan)
    frame = pd.DataFrame(values, index=_index(positions.index, time), columns=order)
    absent = int((places < 0).sum())
    notes = [f"{len(order)} series of {series!r}: {', '.join(map(repr, order[:6]))}{' …' if len(order) > 6 else ''}"]
    if absent and options.every is None:
        notes.append(
            f"{absent} values have no row of their own: they are left out "
            f"({option('every', '1D')}, or what the distance is, adds rows)"
        )
    return Assembled(frame, [], places, [value] * len(order), order, series, options.every is not None, notes)


def _index(labels: Any, name: str) -> Any:
    import pandas as pd

    return pd.Index(labels, name=name)


def _needed_times(rows: Rows, options: ReadOptions) -> Any:
    if rows.times is None:
        known = ", ".join(map(repr, rows.labels)) or "their order"
        raise UnclearError(f"{option('every', str(options.every))}: expected rows that are known by times, got {known}")
    return rows.times


def _with_rows(frame: Any, places: NDArray[np.int64], added: Any) -> tuple[Any, NDArray[np.int64]]:
    """A frame with empty rows, in the order of time."""
    import pandas as pd

    new = pd.DataFrame(np.nan, index=added.rename(frame.index.name), columns=frame.columns)
    whole = pd.concat([frame, new])
    order = np.argsort(whole.index.to_numpy(), kind="stable")
    every = np.vstack([places, np.full((len(added), places.shape[1]), -1)])
    return whole.iloc[order], every[order]


def _repeats(cells: Any, rows: Rows, columns: Columns, options: ReadOptions) -> list[str]:
    """Refuse times that repeat because rows are of several series; few others are said."""
    labels = [*rows.labels.values()]
    if len(labels) != 1:
        return []
    repeated = labels[0].duplicated()
    count = int(repeated.sum())
    if not count or options.repeats:
        return [f"{count} rows repeat a time"] if count else []
    time = next(iter(rows.labels))
    names = _names_of_series(cells.drop(columns=rows.columns), labels[0], columns, count / len(cells))
    if names:
        value = next((name for name in columns.numbers if name not in names), "VALUE")
        raise UnclearError(
            f"{count} of {len(cells)} rows repeat a time, and {names[0]!r} tells them apart: "
            f"say {option('long', [names[0], rows.columns[0], value])} if it names series, each row one value"
            f"{_or_hours(cells, rows, names[0])}, or {option('repeats')} if these are readings of the same thing"
        )
    if count > _FEW_REPEATS * len(cells):
        raise UnclearError(
            f"{count} of {len(cells)} rows repeat {time!r}: say {option('repeats')} if these are readings of one thing"
        )
    first = labels[0][repeated].iloc[0]
    return [f"{count} {'row repeats' if count == 1 else 'rows repeat'} a time, the first {first}"]


def _or_hours(cells: Any, rows: Rows, name: str) -> str:
    """What to say if a column of whole numbers up to 24 holds hours."""
    hours = cells[name].str.fullmatch(r"\d{1,2}").all() and cells[name].astype(int).max() <= _HOURS
    return (
        f", {option('index', [rows.columns[0], name])} if it holds the hours"
        if hours and rows.times is not None
        else ""
    )


def _names_of_series(others: Any, label: Any, columns: Columns, share: float) -> list[str]:
    """Columns of words, or of few whole numbers where many times repeat, that tell rows of the same time apart."""
    found = []
    for name in others:
        distinct = others[name].nunique()
        is_word = columns.left.get(name, "").startswith(("words", "numbers", "whole"))
        is_few = (
            share >= _SERIES_SHARE
            and distinct <= max(_HOURS, _SERIES_SHARE * len(others))
            and others[name].str.fullmatch(r"\d+").all()
        )
        if (is_word or is_few) and 1 < distinct < len(others) and not _pairs(others[name], label).duplicated().any():
            found.append(str(name))
    return found


def _pairs(names: Any, label: Any) -> Any:
    import pandas as pd

    return pd.MultiIndex.from_arrays([names, label])


def absent_rows(times: Any) -> int:
    """How many rows are not there between times that are mostly equally far apart."""
    apart = times.sort_values().diff().dropna().dt.total_seconds()
    if not len(apart) or not apart.median() > 0:
        return 0
    return int((apart / apart.median()).round().sub(1).clip(lower=0).sum())
