"""Checks of the arrays given to plots."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Array", "as_array", "as_fractions", "as_image", "as_mask", "as_matching", "check_names", "named"]

Array = NDArray[Any]


def as_array(values: Any, name: str, ndim: int | tuple[int, ...], *, finite: bool = True) -> Array:
    """Convert a tensor, array or list to a non-empty float64 array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().to(torch.float64).numpy()
    array = np.asarray(values, dtype=np.float64)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed or array.size == 0:
        axes = " or ".join(map(str, allowed))
        raise ValueError(f"{name} must be a non-empty array with {axes} axes, got shape {array.shape}")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {(~np.isfinite(array)).sum()} values that are NaN or infinite")
    return array


def as_matching(values: Any, name: str, shape: tuple[int, ...]) -> Array:
    """An array of exactly this shape."""
    array = as_array(values, name, len(shape))
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def as_mask(values: Any, name: str, samples: int) -> NDArray[np.bool_]:
    """One truth value per sample, as bool or as 0 and 1."""
    array = as_matching(values, name, (samples,))
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold booleans, or 0 and 1, only")
    return array.astype(bool)


def as_fractions(values: Any, name: str) -> Array:
    """Numbers in [0, 1]."""
    array = as_array(values, name, 1)
    if array.min() < 0 or array.max() > 1:
        raise ValueError(f"{name} must lie in [0, 1], got [{array.min():.3g}, {array.max():.3g}]")
    return array


def named(values: Any, name: str) -> Mapping[str, Any]:
    """Check that values are a non-empty mapping from names."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"{name} must be a non-empty mapping from names to arrays, got {type(values).__name__}")
    return values


def as_image(image: Any, name: str = "image") -> Array:
    """A grey or colour image with its channels last, colours in [0, 1]; integers count as 0 to 255."""
    whole = not (image.is_floating_point() if isinstance(image, torch.Tensor) else np.asarray(image).dtype.kind == "f")
    array = as_array(image, name, (2, 3))
    if array.ndim == 3 and array.shape[-1] not in (1, 3) and array.shape[0] in (1, 3):
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] not in (1, 3):
        raise ValueError(f"{name} must be (H, W), (H, W, 3) or (C, H, W) with 1 or 3 channels, got shape {array.shape}")
    if array.ndim == 2 or array.shape[-1] == 1:
        return array.reshape(array.shape[:2])
    array = array / 255 if whole else array
    if array.min() < -1e-6 or array.max() > 1 + 1e-6:
        raise ValueError(
            f"{name} must have colours in [0, 1], got [{array.min():.3g}, {array.max():.3g}]; undo its scaling"
        )
    return array.clip(0, 1)


def check_names(names: list[str], columns: int) -> None:
    """Refuse names of another number than there are columns."""
    if len(names) != columns:
        raise ValueError(f"names must have {columns} entries, got {len(names)}")
