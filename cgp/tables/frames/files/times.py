"""Times as they are written: their forms are looked for, and days are never taken for months."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from .options import ReadOptions, UnclearError, option

__all__ = ["DECIMAL_HOURS", "DOTTED_MONTH", "TimeForm", "Times", "looks_like_time", "read_times"]

_CLOCK = (
    r"(?P<gap>T|_|,? +)(?P<hour>\d{1,2})(?P<point>[:.h])\d{2}((?P=point)(?P<second>\d{2})(?P<part>[.,]\d+)?)?"
    r"(?P<half>\s?[AaPp][Mm])?(?P<zone>\s?(?:Z|[+-]\d{2}:?\d{2}|UTC|GMT))?"
)
_TIME = re.compile(rf"(?P<date>.+?)(?P<clock>{_CLOCK})?")
_COMPACT_CLOCK = {"0000": "%H%M", "000000": "%H%M%S"}
_QUARTER = r"(\d{4})([-_ ]?)Q([1-4])"
_MONTHS = frozenset({"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"})
# Of the parts of a date (Y: four digits, n: one or two, b: a month's name), what each may be
_ORDERS: Mapping[str, Mapping[str, str]] = {
    "Ynn": {"": "Ymd"},
    "nnY": {"day": "dmY", "month": "mdY"},
    "nnn": {"day": "dmy", "month": "mdy", "year": "ymd"},
    "nbY": {"": "dbY"},
    "nbn": {"day": "dby", "year": "ybd"},
    "bnY": {"": "bdY"},
    "Yn": {"": "Ym"},
    "nY": {"": "mY"},
    "bY": {"": "bY"},
    "bn": {"": "by"},
}
_SAID = {"day": "day first", "month": "month first", "year": "year first", "": ""}
DOTTED_MONTH = r"(?:0?[1-9]|1[0-2])\.(?:1[89]|2[01])\d\d"
_WHOLE = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_DOTTED = r"\d{1,2}\.\d{1,2}\.(?:\d{4}|\d{2})(?:[ T].*)?"
_MIDNIGHT = r"(?<=[T_ ])24(?=[:.h]00(?:[:.]00)?)"
_UNPADDED, _ZEROS = r"(?<![\d:.])\d(?!\d)|^\d+\.\d\.", r"(?<![\d:])0+(?=\d)"
_MOST_SHAPES = 64
DECIMAL_HOURS = "%H."  # 13.5


class TimeForm(NamedTuple):
    """How times are written.

    Attributes:
        format: as ``strftime`` has it.
        sample: the shortest of them, as it is written.
        said: of days and months, which is first, or nothing.
    """

    format: str
    sample: str
    said: str = ""

    def write(self, times: Any) -> list[str]:
        """Times in this form, padded by zeros where the sample is."""
        if "%q" in self.format:
            return [time.to_period("Q").strftime(self.format) for time in times]
        if self.format == DECIMAL_HOURS:
            return [f"{time.hour + time.minute / 60 + time.second / 3600:g}" for time in times]
        texts = [time.strftime(self.format) for time in times]
        if self.sample.endswith("Z"):
            return [text.removesuffix("+0000") + "Z" for text in texts]
        if "%z" in self.format and ":" in self.sample[-3:]:
            return [f"{text[:-2]}:{text[-2:]}" for text in texts]
        bare = [re.search(_UNPADDED, part) is not None for part in self.sample.split(" ")]
        rows = [text.split(" ") for text in texts] if any(bare) else []
        pairs = [[*zip_longest(row, bare)] for row in rows]
        return [" ".join(re.sub(_ZEROS, "", part) if cut else part for part, cut in row) for row in pairs] or texts


class Times(NamedTuple):
    """A column as a series of times of pandas, and how they are written."""

    values: Any
    form: TimeForm


def looks_like_time(text: str) -> bool:
    """Whether a text has the form of a date, with or without a time of day."""
    return re.fullmatch(_QUARTER, text) is not None or bool(_formats(text))


def read_times(cells: Any, options: ReadOptions, *, is_whole: bool = False) -> Times | None:
    """A column of text as times."""
    import pandas as pd

    texts = pd.Series(cells.unique(), name=cells.name)
    shortest, longest = min(texts, key=len), max(texts, key=len)
    if (form := options.time_format) is not None:
        values = pd.to_datetime(texts, format=form, errors="coerce")
        if values.isna().any():
            raise ValueError(
                f"time_format: expected times as {form!r} in {cells.name!r}, got {texts[values.isna()].iloc[0]!r}"
            )
        return _times(cells, texts, values, TimeForm(form, shortest))
    if texts.str.fullmatch(DOTTED_MONTH).all() and (months := _dotted_months(texts, options)) is not None:
        return _times(cells, texts, months, TimeForm("%m.%Y", shortest))
    if texts.str.fullmatch(_QUARTER).all():
        starts = pd.PeriodIndex(texts.str.replace(r"[-_ ]", "", regex=True), freq="Q").to_timestamp().to_series()
        return _times(cells, texts, starts, TimeForm(re.sub(_QUARTER, r"%Y\2Q%q", longest), shortest))
    orders = _whole_forms(texts) if is_whole and texts.str.isdecimal().all() else _orders(texts)
    read = {order: values for order, forms in orders.items() if (values := _parsed(texts, forms)) is not None}
    if not read:
        return None
    read = _wanted(read, texts, options.dayfirst)
    first = next(iter(read))
    if any(not values.equals(read[first]) for values in read.values()):
        _refuse(texts, read)
    form = orders[first][_shape(longest)]
    if re.fullmatch(r"%b.%y", form):
        _refuse_days_without_year(texts)
    return _times(cells, texts, read[first], TimeForm(form, shortest, _SAID[first] if len(read) == 1 else ""))


def _dotted_months(texts: Any, options: ReadOptions) -> Any:
    """Months such as 01.2024 that are in order, if they cannot be numbers: these have no leading zeros."""
    import pandas as pd

    months, numbers = pd.to_datetime(texts, format="%m.%Y"), texts.astype(float)
    is_in_order = months.is_monotonic_increasing or months.is_monotonic_decreasing
    is_padded = texts.str.startswith("0")
    if not is_in_order or texts.name in options.numbers or (months.dt.month.nunique() == 1 and not is_padded.all()):
        return None
    steps = numbers.diff().iloc[1:] * (1.0 if months.is_monotonic_increasing else -1.0)
    if (steps < 0.0).any() or is_padded.any():
        return months
    raise UnclearError(
        f"{texts.name!r}: {texts.iloc[0]!r} is a month of a year or a number: say {option('time_format', '%m.%Y')}, "
        f"or {option('numbers', [str(texts.name)])}"
    )


def _times(cells: Any, texts: Any, values: Any, form: TimeForm) -> Times:
    """The time of each cell from those of the distinct texts."""
    return Times(cells.map(values.set_axis(texts)), form)


def _whole_forms(texts: Any) -> dict[str, dict[str, str]]:
    shapes = {_shape(text) for text in texts}
    is_date = len(shapes) == 1 and texts.str.match("1[89]|2[01]").all()
    return {"": {shape: _WHOLE[len(shape)] for shape in shapes}} if is_date and len(texts[0]) in _WHOLE else {}


def _orders(texts: Any) -> dict[str, dict[str, str]]:
    """The orders of day, month and year that texts may have, with the format of each shape of text."""
    formats: dict[str, Mapping[str, str]] = {}
    for text in texts:
        shape = _shape(text)
        if shape not in formats:
            formats[shape] = _formats(text)
            if not formats[shape] or len(formats) > _MOST_SHAPES:
                return {}
    named = dict.fromkeys(order for orders in formats.values() for order in orders if order) or {"": None}
    result = {order: {shape: orders.get(order, orders.get("")) for shape, orders in formats.items()} for order in named}
    return {order: forms for order, forms in result.items() if all(forms.values())}  # type: ignore[misc]


def _shape(text: str) -> str:
    """A text with a 0 for each digit and letters for the names of months, short or long."""
    plain = re.sub(r"\d", "0", text)
    return re.sub(r"(?<![A-Za-z])[A-Za-z]{3,}", lambda match: "A" * min(len(match[0]), 4), plain)


def _formats(text: str) -> dict[str, str]:
    """The formats that a text may have, by their order of day and month."""
    if compact := re.fullmatch(r"\d{8}([T_ ])(\d{4}|\d{6})", text):
        return {"": f"%Y%m%d{compact[1]}{_COMPACT_CLOCK[_shape(compact[2])]}"}
    match = _TIME.fullmatch(text)
    if match is None:
        return {}
    clock = _clock_format(match) if match["clock"] else ""
    if clock and re.fullmatch(r"\d{8}", match["date"]):
        return {"": "%Y%m%d" + clock}
    return {order: date + clock for order, date in _date_formats(match["date"]).items()}


def _date_formats(date: str) -> dict[str, str]:
    parts = re.split(r"(\d+|[A-Za-z]+)", date)
    words, signs = parts[1::2], parts[2:-1:2]
    kinds = "".join(map(_kind, words))
    allowed = ("-", "/") if kinds in ("Yn", "nY") else ("-", "/", ".", " ", "_", ". ", ", ", "")
    named = "b" in kinds
    if parts[0] or parts[-1] or not set(signs) <= {*allowed} or (not named and len(set(signs)) != 1):
        return {}
    if kinds in ("bY", "bn") and signs == [""]:
        return {}
    return {order: _joined(codes, words, signs) for order, codes in _ORDERS.get(kinds, {}).items()}


def _kind(word: str) -> str:
    if word.isalpha():
        return "b" if word[:3].lower() in _MONTHS else "?"
    return {1: "n", 2: "n", 4: "Y"}.get(len(word), "?")


def _joined(codes: str, words: list[str], signs: list[str]) -> str:
    names = ["%B" if code == "b" and len(word) > 3 else f"%{code}" for code, word in zip(codes, words, strict=True)]
    return "".join(name + sign for name, sign in zip(names, [*signs, ""], strict=True))


def _clock_format(match: re.Match[str]) -> str:
    parts = match.groupdict(default="")
    form = f"{parts['gap']}{'%I' if parts['half'] else '%H'}{parts['point']}%M"
    form += f"{parts['point']}%S" if parts["second"] else ""
    form += f"{parts['part'][0]}%f" if parts["part"] else ""
    form += f"{parts['half'][:-2]}%p" if parts["half"] else ""
    zone = parts["zone"]
    return form + (zone if zone.strip() in ("UTC", "GMT") else re.sub(r"\S+", "%z", zone))


def _parsed(texts: Any, forms: Mapping[str, str]) -> Any:
    """Texts as times, or None if one is none; 24:00 is the beginning of the next day."""
    import pandas as pd

    zoned = {"%z" in form for form in forms.values()}
    if len(zoned) > 1:
        return None
    late = texts.str.contains(_MIDNIGHT, regex=True)
    plain = texts.str.replace(_MIDNIGHT, "00", regex=True).str.replace(r"(?<=:\d\d),(?=\d+)", ".", regex=True)
    shape = texts.map(_shape)
    parts = [
        pd.to_datetime(plain[shape == each], format=form.replace(",%f", ".%f"), errors="coerce", utc=True in zoned)
        for each, form in forms.items()
    ]
    values = pd.concat(parts).sort_index()
    offsets = set(texts.str.extract(r"([+-]\d\d:?\d\d)$")[0].dropna()) if True in zoned else set()
    if len(offsets) == 1:
        values = values.dt.tz_convert(pd.Timestamp(f"2000-01-01T00:00{offsets.pop()}").tz)
    return None if values.isna().any() else values + pd.to_timedelta(late.astype(int), unit="D")


def _wanted(read: dict[str, Any], texts: Any, dayfirst: bool | None) -> dict[str, Any]:
    """The readings in the order of day and month that is named, or that dots say."""
    wanted = {None: None, True: "day", False: "month"}[dayfirst]
    if wanted is None and "day" in read and texts.str.fullmatch(_DOTTED).all():
        wanted = "day"  # 03.04. is in April wherever dots are written
    if wanted is None or "" in read:
        return read
    if wanted not in read:
        ways = " or ".join(_SAID[order] for order in read)
        given = option("dayfirst", dayfirst)
        raise UnclearError(f"{given}: expected {ways} in {texts.name!r}, which cannot be read {_SAID[wanted]}")
    return {wanted: read[wanted]}


def _refuse(texts: Any, read: Mapping[str, Any]) -> None:
    row = next(i for i in range(len(texts)) if len({values.iloc[i] for values in read.values()}) > 1)
    ways = " or ".join(f"{values.iloc[row]:%d %B %Y} ({_SAID[order]})" for order, values in read.items())
    decides = [option("dayfirst", value) for order, value in (("day", True), ("month", False)) if order in read]
    decides += [option("time_format", "%y-%m-%d")] if "year" in read else []
    raise UnclearError(
        f"{texts.name!r} can be read in {len(read)} ways: {texts[row]!r} is {ways}; say {' or '.join(decides)}"
    )


def _refuse_days_without_year(texts: Any) -> None:
    """Jan-01, Jan-02 are years, or days without one: rows of the same month that follow each other say so."""
    months = texts.str[:3].str.lower()
    if (months == months.shift()).any():
        raise UnclearError(
            f"{texts.name!r}: {texts[months == months.shift(-1)].iloc[0]!r} is a month of a year, or a day without a "
            f"year: say {option('time_format', '%b-%y')} if it is the month, or write the year of each day"
        )
