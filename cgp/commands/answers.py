"""What ``cgp fill`` says of a table besides filling it: sums, means, ends of intervals, and what follows."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

__all__ = ["add_to", "check", "check_for", "places", "write"]

_PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "MS", "quarter": "QS", "year": "YS", "all": None}


def add_to(fill: Any) -> None:
    """Add the flags of answers to those of filling."""
    for name in ("sums", "means"):
        fill.add_argument(
            f"--{name}",
            nargs=2,
            metavar=("PERIOD", "FILE"),
            help=f"write {name} of each {', '.join(_PERIODS)} (or frequency of pandas) with their standard errors",
        )
    fill.add_argument(
        "--interval", nargs=2, metavar=("LEVEL", "FILE"), help="write the ends of intervals, such as 0.95"
    )
    fill.add_argument("--forecast", nargs=2, metavar=("ROWS", "FILE"), help="write the rows that follow the table")


def places(parsed: argparse.Namespace) -> list[Path]:
    """Where answers are written."""
    asked = (parsed.sums, parsed.means, parsed.interval, parsed.forecast)
    return [Path(given[1]) for given in asked if given is not None]


def check(parsed: argparse.Namespace) -> None:
    """Refuse what no table has, before anything heavy is imported."""
    from cgp.tables.frames.files.sources import kind_of_file

    for path in places(parsed):
        if kind_of_file(path) != "text":
            raise ValueError(f"{path}: expected .csv for sums, means, intervals and forecasts, got {path.suffix!r}")
    if parsed.interval is not None and not 0 < _level(parsed.interval[0]) < 1:
        raise ValueError(f"--interval: expected a level between 0 and 1, such as 0.95, got {parsed.interval[0]!r}")
    if parsed.forecast is not None and not parsed.forecast[0].isdigit():
        raise ValueError(f"--forecast: expected a number of rows, got {parsed.forecast[0]!r}")


def check_for(parsed: argparse.Namespace, table: Any) -> None:
    """Refuse periods and forecasts that the table cannot have, before it is fitted to."""
    import pandas as pd

    for flag, given in (("--sums", parsed.sums), ("--means", parsed.means)):
        if given is None or (period := _period(given[0])) is None:
            continue
        try:
            pd.tseries.frequencies.to_offset(period)
        except ValueError:
            raise ValueError(
                f"{flag}: expected {', '.join(_PERIODS)}, or a frequency of pandas, got {given[0]!r}"
            ) from None
        if not isinstance(table.frame.index, pd.DatetimeIndex):
            raise ValueError(f"{flag}: expected 'all', as the rows of this table have no times, got {given[0]!r}")
    if parsed.forecast is not None and len(table.inputs) > 1:
        raise ValueError(f"--forecast: expected rows that follow each other, got places, {', '.join(table.inputs)}")


def write(parsed: argparse.Namespace, imputer: Any, table: Any) -> None:
    """Write sums, means and a forecast, each with its standard errors beside it, and the ends of intervals."""
    for how, given in (("sum", parsed.sums), ("mean", parsed.means)):
        if given is not None:
            _write_pairs(imputer, "aggregate", (_period(given[0]), how), table, Path(given[1]))
    if parsed.interval is not None:
        level, path = _level(parsed.interval[0]), Path(parsed.interval[1])
        _write_pairs(imputer, "interval", (level,), table, path, heads=("{} low", "{} high"))
    if parsed.forecast is not None:
        _write_pairs(imputer, "forecast", (int(parsed.forecast[0]),), table, Path(parsed.forecast[1]))


def _period(given: str) -> str | None:
    """What a period is called by pandas, None for all rows."""
    name = given.lower()
    return _PERIODS.get(name, _PERIODS.get(name.removesuffix("s"), given))


def _level(given: str) -> float:
    """A number, or 0 for what is none."""
    return float(given) if re.fullmatch(r"\d*\.?\d+", given) else 0.0


def _write_pairs(
    imputer: Any,
    what: str,
    arguments: tuple[Any, ...],
    table: Any,
    path: Path,
    heads: tuple[str, str] = ("{}", "{} std"),
) -> None:
    """Write values and standard errors of an answer of the imputer, or two ends, a pair of columns for each column."""
    import pandas as pd

    from cgp.atomic_files import write_aside

    if not hasattr(imputer, what):
        raise ValueError(f"{path}: the method that --assess recommends has no such answer: leave --assess out")
    values, others = getattr(imputer, what)(*arguments)
    pairs = {}
    for name in values:
        digits = table.precision(name)
        write = digits.write_error if heads[1].endswith("std") else digits.write
        pairs[heads[0].format(name)] = [digits.write(value) for value in values[name]]
        pairs[heads[1].format(name)] = [write(value) for value in others[name]]
    frame = pd.DataFrame(pairs, index=values.index)
    write_aside(
        path, lambda aside: frame.to_csv(aside, sep=table.delimiter, index_label=table.frame.index.name or "row")
    )
