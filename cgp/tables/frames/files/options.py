"""What decides where a file can be read in two ways, and errors that name it: as an argument, or as a flag."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cgp.spelling import meant

__all__ = ["ReadOptions", "UnclearError", "as_flags", "check_columns", "option"]

_OPTION = re.compile("\x02(.*?)\x1f(.*?)\x03", re.DOTALL)
_WORDS = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";", "point": ".", "\\t": "\t"}
_SIGNS = {"delimiter": ";,\t| :", "decimal": ".,", "thousands": ".,' \u2019\u00a0\u202f\u2009"}
_ALIKE = {"\u2019": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "}  # groups that are written for each other
_LISTS = ("index", "inputs", "long", "missing", "leave", "numbers")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of :func:`.read_table`; what is None is looked for in the file.

    Args:
        delimiter: between fields: ``","``, ``";"``, "tab", ``"|"`` or "space" for any number of blanks.
        encoding: of text, such as "utf-8" or "cp1252".
        comment: what lines that are left alone begin with; "" for none.
        header: whether the first line that is read holds names.
        skip_rows: lines before the header.
        units_row: whether the line below the header holds units.
        skip_footer: lines below the last row.
        sheet: of a workbook, by its name.
        decimal: the decimal sign.
        thousands: what thousands are grouped by; "" for nothing.
        dayfirst: whether 03/04 is in April; False for March.
        time_format: of the times, as ``strptime`` has it.
        index: columns with the times or numbers of the rows, or with dates and times of day; False for their order.
        inputs: columns that say where a row is, such as latitude and longitude.
        long: columns of the series' name, of the time (or a date and a time of day) and of the value, where each row is
            one value.
        repeats: whether rows of the same time are readings of the same thing.
        every: distance of the rows, such as "1h": rows that are not there are added.
        missing: values that stand for what is missing, as they are written: "-999", "ND"; "<" is everything that begins
            so, and "none" says that no further value does.
        half_limits: whether a value below a limit, such as <0.5, is taken to be half of it.
        leave: columns that are left alone.
        numbers: columns whose numbers are some although they have leading zeros, such as directions.
    """

    delimiter: str | None = None
    encoding: str | None = None
    comment: str | None = None
    header: bool | None = None
    skip_rows: int | None = None
    units_row: bool | None = None
    skip_footer: int | None = None
    sheet: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dayfirst: bool | None = None
    time_format: str | None = None
    index: Sequence[str] | bool | None = None
    inputs: Sequence[str] = ()
    long: Sequence[str] = ()
    repeats: bool = False
    every: str | None = None
    missing: Sequence[str] = ()
    half_limits: bool = False
    leave: Sequence[str] = ()
    numbers: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, allowed in _SIGNS.items():
            given = getattr(self, name)
            sign: Any = given if given is None else _WORDS.get(given.lower(), given)
            if sign not in (None, *allowed) and (name, sign) != ("thousands", ""):
                raise ValueError(f"{name}: expected one of {' '.join(map(repr, allowed))}, got {sign!r}")
            object.__setattr__(self, name, _ALIKE.get(sign, sign))
        for name in _LISTS:
            if (given := getattr(self, name)) is not None and not isinstance(given, bool):
                listed = [given] if isinstance(given, str | int | float) else given
                object.__setattr__(self, name, tuple(map(str, listed)))
        if self.dayfirst not in (None, True, False):
            raise ValueError(f"dayfirst: expected True, False or None, got {self.dayfirst!r}")
        self._check()

    def _check(self) -> None:
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands: expected different signs, got {self.decimal!r} for both")
        if self.index is True:
            raise ValueError("index: expected names of columns, or False, got True")
        known_by = [name for name in ("index", "inputs", "long") if getattr(self, name)]
        if len(known_by) > 1:
            raise ValueError(f"{' and '.join(known_by)}: expected one of them, got both")
        if 0 < len(self.long) < 3:
            parts = [part.strip() for text in self.long for part in text.split(",")]
            such = f": say long={parts}" if len(parts) > 2 else ""
            raise ValueError(
                "long: expected columns of series, time and value, or of series, date, time of day and value, got "
                f"{[*self.long]}{such}"
            )
        if self.half_limits and "<" in self.missing:
            raise ValueError("missing and half_limits: expected one of them for values such as <0.5, got both")
        for name in ("skip_rows", "skip_footer"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name}: expected a number of lines, got {getattr(self, name)}")


class UnclearError(ValueError):
    """A file that can be read in two ways or in none, and what decides.

    Args:
        text: with options of :func:`option`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return as_arguments(self.text)

    @property
    def flags(self) -> str:
        """The text for the command line."""
        return as_flags(self.text)


def check_columns(options: ReadOptions, names: Sequence[str], columns: Iterable[str]) -> None:
    """Refuse columns that options name and a table has not."""
    columns = [*columns]
    for name in names:
        given = getattr(options, name)
        if absent := [each for each in (given if isinstance(given, Sequence) else ()) if each not in columns]:
            near = meant(absent, columns)
            raise UnclearError(f"{option(name, absent)}: expected columns of the table, {columns}, got {absent}{near}")


def option(name: str, value: Any = True) -> str:
    """An option with its value, as a part of a text that is spelled later."""
    flag = name.replace("_", "-")
    if value is False:
        words = "--monthfirst" if name == "dayfirst" else f"--no-{flag}"
    elif value is True:
        words = f"--{flag}"
    else:
        parts = [value] if isinstance(value, str | int) else value
        joined = ("," if name == "long" else " ").join(
            "TAB" if part == "\t" else shlex.quote(str(part)) for part in parts
        )
        words = f"--{flag} {joined}"
    return f"\x02{name}={value!r}\x1f{words}\x03"


def as_arguments(text: str) -> str:
    """A text whose options are spelled as Python does."""
    return _OPTION.sub(lambda match: match[1], text)


def as_flags(text: str) -> str:
    """A text whose options are spelled as the command line does."""
    return _OPTION.sub(lambda match: match[2], text)
