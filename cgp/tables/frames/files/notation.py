"""Numbers as they are written: decimal signs and groups of thousands, which a file has one kind of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .hints import UnclearError, option

__all__ = ["NumberForm", "Precision", "form_of_numbers", "is_beyond", "is_label"]

_GROUPS = {" ": " \u00a0\u202f\u2009", "'": "'’"}  # signs that are written for each other
_LARGEST = 2**53


class NumberForm(NamedTuple):
    """Signs of numbers.

    Attributes:
        decimal: a point or a comma.
        thousands: what groups of three digits are apart by, or nothing.
    """

    decimal: str = "."
    thousands: str = ""

    def plain(self, text: str) -> str | None:
        """A number as Python writes it.

        Args:
            text: of a cell.

        Returns:
            Text that ``float`` reads, or None if it is no number in this form.

        Example:
            >>> NumberForm(",", ".").plain("-1.036,5"), NumberForm(",").plain("1.036"), NumberForm().plain("1,036")
            ('-1036.5', None, None)
        """
        if not _pattern(self).fullmatch(text):
            return None
        if self.thousands:
            for sign in _GROUPS.get(self.thousands, self.thousands):
                text = text.replace(sign, "")
        text = text if self.decimal == "." else text.replace(self.decimal, ".")
        return text.replace("−", "-")

    def numbers(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as numbers, NaN for those that are none: ``(n,)``."""
        plain = [self.plain(text) for text in texts]
        return np.array([np.nan if each is None else float(each) for each in plain])

    @property
    def said(self) -> str:
        """The form in words."""
        grouped = f", thousands grouped by {self.thousands!r}" if self.thousands else ""
        return f"decimal {'point' if self.decimal == '.' else 'comma'}{grouped}"


class Precision(NamedTuple):
    """The digits of a column.

    Attributes:
        form: of its numbers.
        decimals: the most that a reading has.
        significant: digits of numbers with an exponent, 0 where none has one.
        grouped: whether thousands are grouped.
    """

    form: NumberForm
    decimals: int
    significant: int
    grouped: bool

    @classmethod
    def of(cls, texts: Sequence[str], form: NumberForm) -> Precision:
        """The digits of readings.

        Args:
            texts: as they are written.
            form: of their signs.

        Returns:
            What further values of the column are written with.

        Example:
            >>> Precision.of(["1,5", "12,25"], NumberForm(",")).write(3.14159)
            '3,14'
        """
        plain = [each for each in map(form.plain, texts) if each is not None]
        floats = [Decimal(each).as_tuple() for each in plain if "e" in each or "E" in each]
        scientific = 2 * len(floats) > len(plain)
        fixed = max((len(each.partition(".")[2]) for each in plain if "e" not in each and "E" not in each), default=0)
        decimals = max([fixed, *(-int(each.exponent) for each in floats)])
        digits = max((len(each.digits) for each in floats), default=0)
        grouped = form.thousands != "" and any(sign in each for each in texts for sign in form.thousands)
        return cls(form, decimals, digits if scientific else 0, grouped)

    def write(self, value: float) -> str:
        """A number as the column writes it."""
        text = self._plain(value)
        if self.grouped:
            text = (
                re.sub(r"(?<=\d)(?=(?:\d{3})+(?:\.|$))(?<!\.\d)", ",", text.split(".")[0])
                + text[len(text.split(".")[0]) :]
            )
        return text.translate({ord(","): self.form.thousands, ord("."): self.form.decimal})

    def write_error(self, value: float) -> str:
        """A standard deviation with the digits of the column, or as many more as two that count need."""
        if value <= 0 or self.significant:
            return self.write(value)
        return self._replace(decimals=max(self.decimals, 1 - int(np.floor(np.log10(value))))).write(value)

    def _plain(self, value: float) -> str:
        text = f"{value:.{self.significant - 1}e}" if self.significant else f"{value:.{self.decimals}f}"
        return text if float(text) else text.removeprefix("-")


