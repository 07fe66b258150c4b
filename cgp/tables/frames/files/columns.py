"""The columns of a table: numbers to fill, and what is left as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cgp.spelling import first_of

from .numbers import ABSENT, LIMITS, NumberForm, form_of_numbers, looks_like_number
from .options import ReadOptions, UnclearError, option

__all__ = ["EMPTY", "PADDED", "Column", "Columns", "columns_of"]

EMPTY = "nothing but missing values"
PADDED = "numbers with leading zeros are names"
_UNIT = re.compile(r"[-+]?[\d.,]*\d\s?[%°€$£‰]|[-+]?[$€£]\s?[-+]?\d[\d.,]*|[-+]?\d[\d.,]*\s[^\W\d][\w/%°³²^-]*")
_COUNTERS = ("index", "id", "row", "no", "nr", "record")
_BELOW = re.compile(r"[<≤]\s*(.+)")
_LARGEST = 2**53  # whole numbers beyond are not told apart by floating-point ones
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MOST = 6  # words that are shown
_FEW, _SOME = 5, 0.1  # words, or a share of numbers, of a column of numbers with words among them
_CODES = tuple(sign * code for code in (99.0, 99.9, 999.0, 999.9, 9999.0, 9999.9, 99999.0, 32768.0) for sign in (-1, 1))


class Column(NamedTuple):
    """A column of numbers.

    Attributes:
        values: a series of pandas, NaN where missing.
        missing: how often each text stands for what is missing; nothing by itself is not counted.
        halved: how many values are half of a limit.
    """

    values: Any
    missing: dict[str, int]
    halved: int


class Columns(NamedTuple):
    """The columns of numbers by name, why each of the others is left as it is, and the form of the numbers."""

    numbers: dict[str, Column]
    left: dict[str, str]
    form: NumberForm


class _Texts(NamedTuple):
    """How often each text of a column comes.

    Attributes:
        numbers: like numbers.
        missing: for what is missing.
        words: all others.
        limits: like numbers with ``<`` before them, where half of them is taken.
    """

    numbers: dict[str, int]
    missing: dict[str, int]
    words: dict[str, int]
    limits: dict[str, int]

    @classmethod
    def of(cls, column: Any, options: ReadOptions) -> _Texts:
        """The texts of a series; a code, a word for nothing, or a mark without letters and digits is missing."""
        result, codes = cls({}, {}, {}, {}), options.missing
        for text, count in Counter(column).items():
            is_code = text in codes or (text[:1] in LIMITS and text[:1] in codes)
            if text and (is_code or text in ABSENT or not any(map(str.isalnum, text))):
                result.missing[text] = count
            elif options.half_limits and looks_like_number(_limit(text)):
                result.limits[text] = count
            elif text:
                (result.numbers if looks_like_number(text) else result.words)[text] = count
        return result


def columns_of(cells: Any, options: ReadOptions, delimiter: str, known: Mapping[str, str] = _NOTHING) -> Columns:
    """The columns of a frame of text; ``known`` are left, unless they are named as numbers, with the reason of each."""
    texts = {name: _Texts.of(cells[name], options) for name in cells}
    left = {name: reason for name, each in texts.items() if (reason := _left(name, each, options))}
    left |= {name: reason for name, reason in known.items() if name not in (*options.numbers, *options.leave)}
    chosen = {name: each for name, each in texts.items() if name not in left}
    asked = [
        _of_words({name: each.words for name, each in chosen.items() if each.words}, options.missing),
        _of_units({name: texts[name].words for name in left if name not in options.leave}),
    ]
    written = {name: [*each.numbers, *map(_limit, each.limits)] for name, each in chosen.items()}
    try:
        form = form_of_numbers(written, options, delimiter)
    except UnclearError as error:
        raise _unclear(*asked, error.text) from error
    numbers = {name: _column(cells[name], each, form, options.missing) for name, each in chosen.items()}
    empty = (name for name, each in numbers.items() if each.values.isna().all() and name not in options.numbers)
    left |= dict.fromkeys(empty, EMPTY)
    idle = {name: reason for name, each in numbers.items() if (reason := _idle(name, each.values))}
    left |= idle if {*numbers} - {*idle} - {*left} else {}
    numbers = {name: each for name, each in numbers.items() if name not in left}
    if numbers and "none" not in options.missing:
        asked.append(_of_codes(numbers, options.missing))
    if any(asked):
        raise _unclear(*asked)
    return Columns(numbers, {name: left[name] for name in cells if name in left}, form)


def _left(name: str, texts: _Texts, options: ReadOptions) -> str:
    """Why a column is left as it is, or nothing."""
    if name in options.leave:
        return "as asked"
    few = len(texts.numbers) < _SOME * (len(texts.numbers) + len(texts.words))
    if texts.words and (not texts.numbers or (len(texts.words) > _FEW and few)):
        return f"words, such as {next(iter(texts.words))!r}"
    if not texts.numbers and not texts.limits:
        return "" if name in options.numbers else EMPTY
    if name not in options.numbers and any(re.fullmatch(r"[-+]?0\d+", text) for text in texts.numbers):
        return PADDED
    if any(re.fullmatch(r"[-+]?\d{16,}", text) and abs(int(text)) > _LARGEST for text in texts.numbers):
        return "whole numbers beyond 2^53 are names"
    return ""


def _column(cells: Any, texts: _Texts, form: NumberForm, codes: Sequence[str]) -> Column:
    plain = [form.plain(code) or NumberForm().plain(code) for code in codes]  # as the file writes them, or with a point
    numeric = {float(each) for each in plain if each is not None}
    read = dict(zip(texts.numbers, form.numbers([*texts.numbers]), strict=True))
    coded = {text: texts.numbers[text] for text, value in read.items() if value in numeric}
    halves = dict(zip(texts.limits, 0.5 * form.numbers([*map(_limit, texts.limits)]), strict=True))
    values = cells.map(read | dict.fromkeys(coded, np.nan) | halves).astype(np.float64)
    return Column(values, texts.missing | coded, sum(texts.limits.values()))


def _limit(text: str) -> str:
    """The limit of a text such as <0.5, nothing for another text."""
    match = _BELOW.fullmatch(text)
    return match[1] if match else ""


def _idle(name: str, values: Any) -> str:
    """Why a column without a gap says nothing of others, or nothing: it is constant, or counts the rows."""
    if values.isna().any() or len(values) < 2:
        return ""
    if (values == values.iloc[0]).all():
        return "the same in every row"
    counts = name.strip().lower() in _COUNTERS or name.startswith("unnamed")
    return "counts the rows" if counts and (values.diff().iloc[1:] == 1.0).all() else ""


def _unclear(*asked: str) -> UnclearError:
    """All that is asked, in one error."""
    return UnclearError(". Besides, ".join(filter(None, asked)))


def _of_words(words: dict[str, dict[str, int]], given: Sequence[str]) -> str:
    """What is asked of words among numbers, if there are some, beside codes that were given."""
    if not words:
        return ""
    where: dict[str, list[str]] = {}
    for name, texts in words.items():
        for text in texts:
            where.setdefault(text, []).append(name)
    limits = [text for text in where if text[0] in LIMITS and looks_like_number(text[1:].strip())]
    codes = [*given, *dict.fromkeys(text[0] if text in limits else text for text in [*where][:_MOST])]
    shown = first_of((f"{text!r} in {first_of(map(repr, names), 3)}" for text, names in where.items()), _MOST)
    below = (
        f". A value below a limit is filled as a gap then, which is too high: in place of '<', "
        f"{option('half_limits')} takes half of each limit"
    )
    return (
        f"words among numbers: {shown}. Say {option('missing', codes)} if they stand for what is missing, or "
        f"{option('leave', [*words])} to leave the columns alone{below if any(map(_limit, limits)) else ''}"
    )


def _of_units(words: dict[str, dict[str, int]]) -> str:
    """What is asked of columns whose words are numbers with a unit or a sign, such as 12 % or $1.50."""
    found = {name: [*each] for name, each in words.items() if each and all(map(_UNIT.fullmatch, each))}
    if not found:
        return ""
    shown = ", ".join(f"{texts[0]!r} in {name!r}" for name, texts in found.items())
    return (
        f"numbers with units: {shown}. Take the units out of the file, or say {option('leave', [*found])} to leave "
        "the columns alone"
    )


def _of_codes(columns: dict[str, Column], given: Sequence[str]) -> str:
    """What is asked of numbers that look like codes: they repeat far from all others, or are codes elsewhere."""
    from cgp.tables.frames.codes import suspected_codes

    names = [*columns]
    suspected = suspected_codes(np.column_stack([columns[name].values for name in names]))
    found = {code: [names[p] for p in places] for code, places in suspected.items()}
    for name in names:
        readings = columns[name].values.dropna().unique()
        found |= {code: [name] for code in _CODES if code not in found and _is_far(code, readings)}
    if not found:
        return ""
    shown = ", ".join(f"{code:g} in {', '.join(map(repr, where))}" for code, where in found.items())
    plain = [*given, *(f"{code:g}" for code in found)]
    return (
        f"far from all other values: {shown}. Say {option('missing', plain)} if this stands for what is missing, "
        f"{option('missing', [*given, 'none'])} if it was measured"
    )


def _is_far(code: float, readings: Any) -> bool:
    others = readings[readings != code]
    if len(others) == len(readings) or len(others) < 3 or others.min() <= code <= others.max():
        return False
    return float(np.abs(others - code).min()) > float(np.ptp(others))
