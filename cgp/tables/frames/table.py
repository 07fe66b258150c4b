"""Conversion of tables (frames, series or arrays) to numbers and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import meant

from .coordinates import Axis

__all__ = ["Table", "appended", "check_is_table", "check_shape", "input_columns", "merged", "read_table"]

Array = NDArray[Any]

_FAR = 20.0  # ranges of the other inputs: a row farther away is a mistake
_LEAST_ROWS = 10  # that show a range


class Table(NamedTuple):
    """A table as numbers.

    Attributes:
        given: the table as it was given.
        inputs: inputs of its rows, ``(n, d)``.
        values: values of the columns to fill, NaN where missing, ``(n, P)``.
        positions: positions of these columns in the table.
        names: names of these columns.
        left_out: values that a fit left out as errors of measurement, ``(n, P)``.
    """

    given: Any
    inputs: NDArray[np.float64]
    values: NDArray[np.float64]
    positions: list[int]
    names: list[Any]
    left_out: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each value is there, and was not left out, ``(n, P)``."""
        return ~self.missing & ~self.left_out

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each value is missing, ``(n, P)``."""
        return np.isnan(self.values)

    def labels(self, number: int) -> Any:
        """What the rows have as their input of that number: times of the index, or the numbers."""
        index = getattr(self.given, "index", None)
        return self.inputs[:, number] if index is None or not self.has_index else index

    @property
    def units(self) -> NDArray[np.float64]:
        """Standard deviations of the columns ``(P,)``, 1 of constant ones."""
        unit = np.nanstd(self.values, axis=0)
        return np.where(unit > 0, unit, 1.0)

    def values_of(self, filled: Any) -> NDArray[np.float64]:
        """The columns of the table once it was filled, ``(n, P)``."""
        values = np.asarray(filled.to_frame() if hasattr(filled, "to_frame") else filled)[:, self.positions]
        return values.astype(np.float64)

    def same_observations(self, other: Table) -> bool:
        """Whether another table has the same inputs and values."""
        return np.array_equal(self.inputs, other.inputs) and np.array_equal(self.values, other.values, equal_nan=True)

    @property
    def is_counted(self) -> bool:
        """Whether its rows are known by their number only: those of an array, or of an index that counts from 0."""
        index = getattr(self.given, "index", None)
        counts = index is None or (hasattr(index, "step") and (index.start, index.step) == (0, 1))
        return counts and self.has_index

    @property
    def has_index(self) -> bool:
        """Whether rows are known by their index, or number, and not by columns that are inputs."""
        return len(self.positions) == (self.given.shape[1] if len(self.given.shape) > 1 else 1)

    def placed_in(self, other: Table) -> Table | None:
        """The rows of this table, known by number, at the inputs of one with the same values; None if it has others."""
        count = min(len(self.inputs), len(other.inputs))
        first, second = self.values[:count], other.values[:count]
        both = ~np.isnan(first) & ~np.isnan(second)
        same = np.isclose(first[both], second[both], rtol=1e-6, atol=0.0)
        if not same.all() or not (same.any() or len(self.inputs) == len(other.inputs)):
            return None
        if other.is_counted:
            return self
        return self._replace(inputs=other.inputs[:count]) if len(self.inputs) == count else None

    def without(self, other: Table) -> Table:
        """The same rows without the values that another table has at the same input in the same column."""
        low, high = self.inputs.min(axis=0), self.inputs.max(axis=0)
        near = ((other.inputs >= low) & (other.inputs <= high)).all(axis=1)
        known = {*_observations(other._replace(inputs=other.inputs[near], values=other.values[near]))}
        values, cells = self.values.copy(), np.argwhere(~self.missing)
        seen = [observation in known for observation in _observations(self)]
        values[tuple(cells[seen].T)] = np.nan
        return self._replace(values=values)

    @property
    def keys(self) -> list[Any]:
        """What a user calls the columns: their names, of an array their numbers."""
        return self.names if hasattr(self.given, "iloc") else self.positions

    def outputs(self) -> Any:
        """The values, as a frame with their names for tables of pandas."""
        return self.values if not hasattr(self.given, "iloc") else self.framed_columns()

    def framed_columns(self) -> Any:
        """The values as a frame, also those of a series."""
        import pandas as pd

        return pd.DataFrame(self.values, columns=self.names)

    def filled(self, values: Array) -> Any:
        """The given table with its gaps filled by values ``(n, P)``; integer columns become floats where needed."""
        if not hasattr(self.given, "iloc"):
            return self._filled_array(values)
        frame = self.given.copy() if hasattr(self.given, "columns") else self.given.to_frame()
        for column, position in enumerate(self.positions):
            gaps = self.missing[:, column]
            if gaps.any():
                old = frame.iloc[:, position]
                new = np.where(gaps, values[:, column], self.values[:, column])
                frame.isetitem(position, _as_dtype(new, old))
        return frame if hasattr(self.given, "columns") else frame.iloc[:, 0].rename(self.given.name)

    def hiding(self, hidden: NDArray[np.bool_]) -> Any:
        """The given table with NaN at missing values and at the hidden ones, ``(n, P)``."""
        values = np.where(hidden, np.nan, self.values)
        return self._replace(values=values).filled(values)

    def _filled_array(self, values: Array) -> Array:
        given = np.ma.getdata(self.given) if np.ma.isMaskedArray(self.given) else np.asarray(self.given)
        kept = given.dtype if given.dtype in (np.float32, np.float64) or not self.missing.any() else np.float64
        result = np.array(given, dtype=kept)
        rows, columns = np.nonzero(self.missing)
        result[rows, np.asarray(self.positions)[columns]] = values[rows, columns]
        return result

    def framed(self, values: Array, index: Any = None) -> Any:
        """Values ``(n, P)`` of the columns that may be filled, in the form of the table."""
        if not hasattr(self.given, "iloc"):
            return values
        index = self.given.index if index is None else index
        if not hasattr(self.given, "columns"):
            return type(self.given)(values[:, 0], index=index, name=self.given.name)
        return type(self.given)(values, index=index, columns=self.given.columns[self.positions])

    def labelled(self, values: Array, index: Any) -> Any:
        """One value for each label, as a series where the table is one of pandas."""
        if not hasattr(self.given, "iloc"):
            return values
        import pandas as pd

        return pd.Series(values, index=index, name="absent rows")


def check_is_table(given: Any) -> None:
    """Refuse what is no table: a path, nothing, numbers, a mapping; and names of columns that come twice."""
    if isinstance(given, str | PathLike):
        raise ValueError(
            f"X: expected a table, got a path: cgp.tables.read_table({str(given)!r}).frame is the table of a file"
        )
    if given is None or isinstance(given, Number | Mapping):
        raise ValueError(f"X: expected a table: a frame or a series of pandas, or an array (n, k), got {given!r}")
    columns = getattr(given, "columns", None)
    if columns is not None and not columns.is_unique:
        twice = list(dict.fromkeys(columns[columns.duplicated()]))
        raise ValueError(
            f"X: expected columns of different names, got {twice} more than once: rename them, or drop one"
        )


def check_shape(given: Any) -> None:
    """Refuse numbers in a row, and arrays of another number of dimensions than two."""
    is_row = isinstance(given, list | tuple) and len(given) > 0 and all(isinstance(each, Number) for each in given)
    shape = (len(given),) if is_row else getattr(given, "shape", (0, 0))
    if len(shape) != 2:
        raise ValueError(f"X: expected an array (n, k), got shape {shape}: array.reshape(-1, 1) is one column")


def input_columns(inputs: Any) -> list[Any]:
    """The input columns as a list, from one name, several, or None."""
    if inputs is None:
        return []
    return [inputs] if isinstance(inputs, str | int) else list(inputs)


def read_table(
    given: Any, inputs: Any, codes: Any = np.nan, *, axis: Axis | None = None, first: int = 0
) -> tuple[Table, Axis]:
    """The numbers of a table, and the conversion of its inputs.

    Args:
        given: a frame or a series of pandas, or an array ``(n, k)``.
        inputs: columns that are inputs, by name (of an array: by number), or None for the index.
        codes: a number, or several, that stand for what is missing, besides NaN.
        axis: of a table that was read before, to read a later one alike.
        first: number of the first row, where rows are known by their number.

    Returns:
        Table and axis.

    Raises:
        ValueError: if a column holds anything but numbers, an input is not there, or a few rows of a new table are far
            from all others.

    Example:
        >>> table, axis = read_table(np.array([[1.0, np.nan], [2.0, 5.0]]), None)
        >>> table.inputs.T, int(table.missing.sum())
        (array([[0., 1.]]), 1)
    """
    columns, codes, is_new = input_columns(inputs), _codes(codes), axis is None
    if is_new and not len(given):
        raise ValueError("X: expected at least one row, got none")
    if hasattr(given, "iloc"):
        frame = given if hasattr(given, "columns") else given.to_frame()
        _check_columns(frame, columns)
        axis = Axis.of(frame, columns) if axis is None else axis
        positions = [position for position, name in enumerate(frame.columns) if name not in columns]
        names = [frame.columns[position] for position in positions]
        parts = [_column(frame.iloc[:, position], name) for position, name in zip(positions, names, strict=True)]
        numbers, values = axis.numbers(frame, first), np.column_stack(parts) if parts else np.empty((len(frame), 0))
    else:
        array = np.ma.filled(given.astype(np.float64), np.nan) if np.ma.isMaskedArray(given) else np.asarray(given)
        check_shape(array)
        _check_numbers(columns, array.shape[1])
        axis = Axis.of_rows()
        chosen = [int(column) % array.shape[1] for column in columns]
        positions = [position for position in range(array.shape[1]) if position not in chosen]
        names, values = [f"column {position}" for position in positions], array[:, positions].astype(np.float64)
        numbers = array[:, chosen].astype(np.float64) if chosen else axis.numbers(array, first)
    if not positions:
        raise ValueError("X: expected a column to fill besides the inputs, got none")
    values = np.where(np.isin(values, [*codes, *codes.astype(np.float32)]), np.nan, values)
    _check_values(numbers, values, names)
    table = Table(given, numbers, values, positions, names, np.zeros(values.shape, dtype=bool))
    if is_new:
        _check_strays(table)
    return table, axis


def merged(parts: Sequence[Table]) -> Table:
    """Concatenated tables."""
    if len(parts) == 1:
        return parts[0]
    given: Any = [part.given for part in parts]
    if hasattr(given[0], "iloc"):
        import pandas as pd

        attrs, given = given[0].attrs, pd.concat(given)
        given.attrs = attrs  # such as units, which further rows need not have
    else:
        given = np.ma.concatenate(given) if any(map(np.ma.isMaskedArray, given)) else np.concatenate(given)
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("inputs", "values", "left_out"))
    inputs, values, left_out = joined
    return parts[0]._replace(given=given, inputs=inputs, values=values, left_out=left_out)


def appended(parts: Sequence[Table], further: Table) -> list[Table]:
    """Tables with one more, which is joined to those before it that are no longer: few parts, rarely copied."""
    parts = [*parts]
    while parts and len(parts[-1].inputs) <= len(further.inputs):
        further = merged([parts.pop(), further])
    return [*parts, further]


def _observations(table: Table) -> list[tuple[Any, ...]]:
    """Column, value and input of each observation, row by row."""
    rows, columns = np.nonzero(~table.missing)
    parts = [columns, table.values[rows, columns], *table.inputs[rows].T]
    return list(zip(*(part.tolist() for part in parts), strict=True))


def _codes(given: Any) -> Array:
    """What stands for what is missing, as numbers."""
    try:
        return np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"missing_values: expected a number, or several, got {given!r}: text is replaced beforehand, "
            "frame.replace('ND', float('nan')), and in a file by cgp.tables.read_table(path, missing=['ND'])"
        ) from error


def _check_columns(frame: Any, columns: list[Any]) -> None:
    absent = [name for name in columns if name not in frame.columns]
    if absent:
        near = meant(absent, frame.columns)
        raise ValueError(f"inputs: expected columns of the table, {list(frame.columns)}, got {absent}{near}")


def _check_numbers(columns: list[Any], count: int) -> None:
    wrong = [column for column in columns if not isinstance(column, int | np.integer) or not -count <= column < count]
    if wrong:
        raise ValueError(f"inputs: expected numbers of columns below {count}, for an array, got {wrong}")


def _check_values(numbers: Array, values: Array, names: list[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise ValueError("inputs: expected a finite number in every row")
    infinite = [name for name, column in zip(names, values.T, strict=True) if np.isinf(column).any()]
    if infinite:
        raise ValueError(f"X: expected finite values or NaN, got infinity in {infinite}")


def _check_strays(table: Table) -> None:
    """Refuse a few rows that are so far from all others that nothing can be learned on the scale of these."""
    for number, inputs in enumerate(table.inputs.T):
        ordered, few = np.sort(inputs), max(1, len(inputs) // 100)
        if len(ordered) < _LEAST_ROWS:
            continue
        low, high = ordered[few], ordered[-1 - few]
        reach = _FAR * (high - low)
        is_far = (inputs < low - reach) | (inputs > high + reach)
        if reach > 0 and is_far.any():
            labels, far, others = table.labels(number), np.flatnonzero(is_far), np.flatnonzero(~is_far)
            first, last = (labels[others[end(inputs[others])]] for end in (np.argmin, np.argmax))
            raise ValueError(
                f"inputs: expected no row as far from all others as {labels[far[0]]} (row {far[0]}) is from {first} to "
                f"{last}: more than {_FAR:g} times their range; leave it out if it is a mistake"
            )


def _column(column: Any, name: Any) -> NDArray[np.float64]:
    """A column of pandas as float64, NaN for missing values."""
    import pandas as pd

    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        raise ValueError(
            f"column {name!r}: expected numbers, got times: make it the index, frame.set_index({name!r}), "
            f"or an input, inputs={name!r}"
        )
    if column.dtype.kind in "biuf" and not isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    numbers = pd.to_numeric(column, errors="coerce") if column.dtype.kind == "O" else column.where(column.isna())
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        if pd.to_numeric(wrong.astype(str).str.replace(",", "."), errors="coerce").notna().all():
            raise ValueError(
                f"column {name!r}: expected numbers, got {wrong.iloc[0]!r}: frame[{name!r}].str.replace(',', '.')"
                ".astype(float), or read_csv(..., decimal=','), reads decimal commas"
            )
        if len(column) > 1 and wrong.equals(column.iloc[:1]):
            raise ValueError(
                f"column {name!r}: expected numbers, got {wrong.iloc[0]!r} in the first row only: if it is the unit, "
                "cgp.tables.read_table(file).frame has it as such, or read_csv(..., skiprows=[1]) leaves its line out"
            )
        raise ValueError(
            f"column {name!r}: expected numbers, got {wrong.iloc[0]!r}: pandas.to_numeric(frame[{name!r}], "
            f"errors='coerce') makes texts gaps, frame.drop(columns={name!r}) leaves it out; dates can be the index: "
            "pandas.to_datetime, set_index"
        )
    return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def _as_dtype(values: Array, old: Any) -> Any:
    """Values as a column with the dtype of the old one, if that is not an integer type."""
    import pandas as pd

    dtype = old.dtype if old.dtype.kind == "f" else "Float64" if _is_nullable(old.dtype) else np.float64
    return pd.Series(values, index=old.index, name=old.name).astype(dtype)


def _is_nullable(dtype: Any) -> bool:
    return not isinstance(dtype, np.dtype) and dtype.kind in "biu"
