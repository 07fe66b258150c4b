"""Words for periods of the calendar: the same in Python and on the command line, which imports nothing heavy here."""

from __future__ import annotations

__all__ = ["PERIODS", "period_of"]

PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "MS", "quarter": "QS", "year": "YS", "all": None}


def period_of(given: str) -> str | None:
    """What a period is called by pandas, None for all rows.

    Args:
        given: a word, also in the plural and behind a number, or a frequency of pandas.

    Returns:
        The frequency; what is no such word is returned as it is.

    Example:
        >>> period_of("month"), period_of("2 Weeks"), period_of("3h"), period_of("all")
        ('MS', '2W', '3h', None)
    """
    word = given.lower().lstrip("0123456789 ")
    count, name = given[: len(given) - len(word)].strip(), word.removesuffix("s")
    if name not in PERIODS or (count and name == "all"):
        return given
    return None if PERIODS[name] is None else f"{count}{PERIODS[name]}"