def form_of_numbers(
    columns: Mapping[str, Sequence[str]], decimal: str | None, thousands: str | None, delimiter: str
) -> NumberForm:
    """The form of the numbers of a file.

    Args:
        columns: distinct texts of its columns of numbers that look like numbers.
        decimal: the decimal sign, if it is known.
        thousands: what thousands are grouped by, if it is known.
        delimiter: between the file's fields.

    Returns:
        The only form that reads all of them, the plainest of those that read the same.

    Raises:
        UnclearError: if there are two that read something else, or none.
    """
    signs = {sign for texts in columns.values() for text in texts for sign in text if not sign.isdigit()}
    meant = [form for form in _forms(delimiter, signs) if _is_meant(form, decimal, thousands)]
    meant = meant or [NumberForm(decimal or ".", thousands or "")]
    forms = [form for form in meant if _is_seen(form, signs)] or meant[:1]
    fitting = [form for form in forms if all(_fits(form, texts) for texts in columns.values())]
    if not fitting:
        _refuse_all(columns, forms)
    first = fitting[0]
    for name, texts in columns.items():
        read = [form.numbers(texts) for form in fitting]
        for form, values in zip(fitting, read, strict=True):
            differs = values != read[0]
            if differs.any():
                text = texts[int(np.argmax(differs))]
                ways = [(each, each.numbers([text])[0]) for each in (first, form)]
                said = " or ".join(f"{value:g} ({_deciding(each, text)})" for each, value in ways)
                raise UnclearError(f"{name!r}: {text!r} is {said}: say which")
    return first


def is_label(texts: Sequence[str]) -> bool:
    """Whether whole numbers are names, as 007 is: some begin with a 0."""
    return any(re.fullmatch(r"[-+]?0\d+", text) for text in texts)


def is_beyond(texts: Sequence[str]) -> bool:
    """Whether whole numbers are larger than floating-point numbers tell apart."""
    return any(re.fullmatch(r"[-+]?\d{16,}", text) and abs(int(text)) > _LARGEST for text in texts)


@lru_cache(maxsize=64)
def _pattern(form: NumberForm) -> re.Pattern[str]:
    point = re.escape(form.decimal)
    groups = ""
    if form.thousands:
        signs = re.escape(_GROUPS.get(form.thousands, form.thousands))
        groups = rf"[1-9]\d{{0,2}}(?:[{signs}]\d{{3}})+|"
    return re.compile(rf"[-+−]?(?:(?:{groups}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?")


def _forms(delimiter: str, signs: set[str]) -> list[NumberForm]:
    """All forms, the plainest first; points for thousands are not written between commas."""
    pairs = [(decimal, group) for group in ("", ",", ".", " ", "'", "_") for decimal in ".," if group != decimal]
    return [NumberForm(*pair) for pair in pairs if pair[1] != "." or delimiter != "," or "," in signs]


def _is_seen(form: NumberForm, signs: set[str]) -> bool:
    """Whether a form reads anything otherwise than a plainer one, for the signs that there are."""
    if form.thousands:
        return not signs.isdisjoint(_GROUPS.get(form.thousands, form.thousands))
    return form.decimal == "." or form.decimal in signs


def _is_meant(form: NumberForm, decimal: str | None, thousands: str | None) -> bool:
    same_group = thousands is None or form.thousands == next(
        (sign for sign, others in _GROUPS.items() if thousands and thousands in others), thousands
    )
    return same_group and decimal in (None, form.decimal)


def _fits(form: NumberForm, texts: Sequence[str]) -> bool:
    """Whether all texts are numbers in a form, and those that are large are grouped if any is."""
    if any(form.plain(text) is None for text in texts):
        return False
    if not form.thousands:
        return True
    signs = _GROUPS.get(form.thousands, form.thousands)
    grouped = any(sign in text for text in texts for sign in signs)
    bare = {text for text in texts if re.match(r"[-+−]?\d{4}", text)}
    return not grouped or len(bare) < 2  # one may be a code for what is missing


def _deciding(form: NumberForm, text: str) -> str:
    """The option that makes a text the number that it is in a form."""
    if form.thousands and form.thousands in text:
        return option("thousands", form.thousands)
    return option("decimal", form.decimal)


def _refuse_all(columns: Mapping[str, Sequence[str]], forms: Sequence[NumberForm]) -> None:
    """Say which two texts no form reads together."""
    best = max(
        forms, key=lambda form: sum(form.plain(text) is not None for texts in columns.values() for text in texts)
    )
    name, text = next(
        ((name, text) for name, texts in columns.items() for text in texts if best.plain(text) is None),
        next((name, texts[0]) for name, texts in columns.items()),
    )
    raise UnclearError(
        f"{name!r}: {text!r} is no number with a {best.said}, as the others are: say {option('decimal', ',')} or "
        f"{option('thousands', ',')}, mend it, or leave the column alone, {option('leave', [name])}"
    )
