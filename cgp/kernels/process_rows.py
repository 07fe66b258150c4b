"""Rows (input, process): data whose last column is the index of the observed process."""

from __future__ import annotations

import torch
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from torch import Tensor

__all__ = ["noise_of_rows", "process_numbers", "rows_of"]


def process_numbers(x: Tensor, num_processes: int) -> Tensor:
    """The process of each row, the last column 0 … P-1 of ``(*batch, n, d + 1)``: ``(*batch, n)`` of int64."""
    column = x[..., -1]
    numbers = column.long()
    wrong = (numbers != column) | (numbers < 0) | (numbers >= num_processes)
    if wrong.any():
        last = num_processes - 1
        raise ValueError(f"x: expected processes 0 to {last} in the last column, got {float(column[wrong][0]):g}")
    return numbers


def rows_of(table: Tensor, numbers: Tensor) -> Tensor:
    """The row ``(*batch, n, k)`` of each process in ``(*batch, P, k)``; both may have batch dimensions of their own."""
    batch = torch.broadcast_shapes(table.shape[:-2], numbers.shape[:-1])
    numbers = numbers.expand(*batch, -1).unsqueeze(-1).expand(*batch, numbers.shape[-1], table.shape[-1])
    return table.expand(*batch, *table.shape[-2:]).gather(-2, numbers)


def noise_of_rows(likelihood: _GaussianLikelihoodBase, x: Tensor) -> Tensor:
    """The noise variance ``(*batch, n)`` of each row, for any Gaussian likelihood of GPyTorch."""
    if not isinstance(likelihood, _GaussianLikelihoodBase):
        raise ValueError(f"likelihood: expected Gaussian noise, got {type(likelihood).__name__}")
    return likelihood._shaped_noise_covar(x.shape[:-1], x).diagonal(dim1=-2, dim2=-1)
