"""Saved predictions of a classifier as tables of text, and what numbers are: probabilities, logits or labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import first_of, meant

from .terminal import say

__all__ = ["ROUNDED", "is_beside", "kind_of_rows", "numbered", "odd", "read_table"]

Array = NDArray[Any]

ROUNDED = 0.05
"""The most by which sums of rounded probabilities are taken to be off."""

_LABELS, _PERHAPS = ("label", "labels"), ("target", "y")  # columns of labels: by their names, and by what they hold
_BESIDE = ("id", "index", "name", "file", "filename", "path", "image", _UNNAMED := "unnamed 1")
_SHOWN = 5
_WHOLE = re.compile(r"[-+]?\d+(\.0*)?")


def read_table(path: Path, *, labelled: bool) -> tuple[dict[str, Array], tuple[str, ...], dict[str, list[str]]]:
    """Read a row for each input, of a column for each class, one of labels, and columns that can be neither.

    Args:
        path: text.
        labelled: whether labels are read.

    Returns:
        The numbers of classes and the labels, by the names of :func:`numpy.savez`; the names of the classes; and what
        else there is, such as names of inputs, by column.

    Raises:
        ValueError: if it is not clear what a column is.
    """
    from cgp.tables.frames.files.layout import delimited, layout_of
    from cgp.tables.frames.files.numbers import form_of_numbers, looks_like_number
    from cgp.tables.frames.files.options import ReadOptions, UnclearError
    from cgp.tables.frames.files.text import read_text

    options = ReadOptions(header=True, comment="", units_row=False, skip_footer=0, thousands="")
    try:
        grid = delimited(read_text(path).text, options)
        layout = layout_of(grid, options)
        if layout.header is not None and _are_numbers(grid.fields(layout.header)):
            names = "label, and the classes" if labelled else "the classes, or those of the labelled file"
            raise ValueError(f"{path}: expected a header ({names}), got none: the first row is numbers")
        rows = [grid.fields(record)[: len(layout.names)] for record in layout.rows]
        columns = dict(zip(layout.names, map(list, zip(*rows, strict=True)), strict=True))
        labels = {name: columns.pop(name) for name in _labels_of(columns)}
        beside = {name: columns.pop(name) for name in [*columns] if _is_no_class(name, columns)}
        beside = {"index" if name == _UNNAMED else name: texts for name, texts in beside.items()}
        for name, texts in columns.items():
            if others := [n for n, text in enumerate(texts) if not looks_like_number(text)]:
                gaps = "" if texts[others[0]] else "; for the gaps of a table: cgp fill FILE --assess PICTURE"
                raise ValueError(
                    f"{path}: {name!r}: expected numbers of a class, got {texts[others[0]]!r} in line "
                    f"{grid.line(layout.rows[others[0]])} "
                    f"(leave out what is no class, and inputs without numbers{gaps})"
                )
        form = form_of_numbers(columns, options, grid.delimiter)
    except UnclearError as error:
        raise ValueError(f"{path}: {error} (commas between fields and decimal points are clear)") from error
    if len(labels) > 1 or len(columns) < 2:
        raise ValueError(
            f"{path}: expected one column 'label' and a column for each of two classes or more, got "
            f"{first_of(map(repr, layout.names), _SHOWN)} (of one p for the second of two classes add 1 - p before it)"
        )
    values = np.stack([form.numbers(texts) for texts in columns.values()], 1)
    found = {kind_of_rows(path, values, [*columns]): values}
    for name, texts in labels.items() if labelled else ():
        found["labels"] = numbered(path, texts, [*columns])
        if name.lower() not in _LABELS:
            say(f"cgp assess: labels: {name}")  # which no help names
    return found, tuple(columns), beside


def _are_numbers(names: Sequence[str]) -> bool:
    """Whether what should be names are numbers, some of them with a fraction, which no number of a class has."""
    from cgp.tables.frames.files.numbers import looks_like_number

    return all(map(looks_like_number, names)) and not all(map(_WHOLE.fullmatch, names))


def is_beside(name: str) -> bool:
    """Whether a name is one of inputs, such as ``id`` or ``filenames``."""
    return name.lower().removesuffix("s") in _BESIDE


def _labels_of(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Columns of labels: those that are called so, or perhaps so and hold nothing that a class could have."""
    return [name for name in columns if name.lower() in _LABELS] or [
        name
        for name, texts in columns.items()
        if name.lower() in _PERHAPS and (_are_words(texts) or _is_apart(name, _numbers_of(columns)))
    ]


