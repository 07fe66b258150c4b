"""Inputs of a table's rows (times, numbers, locations or row numbers), as numbers and back; cycles of the calendar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import meant

__all__ = ["PERIOD_NAMES", "YEAR", "Axis", "Coordinate", "offered_periods"]

Array = NDArray[Any]

_DAY = np.timedelta64(1, "D")
_DIRECTIONS = {
    **dict.fromkeys(("lat", "latitude"), "latitude"),
    **dict.fromkeys(("lon", "lng", "long", "longitude"), "longitude"),
    **dict.fromkeys(("y", "north", "northing"), "north"),
    **dict.fromkeys(("x", "east", "easting"), "east"),
}


class Coordinate(NamedTuple):
    """Conversion of an input to numbers.

    Attributes:
        kind: "time" (days since the origin), "duration" (days) or "number" (as it is).
        origin: first time, in UTC where times have a zone.
        zone: the time zone, or None.
        name: name of the index or the column, for error messages.
    """

    kind: str
    origin: np.datetime64 | None = None
    zone: Any = None
    name: str = "index"

    @classmethod
    def of(cls, labels: Any, name: str) -> Coordinate:
        """The coordinate of an index or a column of pandas, with its first time as the origin."""
        labels = _plain(labels)
        kind = {"M": "time", "m": "duration"}.get(labels.dtype.kind, "number")
        if kind != "time":
            return cls(kind, name=name)
        return cls(kind, _utc(labels).min(), getattr(labels, "tz", None), name)

    def numbers(self, labels: Any) -> NDArray[np.float64]:
        """The labels of rows as numbers ``(n,)``; those of another kind than in fit, or missing ones, are refused."""
        labels = _plain(labels)
        if int(labels.isna().sum()):
            raise ValueError(f"{self.name}: expected a value in every row, got none in {int(labels.isna().sum())}")
        other = Coordinate.of(labels, self.name) if len(labels) else self
        if (other.kind, other.zone is None) != (self.kind, self.zone is None):
            raise ValueError(f"{self.name}: expected {self._described()} as in fit, got {other._described()}")
        if self.kind == "time":
            return np.asarray((_utc(labels) - self.origin) / _DAY, dtype=np.float64)
        if self.kind == "duration":
            return np.asarray(labels.to_numpy() / _DAY, dtype=np.float64)
        return _finite(labels, self.name)

    def labels(self, numbers: Array) -> Any:
        """An index of pandas from numbers, times to the nearest microsecond."""
        import pandas as pd

        if self.kind == "number":
            return pd.Index(numbers)
        steps = np.round(np.asarray(numbers) * 86_400e6).astype(np.int64).astype("timedelta64[us]")
        if self.kind == "duration":
            return pd.TimedeltaIndex(steps)
        assert self.origin is not None
        times = pd.DatetimeIndex(self.origin.astype("datetime64[us]") + steps)
        return times if self.zone is None else times.tz_localize("UTC").tz_convert(self.zone)

    def _described(self) -> str:
        if self.kind != "time":
            return f"{self.kind}s"
        return "times without a time zone" if self.zone is None else "times with a time zone"


class Axis(NamedTuple):
    """The inputs of a table.

    Attributes:
        columns: names of the input columns; empty for the index, or for row numbers if there is no index.
        coordinates: coordinate of each input; empty for row numbers.
    """

    columns: tuple[Any, ...]
    coordinates: tuple[Coordinate, ...]

    @classmethod
    def of(cls, frame: Any, columns: Sequence[Any]) -> Axis:
        """The axis of a frame whose inputs are these columns, or its index if there are none."""
        if columns:
            return cls(tuple(columns), tuple(Coordinate.of(frame[name], f"column {name!r}") for name in columns))
        return cls((), (Coordinate.of(frame.index, "index"),))

    @classmethod
    def of_rows(cls) -> Axis:
        """The axis of row numbers."""
        return cls((), ())

    def numbers(self, frame: Any, first: int = 0) -> NDArray[np.float64]:
        """The inputs of all rows ``(n, d)``; row numbers start at ``first``."""
        if not self.coordinates:
            return np.arange(first, first + len(frame), dtype=np.float64)[:, None]
        sources = [frame[name] for name in self.columns] if self.columns else [frame.index]
        pairs = zip(self.coordinates, sources, strict=True)
        return np.column_stack([coordinate.numbers(source) for coordinate, source in pairs])

    def times(self, frame: Any) -> Any:
        """The times of all rows, or None if the input is not a time."""
        if not self.is_time:
            return None
        return _plain(frame[self.columns[0]] if self.columns else frame.index)

    def drawn(self, frame: Any, inputs: Array) -> tuple[Array, str]:
        """Horizontal axis of plots and its label: local times, one input, or the row number."""
        times = self.times(frame)
        if times is not None:
            return np.asarray(times.tz_localize(None) if times.tz is not None else times), ""
        if inputs.shape[1] > 1:
            return np.arange(float(len(inputs))), "row"
        if not self.coordinates:
            return inputs[:, 0], "row"
        name = self.columns[0] if self.columns else frame.index.name
        unit = " (days)" if self.coordinates[0].kind == "duration" else ""
        return inputs[:, 0], f"{'' if name is None else name}{unit}"

    def is_place(self, inputs: Array) -> bool:
        """Whether rows ``(n, 2)`` are places: two inputs, and no times among them."""
        return inputs.shape[1] == 2 and all(coordinate.kind == "number" for coordinate in self.coordinates)

    def mapped(self, inputs: Array) -> tuple[Array, tuple[str, str], bool]:
        """Places ``(n, 2)`` to the east and north, by the inputs' names; these names; whether both are degrees."""
        names = [str(name) for name in self.columns] or ["", ""]
        kinds = [_DIRECTIONS.get(name.lower(), "") for name in names]
        east = 1 if kinds[0] in ("latitude", "north") or kinds[1] in ("longitude", "east") else 0
        degrees = {"latitude", "longitude"} == set(kinds)
        return inputs[:, [east, 1 - east]], (names[east], names[1 - east]), degrees

    def described(self, lags: Array) -> list[str]:
        """Lags in units of the input as text, empty for no lag."""
        if not self.coordinates or self.coordinates[0].kind == "number":
            return [f"{lag:+.3g}" if lag else "" for lag in lags]
        units = ((1.0, "d"), (1.0 / 24.0, "h"), (1.0 / 1440.0, "min"), (1.0 / 86400.0, "s"))
        chosen = [next((unit for unit in units if abs(lag) >= unit[0]), units[-1]) for lag in lags]
        return [f"{lag / size:+.2g} {name}" if lag else "" for lag, (size, name) in zip(lags, chosen, strict=True)]

    def spelled(self, lengths: Array) -> str:
        """A length of each input in words.

        Args:
            lengths: above 0, in units of the inputs, days for times, ``(d,)``.

        Returns:
            Text.

        Example:
            >>> Axis((), (Coordinate("time"),)).spelled(np.array([0.5])), Axis.of_rows().spelled(np.array([0.5]))
            ('12 h', '0.5 rows')
            >>> Axis(("lat", "lon"), (Coordinate("number"),) * 2).spelled(np.array([0.5, 2.0]))
            '0.5 of lat by 2 of lon'
        """
        if not self.coordinates:
            return f"{lengths[0]:.3g} rows"
        if len(lengths) > 1:
            return " by ".join(f"{length:.3g} of {name}" for length, name in zip(lengths, self.columns, strict=True))
        return self.described(lengths)[0].removeprefix("+")

    def periods(self, periods: str | Sequence[Any]) -> str | tuple[float, ...]:
        """Periods, words or durations such as "7D", or numbers, in units of the input, days for times; "auto" stays.

        Returns:
            Numbers, or "auto".

        Raises:
            ValueError: if they are neither, or durations where the inputs are not times.

        Example:
            >>> Axis((), (Coordinate("time"),)).periods(["12h", 365.25])
            (0.5, 365.25)
            >>> Axis((), (Coordinate("time"),)).periods(["day", "year"])
            (1.0, 365.2425)
        """
        if isinstance(periods, str):
            if periods != "auto":
                raise ValueError(
                    f"periods: expected 'auto' or a sequence of durations, such as ('1D',), got {periods!r}"
                )
            return periods
        return tuple(_in_units(period, self.is_time) for period in periods)

    @property
    def is_time(self) -> bool:
        """Whether the input is a time."""
        return [coordinate.kind for coordinate in self.coordinates] == ["time"]


