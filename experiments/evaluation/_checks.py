"""Inputs checked once: everything behind it may rely on shapes, ranges and float64."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Array", "as_array", "as_labels", "as_logits"]

Array = NDArray[Any]


def as_array(values: Any, *, single: bool = False) -> Array:
    """Tensors of any device, dtype and gradient state, arrays and lists in float64; float32 is kept where asked."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values if values.dtype == torch.float32 else values.double()).numpy()
    array = np.asarray(values)
    return array if single and array.dtype == np.float32 else array.astype(np.float64)


def as_logits(logits: Any) -> Array:  # shape: (S, N, C)
    """Logits of S draws; two axes mean one draw."""
    array = as_array(logits)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape or array.shape[-1] < 2:
        raise ValueError(
            "logits: expected shape (draws, samples, classes) or (samples, classes) with at least one draw, one sample "
            f"and two classes, got {tuple(np.shape(logits))}"
        )
    bad = array.size - int(np.isfinite(array).sum())
    if bad:
        raise ValueError(f"logits: expected finite values, got {bad} of {array.size} that are NaN or infinite")
    return array


def as_labels(labels: Any, samples: int, classes: int) -> NDArray[np.int64]:  # shape: (N,)
    """Integer classes in [0, classes)."""
    array = as_array(labels)
    if array.shape != (samples,):
        raise ValueError(f"labels: expected shape ({samples},), got {array.shape}")
    if not np.isin(array, np.arange(classes)).all():
        raise ValueError(f"labels: expected integers in [0, {classes}), got values in [{array.min()}, {array.max()}]")
    return array.astype(np.int64)
