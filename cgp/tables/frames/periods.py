"""Words for periods of the calendar: the same in Python and on the command line, which imports nothing heavy here."""

from __future__ import annotations

import re
from typing import Any

from cgp.spelling import meant

__all__ = ["PERIODS", "are_set_back", "days_of", "meant_period", "period_of"]

PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "MS", "quarter": "QS", "year": "YS", "all": None}
_LETTERS = {"h": "h", "d": "D", "w": "W"}  # that pandas has, or had, in either case


def period_of(given: str) -> str | None:
    """What a period is called by pandas, None for all rows.

    Args:
        given: a word, also in the plural and behind a number, its letter h, d or w in either case, or a frequency of
            pandas.

    Returns:
        The frequency; what is no such word is returned as it is.

    Example:
        >>> period_of("month"), period_of("2 Weeks"), period_of("3H"), period_of("1d"), period_of("all")
        ('MS', '2W', '3h', '1D', None)
    """
    word = given.lower().lstrip("0123456789 ")
    count, name = given[: len(given) - len(word)].strip(), word.removesuffix("s")
    if word in _LETTERS:
        return f"{count}{_LETTERS[word]}"
    if name not in PERIODS or (count and name == "all"):
        return given
    return None if PERIODS[name] is None else f"{count}{PERIODS[name]}"


def meant_period(given: str) -> str:
    """The end of a message about what is no period: the word that is near, or that a letter stands for.

    Args:
        given: no word of :data:`PERIODS`, and no frequency of pandas.

    Returns:
        Text that begins with a semicolon, or nothing.

    Example:
        >>> meant_period("M"), meant_period("monthly"), meant_period("1X")
        ("; did you mean 'month'?", "; did you mean 'month'?", '')
    """
    word = given.lower().lstrip("0123456789 ")
    letters = {name[0]: name for name in PERIODS} | {"a": "year"}  # annual
    return meant([letters.get(word, word)], PERIODS)


def days_of(span: Any) -> float:
    """How many days a span of time has.

    Args:
        span: a text such as "2D", "2 weeks" or "12h", or a span of the standard library or of NumPy.

    Returns:
        Days.

    Raises:
        ValueError: if it is none.

    Example:
        >>> days_of("12h"), days_of("2 weeks"), days_of("1d12H")
        (0.5, 14.0, 1.5)
    """
    import pandas as pd

    try:
        if isinstance(span, str) and not re.search("[a-z:]", span, re.IGNORECASE):  # 2023-06 is no span
            raise ValueError
        if isinstance(span, str):  # pandas warns of 3d for 3D, and of 3H for 3h
            span = re.sub(r"(\d ?)([dwH])(?![A-Za-z])", lambda found: found[1] + found[2].swapcase(), span)
            span = re.sub(r"(?<=\d) ?weeks?\b", "W", span, flags=re.IGNORECASE)
        return float(pd.Timedelta(span) / pd.Timedelta(days=1))
    except ValueError:
        is_month = isinstance(span, str) and re.search(r"\d ?(M|Y|y|(?i:months?|years?))\b", span)
        cure = " (months and years are of no one length: take weeks)" if is_month else ""
        raise ValueError(
            f"steps: expected a number of rows, or a span of time such as '14D', got {span!r}{cure}"
        ) from None


def are_set_back(times: Any) -> bool:
    """Whether times without a zone are in a night when clocks are set back: early on a Sunday, as the seasons turn.

    Args:
        times: that repeat, an index of pandas.

    Returns:
        Whether all are between one and three o'clock, from 25 October to 7 November, or in the first week of April.

    Example:
        >>> import pandas as pd
        >>> are_set_back(pd.DatetimeIndex(["2023-10-29 02:00"])), are_set_back(pd.DatetimeIndex(["2023-10-28 02:00"]))
        (True, False)
    """
    if getattr(times, "tz", None) is not None or not hasattr(times, "day_of_week"):
        return False
    month, day, is_early = times.month, times.day, (times.hour == 1) | (times.hour == 2)
    seasons = ((month == 10) & (day >= 25)) | (((month == 4) | (month == 11)) & (day <= 7))
    return bool((seasons & is_early & (times.day_of_week == 6)).all())