def _plain(labels: Any) -> Any:
    """Labels as a one-level index with a numpy dtype; periods are replaced by their start."""
    import pandas as pd

    if isinstance(labels, pd.MultiIndex):
        raise ValueError(f"index: expected one level, got {labels.nlevels}: name the inputs as columns, inputs=(...)")
    labels = pd.Index(labels)
    return labels.to_timestamp() if isinstance(labels, pd.PeriodIndex) else labels


def _utc(labels: Any) -> Any:
    """Times without zone, with a numpy dtype."""
    return (labels if labels.tz is None else labels.tz_convert("UTC").tz_localize(None)).to_numpy()


def _finite(labels: Any, name: str) -> NDArray[np.float64]:
    advice = "; dates become times by pandas.to_datetime, of days before months with dayfirst=True"
    try:
        numbers = np.asarray(labels.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected times or numbers, got {labels[0]!r}{advice}") from error
    if labels.dtype.kind not in "iuf":
        raise ValueError(f"{name}: expected times or numbers, got {labels[0]!r}{advice}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected finite numbers, got {int((~np.isfinite(numbers)).sum())} that are not")
    return numbers


def _in_units(period: Any, is_time: bool) -> float:
    if isinstance(period, int | float):
        return float(period)
    if not is_time:
        raise ValueError(f"periods: expected numbers in units of the input, which is no time, got {period!r}")
    import pandas as pd

    if str(period).lower() in _CYCLES:
        return _CYCLES[str(period).lower()]
    try:
        return float(pd.Timedelta(period) / pd.Timedelta(days=1))
    except ValueError as error:
        words = "day, week, year, or durations such as '1D' and '365.2425D'"
        raise ValueError(f"periods: expected {words}, got {period!r}{meant([period], _CYCLES)}") from error


YEAR = 365.2425  # days
_CYCLES = {"day": 1.0, "week": 7.0, "year": YEAR}
PERIOD_NAMES = {1.0: "a day", 7.0: "a week", YEAR: "a year"}
_CALENDAR = {1.0: 3.0, 7.0: 3.0, YEAR: 2.0}  # periods in days, and the fewest of them that a table must span
_LEAST_ROWS = 4.0  # of a cycle
_LEAST_READINGS = 200


def offered_periods(days: NDArray[np.float64], readings: int) -> list[float]:
    """The cycles of the calendar that times are enough for: a day, a week and a year.

    Args:
        days: times of the rows, ``(n,)``.
        readings: values that were observed.

    Returns:
        Their periods in days: three days, three weeks or two years are spanned, with four rows in a cycle.

    Example:
        >>> offered_periods(np.arange(800.0), 800), offered_periods(np.arange(100.0) / 24, 300)
        ([7.0, 365.2425], [1.0])
    """
    distinct = np.unique(days)
    if len(distinct) < 2 or readings < _LEAST_READINGS:
        return []
    step, span = float(np.median(np.diff(distinct))), float(distinct[-1] - distinct[0])
    return [period for period, least in _CALENDAR.items() if span >= least * period and step <= period / _LEAST_ROWS]
