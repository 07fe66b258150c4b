"""Inputs checked once: everything behind it may rely on shapes, ranges and float64."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Array", "as_labels", "as_logits", "as_mask", "as_rows", "as_vector"]

Array = NDArray[Any]


def as_array(values: Any) -> Array:
    """Tensors of any device, dtype and gradient state, arrays and lists as a float64 array."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().to(torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def as_logits(
    logits: Any,  # shape: (S, N, C) or (N, C)
    name: str = "logits",
) -> Array:  # shape: (S, N, C)
    """Logits of S draws; two axes mean one draw."""
    array = as_array(logits)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape or array.shape[-1] < 2:
        raise ValueError(
            f"{name} must have shape (draws, samples, classes) or (samples, classes) with at least one draw, "
            f"one sample and two classes, got {tuple(np.shape(logits))}"
        )
    return _finite(array, name)


def as_rows(
    values: Any,  # shape: (N, C)
    name: str,
    *,
    sum_to_one: bool = False,
) -> Array:  # shape: (N, C)
    """Finite rows, one per sample; distributions to the precision of float32 where they must be."""
    array = as_array(values)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must have shape (samples, classes), got {array.shape}")
    if sum_to_one and (array.min() < 0 or np.abs(array.sum(axis=-1) - 1).max() > 1e-4):
        raise ValueError(f"{name} must have non-negative rows that sum to one (are these logits?)")
    return _finite(array, name)


def as_labels(
    labels: Any,  # shape: (N,)
    samples: int,
    classes: int,
    name: str = "labels",
) -> NDArray[np.int64]:  # shape: (N,)
    """Integer classes in [0, classes)."""
    array = as_array(labels)
    if array.shape != (samples,):
        raise ValueError(f"{name} must have shape ({samples},), got {array.shape}")
    integers = _finite(array, name).astype(np.int64)
    if (integers != array).any() or integers.min() < 0 or integers.max() >= classes:
        raise ValueError(f"{name} must be integers in [0, {classes}), got values in [{array.min()}, {array.max()}]")
    return integers


def as_vector(
    values: Any,  # shape: (N,)
    name: str,
) -> Array:  # shape: (N,)
    """At least one finite number; the precision of float32 input is kept, as its ties are."""
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    array = array if array.dtype == np.float32 else as_array(values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (samples,) with at least one sample, got {array.shape}")
    return _finite(array, name)


def as_mask(
    values: Any,  # shape: (N,)
    samples: int,
    name: str,
) -> NDArray[np.bool_]:  # shape: (N,)
    """One truth value per sample, given as bool or as 0 and 1."""
    array = as_array(values)
    if array.shape != (samples,):
        raise ValueError(f"{name} must have shape ({samples},), got {array.shape}")
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold booleans, or 0 and 1, only")
    return array.astype(bool)


def _finite(array: Array, name: str) -> Array:
    bad = array.size - int(np.isfinite(array).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} values of {array.size} that are NaN or infinite")
    return array
