"""What enters a regression, checked at the door."""

from __future__ import annotations

import torch
from torch import Tensor

from .likelihood import process_numbers

__all__ = ["check_training_data"]


def check_training_data(inputs: Tensor, targets: Tensor, num_processes: int | None) -> int:
    """Refuse data that no Gaussian process can be conditioned on.

    Args:
        inputs: ``(n, d + 1)``, the last column 0 … P-1.
        targets: ``(n,)``.
        num_processes: P, or None to count them.

    Returns:
        P.

    Raises:
        ValueError: if shapes do not fit, values are not finite or not floating point, or a process does not exist.
    """
    if inputs.dim() != 2 or inputs.shape[-1] < 2 or not len(inputs):
        raise ValueError(f"train_inputs: expected (n, d + 1) with n, d >= 1, got shape {tuple(inputs.shape)}")
    if targets.shape != inputs.shape[:1]:
        raise ValueError(f"train_targets: expected shape ({len(inputs)},), got {tuple(targets.shape)}")
    for name, values in (("train_inputs", inputs), ("train_targets", targets)):
        if values.dtype not in (torch.float32, torch.float64) or values.dtype != inputs.dtype:
            raise ValueError(f"{name}: expected float32 or float64 throughout, got {values.dtype}")
        if not torch.isfinite(values).all():
            raise ValueError(f"{name}: expected finite values, got {int((~torch.isfinite(values)).sum())} that are not")
    count = int(inputs[:, -1].max()) + 1 if num_processes is None else num_processes
    if count < 1:
        raise ValueError(f"num_processes: expected at least 1, got {count}")
    process_numbers(inputs, count)
    return count
