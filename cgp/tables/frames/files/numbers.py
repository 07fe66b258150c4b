"""Numbers as they are written: decimal signs and groups of thousands, which a file has one kind of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .options import ReadOptions, UnclearError, option
from .times import looks_like_time

__all__ = [
    "ABSENT",
    "LIMITS",
    "NumberForm",
    "Precision",
    "form_of_numbers",
    "kind_of",
    "looks_like_number",
    "main_kind",
]

# Words that spreadsheets, R, pandas and data bases write for what is missing, in columns that are numbers otherwise
ABSENT = frozenset(["NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "-nan", "<NA>", "NULL", "null", "None"])
LIMITS = "<>≤≥"  # before numbers that are limits of what could be measured
_DECIMALS = 6  # of a column without readings
_DIGITS = 16  # that a number has
_BESIDE = 1e-2  # of the largest error, below which one does not decide how many decimals a column has
_NONE = 1e-6  # of a reading's last digit: what sums that are known leave of their errors
_NUMBER = re.compile(r"[-+−]?(\d[\d.,'’ \u00a0\u202f\u2009]*|[.,]\d+)([eE][-+]?\d+)?")
_GROUPS = {" ": " \u00a0\u202f\u2009", "'": "'’"}  # signs that are written for each other


def looks_like_number(text: str) -> bool:
    """Whether a text is a number in some notation."""
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


class NumberForm(NamedTuple):
    """Signs of numbers.

    Attributes:
        decimal: a point or a comma.
        thousands: what groups of three digits are apart by, or nothing.
    """

    decimal: str = "."
    thousands: str = ""

    @property
    def groups(self) -> str:
        """All signs that groups may be apart by."""
        return _GROUPS.get(self.thousands, self.thousands)

    def plain(self, text: str) -> str | None:
        """A number as Python writes it."""
        if not _pattern(self).fullmatch(text):
            return None
        return text.translate({**{ord(sign): "" for sign in self.groups}, ord(self.decimal): ".", ord("−"): "-"})

    def numbers(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Texts as numbers, NaN for those that are none: ``(n,)``."""
        return np.array([np.nan if (plain := self.plain(text)) is None else float(plain) for text in texts])

    @property
    def said(self) -> str:
        """The form in words."""
        grouped = f", thousands grouped by {self.thousands!r}" if self.thousands else ""
        return f"decimal {'point' if self.decimal == '.' else 'comma'}{grouped}"


_FORMS = [NumberForm(decimal, group) for group in ("", ",", ".", " ", "'") for decimal in ".," if group != decimal]


class Precision(NamedTuple):
    """The digits of a column.

    Attributes:
        form: of its numbers.
        decimals: the most that a reading has.
        significant: digits of numbers with an exponent, 0 where most have none.
        grouped: whether thousands are grouped.
    """

    form: NumberForm
    decimals: int
    significant: int
    grouped: bool

    @classmethod
    def of(cls, texts: Sequence[str], form: NumberForm) -> Precision:
        """The digits of readings."""
        plain = [each for each in map(form.plain, texts) if each is not None]
        decimals = max((-int(Decimal(each).as_tuple().exponent) for each in plain), default=_DECIMALS)
        floats = [len(Decimal(each).as_tuple().digits) for each in plain if "e" in each.lower()]
        grouped = any(sign in each for each in texts for sign in form.groups)
        significant = max(floats) if 2 * len(floats) > len(plain) else 0
        return cls(form, decimals if significant else max(decimals, 0), significant, grouped)

    def longer(self, more: int) -> Precision:
        """The digits of what is known to so many more than a reading, such as a mean."""
        return self._replace(decimals=self.decimals + more, significant=self.significant and self.significant + more)

    def least(self, errors: NDArray[np.float64]) -> float:
        """The standard error that the digits of a column of numbers are for, so that all have as many decimals.

        Args:
            errors: of the numbers, ``(n,)``.

        Returns:
            The smallest that there is, but for those that are next to nothing beside the largest; 0 if there is none.
        """
        some = errors[errors > max(_NONE * 10.0**-self.decimals, _BESIDE * float(errors.max(initial=0.0)))]
        return float(some.min(initial=np.inf)) if len(some) else 0.0

    def write(self, value: float, error: float = 0.0) -> str:
        """A number as the column writes it, with as many more digits as two of a standard error need.

        Args:
            value: the number.
            error: that of its column (:meth:`least`); 0 for the digits of a reading.

        Returns:
            The text.
        """
        needed = 1 - _place(error) if error > _NONE * 10.0**-self.decimals else -_DIGITS
        if self.significant:
            digits = max(self.significant, _place(value) + 1 + needed)
            text = f"{value:.{min(digits, _DIGITS) - 1}e}"
        else:
            text = f"{value:,.{max(self.decimals, needed)}f}"
        text = text if float(text.replace(",", "")) else text.removeprefix("-")
        return text.translate({ord(","): self.form.thousands if self.grouped else "", ord("."): self.form.decimal})


