"""Observations of several outputs on one time line: ordered rows of outputs, and the lags between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["TimeLine", "time_line"]

_DIGITS = 1e-12  # lags that differ by less, in units of the whole line, are merged


class TimeLine(NamedTuple):
    """Rows in order.

    Attributes:
        gaps: the distinct differences of inputs between rows that follow each other, ``(U,)``.
        outputs: outputs before and after each gap, if they have different inputs; otherwise 0 and 0; ``(U, 2)``.
        steps: index of the gap before each of N rows, ``(N,)``; the first is used if the line continues
            another.
        cells: the place of each observation in rows ``(N, P)``, flattened: ``(n,)``.
        first: index of an observation in the first row.
        last: index of an observation in the last row.
    """

    gaps: Tensor
    outputs: Tensor
    steps: Tensor
    cells: Tensor
    first: int
    last: int


def time_line(
    inputs: Tensor,
    numbers: Tensor,
    num_outputs: int,
    num_observed: int,
    shifts: Tensor | None = None,
    before: tuple[float, int] | None = None,
) -> TimeLine:
    """Order observations and further inputs on one time line.

    Equal inputs share a row, unless an output is observed repeatedly at an input. With shifts every observation has
    its own row, as outputs at equal inputs then differ in time.

    Args:
        inputs: ``(n,)``.
        numbers: index of the output that each belongs to, ``(n,)``.
        num_outputs: number P of outputs.
        num_observed: number of observations, which come first; the others, requested inputs, may share their cell
            with an observation.
        shifts: shift of every output in units of the inputs, ``(P,)``, or None.
        before: input and output of the last row of an earlier line that this one continues.

    Returns:
        The time line of all n.

    Example:
        >>> line = time_line(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0, 0, 1]), 2, 3)
        >>> line.gaps, line.steps, line.cells
        (tensor([0., 1.], dtype=torch.float64), tensor([0, 1]), tensor([0, 2, 1]))
    """
    t, p = inputs.detach().double().numpy(), numbers.numpy()
    rank = _ranks(t, p, num_observed)
    times = t if shifts is None else t + shifts.detach().double().numpy()[p]
    order = np.lexsort((p, rank, times))
    sorted_rank, sorted_times = rank[order], times[order]
    begins = np.ones(len(t), dtype=bool)
    if shifts is None:
        begins[1:] = (np.diff(sorted_times) > 0) | (np.diff(sorted_rank) != 0)
    row = np.cumsum(begins) - 1
    cells = np.empty(len(t), dtype=np.int64)
    cells[order] = row * num_outputs + p[order]
    heads = order[begins]
    start, owner = (t[heads[0]], p[heads[0]]) if before is None else before
    ends = np.append(start, t[heads]), np.append(owner, p[heads]) * (shifts is not None)
    return TimeLine(*_lags(*ends, num_outputs), torch.as_tensor(cells), int(heads[0]), int(heads[-1]))


def _ranks(t: NDArray[np.float64], p: NDArray[np.int64], num_observed: int) -> NDArray[np.int64]:
    """Number of earlier observations of the same output at the same input; 0 for unobserved rows."""
    rank = np.zeros(len(t), dtype=np.int64)
    order = np.lexsort((t[:num_observed], p[:num_observed]))
    fresh = np.ones(num_observed, dtype=bool)
    fresh[1:] = (np.diff(t[order]) > 0) | (np.diff(p[order]) != 0)
    position = np.arange(num_observed)
    rank[order] = position - np.maximum.accumulate(np.where(fresh, position, 0))
    return rank


def _lags(t: NDArray[np.float64], owners: NDArray[np.int64], num_outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct gaps, the outputs at their ends, and the number of the gap before each row but the first."""
    gaps, before, owners = np.diff(t), owners[:-1], owners[1:]
    unit = max(float(np.ptp(t)), np.finfo(float).tiny) * _DIGITS
    # One key for a gap and its two outputs: few gaps on a regular grid, regardless of rounding.
    _, rounded = np.unique(np.round(gaps / unit), return_inverse=True)
    key = (rounded.reshape(-1) * num_outputs + before) * num_outputs + owners
    _, index, steps = np.unique(key, return_index=True, return_inverse=True)
    steps = steps.reshape(-1)
    mean = np.bincount(steps, gaps) / np.bincount(steps)
    ends = np.stack([before[index], owners[index]], axis=-1)
    return torch.as_tensor(mean), torch.as_tensor(ends), torch.as_tensor(steps)
