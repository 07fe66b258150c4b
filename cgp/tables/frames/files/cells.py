"""What a cell can be: a number, a time, nothing, or a word."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .times import looks_like_time

__all__ = ["ABSENT", "kind_of", "looks_like_number", "main_kind"]

# Words that spreadsheets, R, pandas and data bases write for what is missing, in columns that are numbers otherwise
ABSENT = frozenset(["NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "-nan", "<NA>", "NULL", "null", "None"])
_NUMBER = re.compile(r"[-+−]?(\d[\d.,'’ \u00a0\u202f\u2009_]*|[.,]\d+)([eE][-+]?\d+)?")


def looks_like_number(text: str) -> bool:
    """Whether a text is a number in some notation.

    Args:
        text: of a cell.

    Returns:
        Whether it is one with points or commas, groups of thousands, or an exponent.

    Example:
        >>> [looks_like_number(text) for text in ("1,036", "-.5", "1'000", "2e-3", "1 mm", "")]
        [True, True, True, True, False, False]
    """
    return _NUMBER.fullmatch(text) is not None


def kind_of(text: str) -> str:
    """The kind of a cell: "", "number", "time" or "word"."""
    if not text or text in ABSENT or not any(map(str.isalnum, text)):
        return ""
    if looks_like_number(text):
        return "number"
    return "time" if looks_like_time(text) else "word"


def main_kind(texts: Iterable[str]) -> str:
    """What most of the cells of a column are, of those that are anything."""
    kinds = [kind for kind in map(kind_of, texts) if kind]
    return max(("number", "time", "word"), key=kinds.count) if kinds else ""
