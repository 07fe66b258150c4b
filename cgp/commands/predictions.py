"""Saved predictions of a classifier: arrays in npz files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .assessed import AS_SAVED

__all__ = ["Predictions", "check_alike", "check_features", "read_predictions"]

Array = NDArray[Any]

_HOW = (
    "np.savez(file, logits=..., labels=...), with probabilities=... in their place, and features=... if there are any"
)
_ROUNDED = 0.05  # the most by which sums of rounded probabilities are taken to be off


class Predictions(NamedTuple):
    """What a file holds.

    Attributes:
        logits: ``(N, C)``.
        labels: ``(N,)``, or None.
        features: the representation that the last layer read, ``(N, d)``, or None.
        of: what the logits are, in words.
    """

    logits: Array
    labels: Array | None
    features: Array | None
    of: str


def read_predictions(path: Path, *, labelled: bool = True) -> Predictions:
    """Read a file.

    Args:
        path: npz with ``logits`` ``(N, C)``, or ``(S, N, C)`` of S members or draws, whose probabilities are averaged;
            or ``probabilities`` of such a shape; and perhaps ``labels`` ``(N,)`` and ``features`` ``(N, d)``.
        labelled: whether labels are needed; otherwise they are not read.

    Returns:
        The arrays.

    Raises:
        ValueError: if it holds something else.
    """
    arrays = _arrays(path)
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
    return Predictions(logits, labels, features, of)


def check_alike(path: Path, part: Predictions, known: Predictions) -> None:
    """Refuse a file whose arrays do not fit those of the labelled one."""
    if part.logits.shape[1] != known.logits.shape[1]:
        classes, got = known.logits.shape[1], part.logits.shape[1]
        raise ValueError(f"{path}: expected logits of {classes} classes as the labelled ones, got {got}")
    widths = [None if each.features is None else each.features.shape[1] for each in (known, part)]
    if None not in widths and widths[0] != widths[1]:
        raise ValueError(f"{path}: expected features (N, {widths[0]}) as the labelled ones, got (N, {widths[1]})")


def check_features(path: Path, part: Predictions, known: Predictions, users: Sequence[str]) -> None:
    """Refuse a file without features that something uses, as the labelled one has them."""
    if users and part.features is None:
        width = "d" if known.features is None else known.features.shape[1]
        uses = "use" if len(users) > 1 else "uses"
        raise ValueError(f"{path}: expected features (N, {width}), as {' and '.join(users)} {uses} them, got none")


def _arrays(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        what = "one array" if path.suffix == ".npy" else "a file of another kind, such as text"
        raise ValueError(f"{path}: expected an .npz of logits and labels, got {what}: {_HOW}")
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise ValueError(f"got one array, {file.shape}")
            if not {"logits", "probabilities"} & {*file}:
                raise ValueError(f"expected logits or probabilities, got {[*file]}")
            return {name: file[name] for name in ("logits", "probabilities", "labels", "features") if name in file}
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError) as error:
        is_of_objects = "allow_pickle" in str(error)
        got = "got an array of Python objects (save it .astype(int), or .astype(float))" if is_of_objects else error
        raise ValueError(f"{path}: expected arrays as {_HOW} writes them: {got}") from error


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


def _odd(values: Array) -> str:
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
    return f"{what} and values to {values.max():.4g}: save them as logits=... if they are such"


def _averaged(logits: Array) -> Array:
    """The logarithm of the mean probabilities of draws ``(S, N, C)``."""
    from scipy.special import log_softmax, logsumexp

    return np.asarray(logsumexp(log_softmax(logits, -1), 0) - np.log(len(logits)))


def _labels(path: Path, arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    if "labels" not in arrays:
        with np.load(path) as file:
            raise ValueError(f"{path}: expected labels ({shape[0]},), got only {', '.join(file)} ({_HOW})")
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


def _is_finite(values: Array) -> bool:
    return values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
