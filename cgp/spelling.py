"""What somebody may have meant by a name that is not known or a number out of range, and words beside a number."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["as_share", "counted", "first_of", "listed", "meant", "nearest", "said_times"]


def as_share(number: float) -> str:
    """The end of a message about a share or probability that may be a percentage.

    Args:
        number: what was given.

    Returns:
        Text that begins with a semicolon, or nothing.

    Example:
        >>> as_share(95.0), as_share(-0.5)
        ('; did you mean 0.95?', '')
    """
    return f"; did you mean {number / 100:g}?" if 1.0 < number < 100.0 else ""


def meant(given: Iterable[object], known: Iterable[object]) -> str:
    """The end of a message about names that are not known: the nearest known one of each, if one is near.

    Args:
        given: names that are not known.
        known: names that are.

    Returns:
        Text that begins with a semicolon, or nothing.

    Example:
        >>> meant(["Ozon", "x"], ["ozone", "wind"])
        "; did you mean 'ozone'?"
    """
    found = nearest(given, known)
    return f"; did you mean {', '.join(map(repr, found))}?" if found else ""


def nearest(given: Iterable[object], known: Iterable[object]) -> list[str]:
    """The nearest known name of each name that is not known, if one is near.

    Args:
        given: names that are not known.
        known: names that are.

    Returns:
        Each once.

    Example:
        >>> nearest(["Ozon", "ozon", "x"], ["ozone", "wind"])
        ['ozone']
    """
    names = {str(name).casefold(): str(name) for name in known}
    near = [_near(str(name).casefold(), names) for name in given]
    return [*dict.fromkeys(names[match] for matches in near for match in matches)]


def counted(count: int, one: str, more: str = "") -> str:
    """A number and what there are so many of.

    Args:
        count: of things.
        one: what one of them is called.
        more: what several, or none, are called; empty for ``one`` with an s.

    Returns:
        Both.

    Example:
        >>> counted(1, "row"), counted(2, "row"), counted(0, "value has", "values have")
        ('1 row', '2 rows', '0 values have')
    """
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence.

    Args:
        names: at least one.

    Returns:
        With "and" before the last.

    Example:
        >>> listed(["lines"]), listed(["lines", "ridge", "trees"])
        ('lines', 'lines, ridge and trees')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def first_of(names: Iterable[str], most: int) -> str:
    """The first of some names, and how many more there are.

    Args:
        names: in order.
        most: so many are named.

    Returns:
        They, separated by commas.

    Example:
        >>> first_of("abcde", 3), first_of("abc", 3)
        ('a, b, c and 2 more', 'a, b, c')
    """
    names = [*names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def said_times(times: Iterable[object]) -> list[str]:
    """Times as text, as days where all are at midnight.

    Args:
        times: of any kind.

    Returns:
        A text for each.

    Example:
        >>> from datetime import datetime
        >>> said_times([datetime(2024, 1, 30), datetime(2024, 2, 1)])
        ['2024-01-30', '2024-02-01']
    """
    texts, midnight = [str(time) for time in times], " 00:00:00"
    return [text.removesuffix(midnight) for text in texts] if all(text.endswith(midnight) for text in texts) else texts


def _near(given: str, names: Iterable[str]) -> list[str]:
    """The nearest name, or the first that begins so, as an abbreviation does."""
    return get_close_matches(given, names, n=1) or [n for n in names if len(given) > 2 and n.startswith(given)][:1]