def _is_no_class(name: str, columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether a column holds what no class could have: words and times, or names and numbers of inputs."""
    if _are_words(columns[name]) or not is_beside(name):
        return _are_words(columns[name])
    numbers, own = _numbers_of(columns), columns[name]
    counts = name in numbers and _is_whole(numbers[name]) and len({*own}) == len(own) > len(columns)
    return name not in numbers or counts or _is_apart(name, numbers)


def _are_words(texts: Sequence[str]) -> bool:
    """Whether every text is a time, or a word with letters, which a percentage is not."""
    from cgp.tables.frames.files.numbers import kind_of

    kinds = [kind_of(text) if any(map(str.isalpha, text)) else kind_of(text).replace("word", "") for text in texts]
    return {*kinds} <= {"word", "time"}


def _numbers_of(columns: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """The numbers of columns that have nothing else, NaN where groups of digits are apart."""
    from cgp.tables.frames.files.numbers import looks_like_number

    def number(text: str) -> float:
        try:
            return float(text.replace(",", "."))
        except ValueError:
            return np.nan

    numeric = {name: texts for name, texts in columns.items() if all(map(looks_like_number, texts))}
    return {name: np.array([*map(number, texts)]) for name, texts in numeric.items()}


def _is_apart(name: str, numbers: Mapping[str, Array]) -> bool:
    """Whether a column has whole numbers, others have fractions, and it is no part of a sum of 1."""
    if name not in numbers or not _is_whole(own := numbers[name]) or all(map(_is_whole, numbers.values())):
        return False
    return bool(own.any()) and float(np.abs(np.sum([*numbers.values()], 0) - 1.0).max()) > ROUNDED


def kind_of_rows(path: Path, values: Array, names: Sequence[str] = ()) -> str:
    """What the numbers of classes are, where that is certain: probabilities sum to one, and logits may be below 0."""
    shift = "subtract the largest of its row from each number if they are logits, which changes no probability"
    if not (got := odd(values, shift)):
        return "probabilities"
    strange = [name for name, column in zip(names, values.T, strict=False) if column.any() and _is_whole(column)]
    if strange and not _is_whole(values):
        raise ValueError(
            f"{path}: expected a column for each class beside 'label', got whole numbers in {strange[0]!r} alone: call "
            "it 'label' if it holds the labels, or leave it out if it is no class"
        )
    if values.min() >= 0 or abs(values.sum(1) - 1.0).max() <= ROUNDED:
        got = got if values.min() >= 0 else f"rows that sum to 1 and {values.min():.4g}: {shift}"
        raise ValueError(f"{path}: expected probabilities, whose rows sum to 1, or logits, some below 0, got {got}")
    return "logits"


def numbered(path: Path, texts: Sequence[str], names: Sequence[str]) -> Array:
    """Labels that are numbers of classes from 0, or names of columns."""
    places = {name: place for place, name in enumerate(names)}
    if not (unknown := [text for text in texts if text not in places]):
        return np.array([places[text] for text in texts])
    are_names = len(unknown) < len(texts)
    if strange := [text for text in unknown if are_names or not _WHOLE.fullmatch(text)]:
        what, near = first_of(map(repr, names), _SHOWN), meant(strange[:1], names)
        raise ValueError(
            f"{path}: expected labels that are whole numbers from 0, or columns ({what}), got {strange[0]!r}{near}"
        )
    return np.array([int(float(text)) for text in texts])


def odd(values: Array, otherwise: str = "save them as logits=... if they are such") -> str:
    """What numbers that should be probabilities are instead, and what to do; empty where they are such."""
    sums = values.sum(-1)
    if values.min() >= 0 and abs(sums - 1.0).max() <= 1e-3:
        return ""
    if values.min() < 0:
        return f"{values.min():.4g}, such as logits or logarithms have: save them as logits=..."
    if abs(sums - 100.0).max() <= 0.5:
        return "rows that sum to 100, such as percentages: divide them by 100"
    what = f"rows that sum to {sums.min():.4g} … {sums.max():.4g}"
    if values.max() <= 1 and abs(sums - 1.0).max() <= ROUNDED:
        return f"{what}, such as of probabilities with few decimals: save six or more of them, or the logits"
    if values.max() <= 1:
        return f"{what}, such as of several labels each: divide each row by its sum if one class is right"
    return f"{what} and values to {values.max():.4g}: {otherwise}"


def _is_whole(values: Array) -> bool:
    return bool((values == values.round()).all())
