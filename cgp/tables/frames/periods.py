"""Words for periods of the calendar: the same in Python and on the command line, which imports nothing heavy here."""

from __future__ import annotations

__all__ = ["PERIODS", "period_of"]

PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "MS", "quarter": "QS", "year": "YS", "all": None}


def period_of(given: str) -> str | None:
    """What a period is called by pandas, None for all rows.

    Args:
        given: a word, also in the plural, or a frequency of pandas.

    Returns:
        The frequency; what is no such word is returned as it is.

    Example:
        >>> period_of("month"), period_of("Weeks"), period_of("3h"), period_of("all")
        ('MS', 'W', '3h', None)
    """
    name = given.lower()
    return PERIODS.get(name, PERIODS.get(name.removesuffix("s"), given))