def form_of_numbers(columns: Mapping[str, Sequence[str]], options: ReadOptions, delimiter: str) -> NumberForm:
    """The form of the numbers of a file."""
    asked = {name: getattr(options, name) for name in NumberForm._fields}
    has_comma = any("," in text for texts in columns.values() for text in texts)
    forms = [
        form for form in _FORMS if all(sign in (None, own) for own, sign in zip(form, asked.values(), strict=True))
    ]
    # Points for thousands are not written between commas, unless some numbers of a column have none
    is_mixed = any(map(_have_some_points, columns.values()))
    may_group = delimiter != "," or has_comma or options.thousands == "." or is_mixed
    usual = [form for form in forms if form.thousands != "." or may_group]
    fitting = [form for form in usual if all(_fits(form, texts) for texts in columns.values())]
    if not fitting:
        raise UnclearError(_unfit(columns, usual, asked))
    for name, texts in columns.items():
        read = [form.numbers(texts) for form in fitting]
        for form, values in zip(fitting, read, strict=True):
            if (values != read[0]).any():
                text = texts[int(np.argmax(values != read[0]))]
                ways = [f"{each.numbers([text])[0]:g} ({_deciding(each, text)})" for each in (fitting[0], form)]
                raise UnclearError(f"{name!r}: {text!r} is {' or '.join(ways)}: say which")
    return fitting[0]


def _have_some_points(texts: Sequence[str]) -> bool:
    """Whether some numbers of a column have a point, and others none, as those below a thousand."""
    return any("." in text for text in texts) and any(text.lstrip("+-−").isdigit() for text in texts)


def _place(value: float) -> int:
    """The power of ten of the first digit of a number."""
    return int(np.floor(np.log10(abs(value)))) if value else 0


@lru_cache(maxsize=64)
def _pattern(form: NumberForm) -> re.Pattern[str]:
    point = re.escape(form.decimal)
    groups = rf"[1-9]\d{{0,2}}(?:[{re.escape(form.groups)}]\d{{3}})+|" if form.thousands else ""
    return re.compile(rf"[-+−]?(?:(?:{groups}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?")


def _fits(form: NumberForm, texts: Sequence[str]) -> bool:
    """Whether all texts are numbers in a form, and those that are large are grouped if any is."""
    if any(form.plain(text) is None for text in texts):
        return False
    grouped = any(sign in text for text in texts for sign in form.groups)
    bare = {text for text in texts if re.match(r"[-+−]?\d{4}", text)}
    return not grouped or len(bare) < 2  # one may be a code for what is missing


def _deciding(form: NumberForm, text: str) -> str:
    """The option that makes a text the number that it is in a form."""
    if form.thousands and form.thousands in text:
        return option("thousands", form.thousands)
    return option("decimal", form.decimal)


def _unfit(columns: Mapping[str, Sequence[str]], forms: Sequence[NumberForm], asked: Mapping[str, str | None]) -> str:
    """Which text no form that is asked for reads with the others, and the form that does if there is one."""
    cells = [(name, text) for name, texts in columns.items() for text in texts]
    best = max(forms, key=lambda form: sum(form.plain(text) is not None for _, text in cells))
    name, text = next(((name, text) for name, text in cells if best.plain(text) is None), cells[0])
    other = next((form for form in _FORMS if all(_fits(form, texts) for texts in columns.values())), None)
    signs = {} if other is None else {name: sign for name, sign in other._asdict().items() if sign != asked[name]}
    ways = " ".join(option(name, sign) for name, sign in signs.items() if asked[name] or (name == "thousands" and sign))
    say = f"say {ways}, " if ways else ""
    return (
        f"{name!r}: {text!r} is no number with a {best.said}, as the others are: {say}mend it, or leave the column "
        f"alone, {option('leave', [name])}"
    )
