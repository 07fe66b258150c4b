"""Errors that name the options that decide: as arguments in Python, as flags on the command line."""

from __future__ import annotations

import re
import shlex
from typing import Any

__all__ = ["UnclearError", "as_arguments", "as_flags", "option"]

_OPTION = re.compile("\x02(.*?)\x1f(.*?)\x1f(.*?)\x03", re.DOTALL)
_FLAGS = {"dayfirst": "--monthfirst"}  # that are no --no-…


def option(name: str, value: Any = True) -> str:
    """An option with its value, as a part of a text that is spelled later.

    Args:
        name: of the argument of :func:`.read_table`.
        value: what it would be set to.

    Returns:
        Text for :func:`as_arguments` and :func:`as_flags`.

    Example:
        >>> text = f"say {option('dayfirst')} or {option('index', ['when'])}"
        >>> as_arguments(text), as_flags(text)
        ("say dayfirst=True or index=['when']", 'say --dayfirst or --index when')
    """
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return f"\x02{name}=True\x1f{flag}\x1f\x03"
    if value is False:
        return f"\x02{name}=False\x1f{_FLAGS.get(name, f'--no-{flag[2:]}')}\x1f\x03"
    parts = [value] if isinstance(value, str | int) else [*value]
    joined = "," if name == "long" else " "
    words = joined.join(_quoted(str(part)) for part in parts)
    return f"\x02{name}={value!r}\x1f{flag}\x1f{' ' if words else ''}{words}\x03"


def as_arguments(text: str) -> str:
    """A text whose options are spelled as Python does."""
    return _OPTION.sub(lambda match: match[1], text)


def as_flags(text: str) -> str:
    """A text whose options are spelled as the command line does."""
    return _OPTION.sub(lambda match: match[2] + match[3], text)


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


def _quoted(word: str) -> str:
    return "TAB" if word == "\t" else shlex.quote(word)
