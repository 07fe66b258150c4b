"""Checks of the arguments and data of a regression."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import validate_data
from torch import Tensor

from cgp.kernels.process_rows import process_numbers

__all__ = [
    "check_count",
    "check_training_data",
    "checked_inputs",
    "checked_outputs",
    "with_nan",
]


def check_count(name: str, value: Any, least: int) -> None:
    """Reject values that are not an integer count, or are too small."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")


def check_training_data(inputs: Tensor, targets: Tensor, num_processes: int | None) -> int:
    """Reject rows ``(n, d + 1)`` and targets ``(n,)`` that no Gaussian process can be conditioned on; returns P."""
    if inputs.dim() != 2 or inputs.shape[-1] < 2 or not len(inputs):
        raise ValueError(f"train_inputs: expected (n, d + 1) with n, d >= 1, got shape {tuple(inputs.shape)}")
    if targets.shape != inputs.shape[:1]:
        raise ValueError(f"train_targets: expected shape ({len(inputs)},), got {tuple(targets.shape)}")
    for name, values in (("train_inputs", inputs), ("train_targets", targets)):
        if values.requires_grad:
            raise ValueError(f"{name}: expected values without a history, got a tensor that requires grad: detach it")
        if values.dtype not in (torch.float32, torch.float64) or values.dtype != inputs.dtype:
            raise ValueError(f"{name}: expected float32 or float64 throughout, got {values.dtype}")
        if not torch.isfinite(values).all():
            raise ValueError(f"{name}: expected finite values, got {int((~torch.isfinite(values)).sum())} that are not")
    count = int(inputs[:, -1].max()) + 1 if num_processes is None else num_processes
    if count < 1:
        raise ValueError(f"num_processes: expected at least 1, got {count}")
    process_numbers(inputs, count)
    return count


def checked_inputs(estimator: Any, *data: Any, **options: Any) -> Any:
    """X, or X and y, checked by scikit-learn; dates and masks, which it would misread as numbers, are rejected."""
    X = data[0]
    _refuse_dates("X", X)
    if np.ma.is_masked(X):
        raise ValueError(f"X: expected every value, got a masked array without {np.ma.count_masked(X)} of them")
    return validate_data(estimator, *data, dtype=np.float64, **options)


def _refuse_dates(name: str, values: Any) -> None:
    """Reject arrays and data frames with dates or time differences, which would be read as counts of their unit."""
    dtypes = np.atleast_1d(np.asarray(getattr(values, "dtypes", getattr(values, "dtype", None)), dtype=object))
    dates = [dtype for dtype in dtypes if getattr(dtype, "kind", "") in ("m", "M")]
    if dates:
        example = "np.asarray((dates - dates[0]) / np.timedelta64(1, 'D'))[:, None]"
        raise ValueError(f"{name}: expected numbers, such as {example}, got {dates[0]}")


def with_nan(y: Any) -> Any:
    """Outputs whose masked entries are NaN, that is, not observed."""
    return np.ma.filled(y.astype(np.float64), np.nan) if isinstance(y, np.ma.MaskedArray) else y


def checked_outputs(y: Any, x: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Outputs as columns ``(n, P)``, NaN for unobserved entries, and whether they had a single axis."""
    _refuse_dates("y", y)
    options: dict[str, Any] = {"ensure_2d": False, "dtype": np.float64, "input_name": "y"}
    y = check_array(with_nan(y), ensure_all_finite="allow-nan", **options)
    if y.ndim == 1:
        y = check_array(y, **options)  # a single process must be observed everywhere
    check_consistent_length(x, y)
    columns = y.reshape(len(y), -1)
    unseen = np.flatnonzero(np.isnan(columns).all(axis=0))
    if len(unseen):
        raise ValueError(f"y: expected at least one observation of each process, got none of {unseen.tolist()}")
    return columns, y.ndim == 1
