"""Saved predictions of a classifier: arrays in npz files, or tables as text."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cgp.spelling import first_of, meant

from .assessed import AS_SAVED
from .prediction_tables import ROUNDED, is_beside, kind_of_rows, numbered, odd, read_table

__all__ = ["Predictions", "check_features", "made_alike", "read_predictions"]

Array = NDArray[Any]

_OF_VALUES = {"mean", "means", "std", "variance", "variances", "predictions"}  # of a regression
_HOW = "np.savez(file, logits=..., labels=...) writes such, or probabilities=..."
_NAMES = ("logits", "probabilities", "labels", "features", "classes")
_TABLES, _TORCH = (".csv", ".tsv", ".txt", ".gz"), (".pt", ".pth")
_SHOWN = 5


class Predictions(NamedTuple):
    """What a file holds.

    Attributes:
        logits: ``(N, C)``.
        labels: ``(N,)``, or None.
        features: the representation that the last layer read, ``(N, d)``, or None.
        of: what the logits are, in words.
        classes: names of the columns of logits, where they have some.
        beside: what a table has of inputs besides, such as their names, by column.
        step: that probabilities are rounded to, 0 where none is seen.
        zeros: right classes whose probability is 0 there.
    """

    logits: Array
    labels: Array | None
    features: Array | None
    of: str
    classes: tuple[str, ...] = ()
    beside: Mapping[str, Sequence[str]] = MappingProxyType({})
    step: float = 0.0
    zeros: int = 0

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


def read_predictions(path: Path, of_labels: Path | None = None, *, labelled: bool = True) -> Predictions:
    """Read a file.

    Args:
        path: npz with ``logits`` ``(N, C)``, or ``(S, N, C)`` of S members or draws, whose probabilities are averaged;
            or ``probabilities`` of such a shape; and perhaps ``labels`` ``(N,)``, ``features`` ``(N, d)`` and
            ``classes``, names ``(C,)``. Or text with a column for each class, and one that is called ``label``. Or an
            array of logits or probabilities.
        of_labels: beside an array that of the labels; the two are told apart.
        labelled: whether labels are needed; otherwise they are not read.

    Returns:
        The arrays.

    Raises:
        ValueError: if it holds something else.
    """
    arrays, classes, beside = _arrays(path, of_labels, labelled=labelled)
    logits = _logits(path, arrays)
    classes = classes or _classes(path, arrays, logits.shape[1])
    labels = _labels(path, arrays, logits.shape, classes) if labelled else None
    features = arrays.get("features")
    if features is not None and (features.shape[:-1] != logits.shape[:1] or not _is_finite(features)):
        raise ValueError(
            f"{path}: expected finite features ({len(logits)}, d), got shape {features.shape} of {features.dtype}"
        )
    averaged = any(name in arrays and arrays[name].ndim == 3 for name in ("logits", "probabilities"))
    probabilities = "averaged probabilities" if averaged else "probabilities"
    of = AS_SAVED if "logits" in arrays and not averaged else f"logarithms of the {probabilities}"
    beside = beside or {name: [*map(str, each)] for name, each in arrays.items() if _is_of_inputs(name, each, logits)}
    step, zeros = _rounding(arrays.get("probabilities"), labels)
    return Predictions(logits, labels, features, of, classes, beside, step, zeros)


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


def _arrays(
    path: Path, of_labels: Path | None, *, labelled: bool
) -> tuple[dict[str, Array], tuple[str, ...], dict[str, list[str]]]:
    """What a file holds, by the names of :func:`numpy.savez`, names of the classes, and what a table has besides."""
    is_zipped, ending = zipfile.is_zipfile(path), path.suffix.lower()
    if ending in _TORCH:
        how = f"np.savez({path.stem + '.npz'!r}, logits=logits.numpy(), labels=labels.numpy())"
        raise ValueError(f"{path}: expected an .npz or .csv of logits and labels, got a file of torch: {how}")
    if ending == ".npy" and (of_labels is not None or not labelled):
        return _joined(path, of_labels), (), {}
    if not is_zipped:
        if ending in _TABLES:
            return read_table(path, labelled=labelled)
        what = f"a file of another kind, such as text ({_HOW})"
        if ending == ".npy":
            joins = f"np.savez({path.stem + '.npz'!r}, logits=np.load({path.name!r}), labels=...)"
            what = f"one array: {joins} joins two, as does cgp assess {path.name} labels.npy"
        raise ValueError(f"{path}: expected an .npz or .csv of logits and labels, got {what}")
    with _said_of(path), np.load(path, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            raise ValueError(f"got one array, {file.shape}")
        if not {"logits", "probabilities"} & {*file}:
            near = meant([name for name in file if name not in _NAMES], _NAMES)
            how = "cgp.assess in Python is for values with their variances" if {*file} & _OF_VALUES else _HOW
            raise ValueError(f"expected logits or probabilities, got {[*file]}{near} ({how})")
        return dict(file), (), {}


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Say of which file NumPy says something."""
    try:
        yield
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        is_of_objects = "allow_pickle" in str(error)
        what = "expected numbers, got an array of Python objects (save it .astype(int), or .astype(float), or texts "
        raise ValueError(f"{path}: {what + '.astype(str))' if is_of_objects else error}") from error


