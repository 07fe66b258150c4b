"""Times as they are written: their forms are looked for, and days are never taken for months."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .hints import UnclearError, option

__all__ = ["TimeForm", "Times", "looks_like_time", "read_times", "time_of_day"]

_CLOCK = r"(?P<hour>\d{1,2})(?P<point>[:.h])(?P<minute>\d{2})(?:(?P=point)(?P<second>\d{2})(?:[.,](?P<part>\d+))?)?"
_HALF = r"(?P<half>\s?[AaPp][Mm])?"
_ZONE = r"(?P<zone>\s?(?:Z|[+-]\d{2}:?\d{2}|UTC|GMT))?"
_DATES = (
    (r"\d{4}(?P<s>[-/. ])\d{1,2}(?P=s)\d{1,2}", {"": "%Y{s}%m{s}%d"}),
    (r"\d{1,2}(?P<s>[-/. ])\d{1,2}(?P=s)\d{4}", {"day": "%d{s}%m{s}%Y", "month": "%m{s}%d{s}%Y"}),
    (
        r"\d{1,2}(?P<s>[-/. ])\d{1,2}(?P=s)\d{2}",
        {"day": "%d{s}%m{s}%y", "month": "%m{s}%d{s}%y", "year": "%y{s}%m{s}%d"},
    ),
    (r"\d{1,2}(?P<s>[-/. ]?)[A-Za-z]{3}(?P=s)\d{4}", {"": "%d{s}%b{s}%Y"}),
    (r"\d{1,2}(?P<s>[-/. ]?)[A-Za-z]{3}(?P=s)\d{2}", {"day": "%d{s}%b{s}%y", "year": "%y{s}%b{s}%d"}),
    (r"\d{1,2}(?P<s>[-/. ])[A-Za-z]{4,9}(?P=s)\d{4}", {"": "%d{s}%B{s}%Y"}),
    (r"\d{1,2}\. [A-Za-z]{4,9} \d{4}", {"": "%d. %B %Y"}),
    (r"[A-Za-z]{3} \d{1,2}, \d{4}", {"": "%b %d, %Y"}),
    (r"[A-Za-z]{4,9} \d{1,2}, \d{4}", {"": "%B %d, %Y"}),
    (r"\d{4}(?P<s>[-/])\d{1,2}", {"": "%Y{s}%m"}),
    (r"\d{1,2}(?P<s>[-/])\d{4}", {"": "%m{s}%Y"}),
    (r"[A-Za-z]{3}(?P<s>[-/. ])\d{4}", {"": "%b{s}%Y"}),
    (r"[A-Za-z]{3}(?P<s>[-/. ])\d{2}", {"": "%b{s}%y"}),
    (r"[A-Za-z]{4,9}(?P<s>[-/. ])\d{4}", {"": "%B{s}%Y"}),
    (r"\d{8}T\d{4}", {"": "%Y%m%dT%H%M"}),
    (r"\d{8}T\d{6}", {"": "%Y%m%dT%H%M%S"}),
    (r"\d{8}(?=T|_| )", {"": "%Y%m%d"}),
)
_FORMS = tuple(
    (re.compile(rf"(?P<date>{date})(?:(?P<gap>T|_|,? +){_CLOCK}{_HALF}{_ZONE})?"), orders) for date, orders in _DATES
)
_QUARTER = re.compile(r"(\d{4})([-_ ]?)Q([1-4])")
_TIME_OF_DAY = re.compile(rf"{_CLOCK}{_HALF}")
_DOTTED = r"\d{1,2}\.\d{1,2}\.(?:\d{4}|\d{2})(?:[ T].*)?"
_MIDNIGHT = re.compile(r"(?<=[T_ ])24(?=[:.h]00(?:[:.]00)?)")
_DAY = 86_400.0
_SAID = {"day": "day first", "month": "month first", "year": "year first", "": ""}
_MOST_SHAPES = 64
_UNPADDED_DATE = r"^\d[-/. ]|^\d+[-/.]\d[-/.]|^\d+[-/.]\d$"
_UNPADDED_HOUR = r"(?<![\d:])\d:\d\d"


class TimeForm(NamedTuple):
    """How times are written.

    Attributes:
        format: as ``strftime`` has it.
        samples: the shortest and the longest, as they are written.
        said: of days and months, which is first, or nothing.
    """

    format: str
    samples: tuple[str, ...]
    said: str

    def write(self, times: Any) -> list[str]:
        """Times in this form, padded by zeros where the samples are."""
        quarterly = "%q" in self.format
        texts = [(time.to_period("Q") if quarterly else time).strftime(self.format) for time in times]
        if "%f" in self.format:
            digits = max(len(match[1]) for each in self.samples if (match := re.search(r"[.,](\d+)\D*$", each)))
            texts = [re.sub(r"([.,]\d+)(?=\D*$)", lambda match: match[1][: 1 + digits], text) for text in texts]
        dates, hours = (
            any(re.search(form, each) for each in self.samples) for form in (_UNPADDED_DATE, _UNPADDED_HOUR)
        )
        if dates:
            texts = [re.sub(r"(?<![\d:])0(?=\d[-/. ]\w)|(?<=[-/.])0(?=\d(?: |$))", "", text) for text in texts]
        texts = [re.sub(r"(?<![\d:])0(?=\d:)", "", text) if hours else text for text in texts]
        return [_zone_as(self.samples[0], text) for text in texts] if "%z" in self.format else texts


class Times(NamedTuple):
    """A column as times.

    Attributes:
        values: a series of pandas.
        form: how they are written.
    """

    values: Any
    form: TimeForm


def looks_like_time(text: str) -> bool:
    """Whether a text has the form of a date, with or without a time of day.

    Args:
        text: of a cell.

    Returns:
        Whether it has one of the forms that are known.

    Example:
        >>> [looks_like_time(text) for text in ("01-02-2018", "2018-01-31T12:00Z", "Jan-18", "1.036", "18:30")]
        [True, True, True, False, False]
    """
    return _QUARTER.fullmatch(text) is not None or any(form.fullmatch(text) for form, _ in _FORMS)


def read_times(cells: Any, name: str, dayfirst: bool | None = None, form: str | None = None) -> Times | None:
    """A column of text as times.

    Args:
        cells: a series of text without empty ones.
        name: of the column, for errors.
        dayfirst: whether days are before months where both can be, None if it is not known.
        form: of all of them, as ``strptime`` has it, None to look for it.

    Returns:
        Times, or None if these are none.

    Raises:
        UnclearError: if they are in two ways.
        ValueError: if one does not have the form that is given.
    """
    import pandas as pd

    texts = pd.Series(cells.unique())
    if form is not None:
        values = pd.to_datetime(texts, format=form, errors="coerce")
        if values.isna().any():
            raise ValueError(
                f"time_format: expected times as {form!r} in {name!r}, got {texts[values.isna()].iloc[0]!r}"
            )
        return Times(_mapped(cells, texts, values), _form(texts, form))
    if texts.str.fullmatch(_QUARTER).all():
        return _quarters(cells, texts)
    orders = _orders(texts)
    read = {order: values for order, forms in orders.items() if (values := _parsed(texts, forms)) is not None}
    if not read:
        return None
    read = _wanted(read, name, texts, dayfirst)
    first = next(iter(read))
    if any(not values.equals(read[first]) for values in read.values()):
        _refuse(name, texts, read)
    _refuse_days_without_year(name, texts, orders[first])
    said = _SAID[first] if len(read) == 1 else ""
    return Times(_mapped(cells, texts, read[first]), _form(texts, orders[first][_shape(max(texts, key=len))], said))


def time_of_day(cells: Any) -> Times | None:
    """A column such as 18:30, 18.30.00 or 6:30 PM as durations since midnight, or None if it is none."""
    import pandas as pd

    texts = pd.Series(cells.unique())
    matches = [_TIME_OF_DAY.fullmatch(text) for text in texts]
    found = [match for match in matches if match is not None]
    if not found or len(found) < len(matches) or not _is_clock(found):
        return None
    seconds = [_seconds(match) for match in found]
    sample = found[0]
    durations = pd.to_timedelta(pd.Series(seconds), unit="s")
    return Times(_mapped(cells, texts, durations), _form(texts, _clock_form(sample)))


def _wanted(read: dict[str, Any], name: str, texts: Any, dayfirst: bool | None) -> dict[str, Any]:
    """The readings in the order of day and month that is named, or that dots say."""
    wanted = {None: None, True: "day", False: "month"}[dayfirst]
    if wanted is None and "day" in read and texts.str.fullmatch(_DOTTED).all():
        wanted = "day"  # 03.04. is in April wherever dots are written
    if wanted and "" not in read:
        if wanted not in read:
            ways = " or ".join(_SAID[order] for order in read)
            raise UnclearError(f"dayfirst: expected {ways} in {name!r}, which cannot be read {_SAID[wanted]}")
        read = {wanted: read[wanted]}
    return read


def _quarters(cells: Any, texts: Any) -> Times:
    """Quarters such as 2018Q1 as their first days."""
    import pandas as pd

    parts = texts.str.extract(_QUARTER)
    months = 3 * parts[2].astype(int) - 2
    values = pd.to_datetime(pd.DataFrame({"year": parts[0].astype(int), "month": months, "day": 1}))
    return Times(_mapped(cells, texts, values), _form(texts, f"%Y{parts[1].iloc[0]}Q%q"))


def _is_clock(matches: Sequence[re.Match[str]]) -> bool:
    """Whether hours, minutes and seconds are in their range."""
    limits = {"minute": 59, "second": 59}
    within = all(int(match[part] or 0) <= limit for match in matches for part, limit in limits.items())
    return within and max(map(_seconds, matches)) <= _DAY


def _seconds(match: re.Match[str]) -> float:
    hour, half = int(match["hour"]), (match["half"] or "").strip().lower()
    hour = hour % 12 + 12 * (half == "pm") if half else hour
    return 3600.0 * hour + 60.0 * int(match["minute"]) + float(f"{match['second'] or 0}.{match['part'] or 0}")


def _orders(texts: Any) -> dict[str, dict[str, str]]:
    """The orders of day, month and year that texts may have, with the format of each shape of text."""
    formats: dict[str, dict[str, str]] = {}
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
    return re.sub(r"(?<![A-Za-z])[A-Za-z]{3,}", _lettered, re.sub(r"\d", "0", text))


def _lettered(match: re.Match[str]) -> str:
    return "A" * min(len(match[0]), 4)


def _formats(text: str) -> dict[str, str]:
    """The formats that a text may have, by their order of day and month."""
    for form, orders in _FORMS:
        match = form.fullmatch(text)
        if match is None:
            continue
        sign = match.groupdict().get("s") or ""
        clock = "" if match["gap"] is None else match["gap"] + _clock_form(match)
        return {order: date.format(s=sign) + clock for order, date in orders.items()}
    return {}


def _clock_form(match: re.Match[str]) -> str:
    parts = match.groupdict()
    hour = "%I" if parts["half"] else "%H"
    form = f"{hour}{parts['point']}%M" + (f"{parts['point']}%S" if parts["second"] else "")
    form += "." * bool(parts["part"]) + "%f" * bool(parts["part"])
    form += "" if not parts["half"] else f"{parts['half'][:-2]}%p"
    zone = parts.get("zone") or ""
    return form + (zone if zone.strip() in ("UTC", "GMT") else re.sub(r"\S+", "%z", zone))


def _parsed(texts: Any, forms: Mapping[str, str]) -> Any:
    """Texts as times, or None if one is none; 24:00 is the beginning of the next day."""
    import pandas as pd

    late = texts.str.contains(_MIDNIGHT)
    plain = texts.where(~late, texts.str.replace(_MIDNIGHT, "00", regex=True))
    zones = {"%z" in form for form in forms.values()}
    if len(zones) > 1:
        return None
    shape = texts.map(_shape)
    parts = []
    for each, form in forms.items():
        group = plain[shape == each]
        if re.search(r"%S,%f|%S\.%f", form):
            group = group.str.replace(r",(?=\d+\D*$)", ".", regex=True)
        parts.append(pd.to_datetime(group, format=form, errors="coerce", utc=True in zones))
    values = pd.concat(parts).sort_index()
    offsets = set(texts.str.extract(r"([+-]\d\d:?\d\d)$")[0].dropna()) if True in zones else set()
    if len(offsets) == 1:
        values = values.dt.tz_convert(pd.Timestamp(f"2000-01-01T00:00{offsets.pop()}").tz)
    return None if values.isna().any() else values + pd.to_timedelta(late.astype(int), unit="D")


def _mapped(cells: Any, texts: Any, values: Any) -> Any:
    """The value of each cell from those of the distinct texts."""
    return cells.map(values.set_axis(texts))


def _zone_as(sample: str, text: str) -> str:
    """A text that ends as +0100 with its zone as a sample has it: +01:00, or Z."""
    if sample.endswith("Z"):
        return text.removesuffix("+0000") + "Z"
    return f"{text[:-2]}:{text[-2:]}" if ":" in sample[-3:] else text


def _form(texts: Any, form: str, said: str = "") -> TimeForm:
    return TimeForm(form, (min(texts, key=len), max(texts, key=len)), said)


def _refuse(name: str, texts: Any, read: Mapping[str, Any]) -> None:
    row = next(i for i in range(len(texts)) if len({values.iloc[i] for values in read.values()}) > 1)
    ways = " or ".join(f"{values.iloc[row]:%d %B %Y} ({_SAID[order]})" for order, values in read.items())
    decides = [option("dayfirst", value) for order, value in (("day", True), ("month", False)) if order in read]
    decides += [option("time_format", "%y-%m-%d")] if "year" in read else []
    raise UnclearError(
        f"{name!r} can be read in {len(read)} ways: {texts[row]!r} is {ways}; say {' or '.join(decides)}"
    )


def _refuse_days_without_year(name: str, texts: Any, forms: Mapping[str, str]) -> None:
    """Jan-01, Jan-02 are years, or days without one: rows of the same month that follow each other say so."""
    if not any(re.fullmatch(r"%b.%y", form) for form in forms.values()):
        return
    months = texts.str[:3].str.lower()
    if (months == months.shift()).any():
        first = texts[months == months.shift(-1)].iloc[0]
        raise UnclearError(
            f"{name!r}: {first!r} is a month of a year, or a day without a year: "
            f"say {option('time_format', '%b-%y')} if it is the month, or write the year of each day"
        )
