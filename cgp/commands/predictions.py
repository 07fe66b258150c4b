"""Saved predictions of a classifier: arrays in npz files, or tables as text."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import first_of, meant

from .assessed import AS_SAVED

__all__ = ["Predictions", "check_features", "made_alike", "read_predictions"]

Array = NDArray[Any]

_HOW = "np.savez(file, logits=..., labels=...) writes such, or probabilities=..."
_NAMES = ("logits", "probabilities", "labels", "features")
_TABLES = (".csv", ".tsv", ".txt", ".gz")
_LABELS = ("label", "labels")  # of a column
_SHOWN = 5
_ROUNDED = 0.05  # the most by which sums of rounded probabilities are taken to be off


class Predictions(NamedTuple):
    """What a file holds.

    Attributes:
        logits: ``(N, C)``.
        labels: ``(N,)``, or None.
        features: the representation that the last layer read, ``(N, d)``, or None.
        of: what the logits are, in words.
        classes: names of the columns of logits, of a text.
    """

    logits: Array
    labels: Array | None
    features: Array | None
    of: str
    classes: tuple[str, ...] = ()

    def ordered(self, path: Path, classes: Sequence[str]) -> Self:
        """With columns in the order of some classes, where both have names; an error if a name is not there."""
        if not self.classes or not classes or self.classes == classes:
            return self
        if odd := [name for name in self.classes if name not in classes]:
            what = first_of(map(repr, classes), _SHOWN)
            raise ValueError(
                f"{path}: expected columns of the labelled file, {what}, got {odd[0]!r}{meant(odd, classes)}"
            )
        if len(self.classes) < len(classes):
            missing = next(name for name in classes if name not in self.classes)
            raise ValueError(f"{path}: expected a column for each class of the labelled file, got none for {missing!r}")
        places = np.array([self.classes.index(name) for name in classes])
        labels = None if self.labels is None else places.argsort()[self.labels]
        return self._replace(logits=self.logits[:, places], labels=labels, classes=tuple(classes))


def read_predictions(path: Path, *, labelled: bool = True) -> Predictions:
    """Read a file.

    Args:
        path: npz with ``logits`` ``(N, C)``, or ``(S, N, C)`` of S members or draws, whose probabilities are averaged;
            or ``probabilities`` of such a shape; and perhaps ``labels`` ``(N,)`` and ``features`` ``(N, d)``. Or text
            with a column for each class, and one that is called ``label``.
        labelled: whether labels are needed; otherwise they are not read.

    Returns:
        The arrays.

    Raises:
        ValueError: if it holds something else.
    """
    arrays, classes = _arrays(path)
    logits = _logits(path, arrays)
    labels = _labels(path, arrays, logits.shape) if labelled else None
    features = arrays.get("features")
    if features is not None and (features.shape[:-1] != logits.shape[:1] or not _is_finite(features)):
        raise ValueError(
            f"{path}: expected finite features ({len(logits)}, d), got shape {features.shape} of {features.dtype}"
        )
    averaged = any(name in arrays and arrays[name].ndim == 3 for name in ("logits", "probabilities"))
    probabilities = "averaged probabilities" if averaged else "probabilities"
    of = AS_SAVED if "logits" in arrays and not averaged else f"logarithms of the {probabilities}"
    return Predictions(logits, labels, features, of, classes)


def made_alike(path: Path, part: Predictions, known: Predictions) -> Predictions:
    """What a file holds, with classes in the order of the labelled one; an error if its arrays do not fit that."""
    part = part.ordered(path, known.classes)
    if part.logits.shape[1] != known.logits.shape[1]:
        classes, got = known.logits.shape[1], part.logits.shape[1]
        raise ValueError(f"{path}: expected logits of {classes} classes as the labelled ones, got {got}")
    widths = [None if each.features is None else each.features.shape[1] for each in (known, part)]
    if None not in widths and widths[0] != widths[1]:
        raise ValueError(f"{path}: expected features (N, {widths[0]}) as the labelled ones, got (N, {widths[1]})")
    return part


def check_features(path: Path, part: Predictions, known: Predictions, users: Sequence[str]) -> None:
    """Refuse a file without features that something uses, as the labelled one has them."""
    if users and part.features is None:
        width = "d" if known.features is None else known.features.shape[1]
        uses = "use" if len(users) > 1 else "uses"
        raise ValueError(f"{path}: expected features (N, {width}), as {' and '.join(users)} {uses} them, got none")


def _arrays(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """What a file holds, by the names of :func:`numpy.savez`, and names of the classes."""
    if not zipfile.is_zipfile(path):
        if path.suffix.lower() in _TABLES:
            return _table(path)
        what = "a file of another kind, such as text"
        if path.suffix == ".npy":
            what = f"one array: np.savez({path.stem + '.npz'!r}, logits=np.load({path.name!r}), labels=...) joins two"
        raise ValueError(f"{path}: expected an .npz or .csv of logits and labels, got {what} ({_HOW})")
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise ValueError(f"got one array, {file.shape}")
            if not {"logits", "probabilities"} & {*file}:
                near = meant(file, _NAMES)
                raise ValueError(f"expected logits or probabilities, got {[*file]}{near} ({_HOW})")
            return dict(file), ()
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        is_of_objects = "allow_pickle" in str(error)
        what = "expected numbers, got an array of Python objects (save it .astype(int), or .astype(float))"
        raise ValueError(f"{path}: {what if is_of_objects else error}") from error


def _table(path: Path) -> tuple[dict[str, Array], tuple[str, ...]]:
    """What a text holds, a row for each input, a column for each class and one of labels; and names of the classes."""
    from cgp.tables.frames.files.layout import delimited, layout_of
    from cgp.tables.frames.files.numbers import form_of_numbers, looks_like_number
    from cgp.tables.frames.files.options import ReadOptions, UnclearError
    from cgp.tables.frames.files.text import read_text

    options = ReadOptions(header=True, comment="", units_row=False, skip_footer=0, thousands="")
    try:
        grid = delimited(read_text(path).text, options)
        layout = layout_of(grid, options)
        rows = [grid.fields(record)[: len(layout.names)] for record in layout.rows]
        columns = dict(zip(layout.names, map(list, zip(*rows, strict=True)), strict=True))
        labels = [columns.pop(name) for name in layout.names if name.lower() in _LABELS]
        for name, texts in columns.items():
            if odd := [n for n, text in enumerate(texts) if not looks_like_number(text)]:
                raise ValueError(
                    f"{path}: {name!r}: expected numbers of a class, got {texts[odd[0]]!r} in line "
                    f"{grid.line(layout.rows[odd[0]])} (leave out what is no class, and inputs without numbers)"
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
    found = {_what(path, values, [*columns]): values}
    found |= {"labels": _numbered(path, labels[0], [*columns])} if labels else {}
    return found, tuple(columns)


def _what(path: Path, values: Array, names: Sequence[str]) -> str:
    """What the numbers of classes are, where that is certain: probabilities sum to one, and logits may be below 0."""
    shift = "subtract the largest of its row from each number if they are logits, which changes no probability"
    if not (odd := _odd(values, shift)):
        return "probabilities"
    strange = [name for name, column in zip(names, values.T, strict=True) if column.any() and _is_whole(column)]
    if strange and not _is_whole(values):
        raise ValueError(
            f"{path}: expected a column for each class beside 'label', got whole numbers in {strange[0]!r} alone: call "
            "it 'label' if it holds the labels, or leave it out if it is no class"
        )
    if values.min() >= 0 or abs(values.sum(1) - 1.0).max() <= _ROUNDED:
        odd = odd if values.min() >= 0 else f"rows that sum to 1 and {values.min():.4g}: {shift}"
        raise ValueError(f"{path}: expected probabilities, whose rows sum to 1, or logits, some below 0, got {odd}")
    return "logits"


def _numbered(path: Path, texts: Sequence[str], names: Sequence[str]) -> Array:
    """Labels that are numbers of classes from 0, or names of columns."""
    places = {name: place for place, name in enumerate(names)}
    if not (unknown := [text for text in texts if text not in places]):
        return np.array([places[text] for text in texts])
    are_names = len(unknown) < len(texts)
    if odd := [text for text in unknown if are_names or not re.fullmatch(r"[-+]?\d+(\.0*)?", text)]:
        what, near = first_of(map(repr, names), _SHOWN), meant(odd[:1], names)
        raise ValueError(
            f"{path}: expected labels that are whole numbers from 0, or columns ({what}), got {odd[0]!r}{near}"
        )
    return np.array([int(float(text)) for text in texts])


def _logits(path: Path, arrays: dict[str, Array]) -> Array:
    given = [name for name in ("logits", "probabilities") if name in arrays]
    if len(given) != 1:
        raise ValueError(f"{path}: expected one of the two, logits or probabilities, got both ({_HOW})")
    values = arrays[given[0]]
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu" or values.shape[-1] < 2 or not values.size:
        got = f"got shape {values.shape}"
        if values.ndim == 1 or values.shape[-1:] == (1,):
            other = "0 * z" if given[0] == "logits" else "1 - z"
            got += f" (of one number z (N,) for the second of two classes save np.stack([{other}, z], 1))"
        raise ValueError(f"{path}: expected {given[0]} (N, C) of at least two classes, {got}")
    values = values.astype(np.float64)
    if not _is_finite(values):
        row = int(np.argwhere(~np.isfinite(values))[0, -2])
        raise ValueError(
            f"{path}: expected finite {given[0]}, got NaN or infinity in row {row} (leave such inputs out)"
        )
    if given[0] == "probabilities":
        if odd := _odd(values):
            raise ValueError(f"{path}: probabilities: expected numbers of 0 to 1 whose rows sum to 1, got {odd}")
        return np.log(np.maximum(values if values.ndim == 2 else values.mean(0), np.finfo(np.float32).tiny))
    if values.min() >= 0 and abs(values.sum(-1) - 1.0).max() <= _ROUNDED:
        raise ValueError(
            f"{path}: logits: expected numbers from before the softmax, got rows that sum to 1, as behind it: save "
            "them as probabilities, np.savez(file, probabilities=..., labels=...)"
        )
    return values if values.ndim == 2 else _averaged(values)


def _odd(values: Array, otherwise: str = "save them as logits=... if they are such") -> str:
    """What numbers that should be probabilities are instead, and what to do; empty where they are such."""
    sums = values.sum(-1)
    if values.min() >= 0 and abs(sums - 1.0).max() <= 1e-3:
        return ""
    if values.min() < 0:
        return f"{values.min():.4g}, such as logits or logarithms have: save them as logits=..."
    if abs(sums - 100.0).max() <= 0.5:
        return "rows that sum to 100, such as percentages: divide them by 100"
    what = f"rows that sum to {sums.min():.4g} … {sums.max():.4g}"
    if values.max() <= 1:
        return f"{what}, such as of several labels each: divide each row by its sum if one class is right"
    return f"{what} and values to {values.max():.4g}: {otherwise}"


def _averaged(logits: Array) -> Array:
    """The logarithm of the mean probabilities of draws ``(S, N, C)``."""
    from scipy.special import log_softmax, logsumexp

    return np.asarray(logsumexp(log_softmax(logits, -1), 0) - np.log(len(logits)))


def _labels(path: Path, arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    if "labels" not in arrays:
        found = [name for name in arrays if name not in ("logits", "probabilities", "features")]
        got = f"got only {', '.join(arrays)}{meant(found, ['labels'])} ({_HOW}; of a .csv a column 'label')"
        raise ValueError(f"{path}: expected labels ({shape[0]},), {got}")
    labels = arrays["labels"]
    if labels.dtype.kind not in "iu":
        kind, is_one_hot = labels.dtype.kind, labels.shape == (shape[0], shape[-1])
        advice = (
            "labels.argmax(1)" if is_one_hot else "labels.astype(int)" if kind in "fb" else "the number of each class"
        )
        got = f"{labels.dtype} {labels.shape} (save {advice}, from 0 as the logits have them)"
        raise ValueError(f"{path}: expected labels ({shape[0]},) of integers, got {got}")
    if labels.shape != shape[:1]:
        raise ValueError(f"{path}: expected labels ({shape[0]},), one for each input, got {labels.shape}")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= shape[1]:
        advice = "save labels - 1" if (least, most) == (1, shape[1]) else "leave out inputs of other classes"
        raise ValueError(f"{path}: expected labels in 0 … {shape[1] - 1}, got {least} … {most} ({advice})")
    return labels.astype(np.int64)


def _is_whole(values: Array) -> bool:
    return bool((values == values.round()).all())


def _is_finite(values: Array) -> bool:
    return values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