def _joined(path: Path, of_labels: Path | None) -> dict[str, Array]:
    """An array of logits or probabilities, and perhaps one of labels, in whatever order."""
    found = []
    for each in filter(None, (path, of_labels)):
        with _said_of(each):
            found.append(np.load(each, allow_pickle=False))
    found.sort(key=lambda array: -array.ndim)
    values, *labels = found
    kind = "logits"
    if values.ndim in (2, 3) and values.dtype.kind in "fiu" and _is_finite(values) and values.size:
        kind = kind_of_rows(path, values.reshape(-1, values.shape[-1]))
    return {kind: values} | ({"labels": labels[0]} if labels else {})


def _is_of_inputs(name: str, values: Array, logits: Array) -> bool:
    """Whether an array has a name or number for each input."""
    return is_beside(name) and values.shape == logits.shape[:1]


def _classes(path: Path, arrays: dict[str, Array], count: int) -> tuple[str, ...]:
    """Names of the classes, if there are some."""
    names = arrays.get("classes")
    if names is None:
        return ()
    if names.shape != (count,) or names.dtype.kind != "U" or len({*names.tolist()}) < count:
        advice = " (save classes.astype(str), and labels as such names or as numbers from 0)"
        raise ValueError(
            f"{path}: expected classes ({count},), different names as text, got {names.dtype} {names.shape}{advice}"
        )
    return tuple(names.tolist())


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
        if got := odd(values):
            raise ValueError(f"{path}: probabilities: expected numbers of 0 to 1 whose rows sum to 1, got {got}")
        return _logarithms(_means(values))
    if values.min() >= 0 and abs(values.sum(-1) - 1.0).max() <= ROUNDED:
        raise ValueError(
            f"{path}: logits: expected numbers from before the softmax, got rows that sum to 1, as behind it: save "
            "them as probabilities, np.savez(file, probabilities=..., labels=...)"
        )
    return values if values.ndim == 2 else _averaged(values)


def _logarithms(p: Array) -> Array:
    """Those of probabilities, as Python takes them by ``output="probabilities"``."""
    import torch

    from cgp.networks.model.labels import log_probabilities

    return np.asarray(log_probabilities(torch.from_numpy(p)))


def _means(p: Array) -> Array:
    """Probabilities ``(N, C)`` as they are, those of draws ``(S, N, C)`` averaged."""
    return p if p.ndim == 2 else np.asarray(p.mean(0))


def _rounding(p: Array | None, labels: Array | None) -> tuple[float, int]:
    """The step that probabilities are rounded to, and how many labels have none."""
    if p is None:
        return 0.0, 0
    import torch

    from cgp.networks.model.labels import rounding_step

    means = _means(p.astype(np.float64))
    zeros = 0 if labels is None else int((means[np.arange(len(means)), labels] == 0).sum())
    return rounding_step(torch.from_numpy(means)), zeros


def _averaged(logits: Array) -> Array:
    """The logarithm of the mean probabilities of draws ``(S, N, C)``."""
    from scipy.special import log_softmax, logsumexp

    return np.asarray(logsumexp(log_softmax(logits, -1), 0) - np.log(len(logits)))


def _labels(path: Path, arrays: dict[str, Array], shape: tuple[int, ...], classes: Sequence[str]) -> Array:
    if "labels" not in arrays:
        found = [name for name in arrays if name not in ("logits", "probabilities", "features")]
        got = f"got only {', '.join(arrays)}{meant(found, ['labels'])} ({_HOW}; of a .csv a column 'label')"
        raise ValueError(f"{path}: expected labels ({shape[0]},), {got}")
    labels = arrays["labels"]
    if labels.dtype.kind == "U" and classes and labels.shape == shape[:1]:
        labels = numbered(path, labels.tolist(), classes)
    if labels.dtype.kind not in "iu":
        kind, is_one_hot = labels.dtype.kind, labels.shape == (shape[0], shape[-1])
        advice = (
            "labels.argmax(1)" if is_one_hot else "labels.astype(int)" if kind in "fb" else "the number of each class"
        )
        names = ", or beside them classes=[...], their names in that order" if kind == "U" else ""
        got = f"{labels.dtype} {labels.shape} (save {advice}, from 0 as the logits have them{names})"
        raise ValueError(f"{path}: expected labels ({shape[0]},) of integers, got {got}")
    if labels.shape != shape[:1]:
        turned = " (are the logits transposed? logits.T has an input in each row)" if labels.shape == shape[1:] else ""
        raise ValueError(f"{path}: expected labels ({shape[0]},), one for each input, got {labels.shape}{turned}")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= shape[1]:
        advice = "save labels - 1" if (least, most) == (1, shape[1]) else "leave out inputs of other classes"
        raise ValueError(f"{path}: expected labels in 0 … {shape[1] - 1}, got {least} … {most} ({advice})")
    return labels.astype(np.int64)


def _is_finite(values: Array) -> bool:
    return values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
