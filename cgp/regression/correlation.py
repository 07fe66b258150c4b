"""Correlations of processes that are observed at inputs of their own: where a fit starts."""

from __future__ import annotations

import torch
from gpytorch.kernels import AdditiveKernel
from torch import Tensor

__all__ = ["nearest_correlation", "spread", "start_at_correlation"]

_LARGEST = 0.9
_COMPARED = 512  # observations of a process
_AMONG = 8192  # of the other, with the nearest of which each is compared


def start_at_correlation(covariance: AdditiveKernel, rows: Tensor, targets: Tensor) -> None:
    """Let all components start at the correlations that neighbouring observations have."""
    size = covariance.kernels[0].num_processes
    if covariance.kernels[0].loadings.partials is None:
        return
    found = nearest_correlation(rows.detach(), targets.detach(), size)
    for component in covariance.kernels:
        component.loadings.set_correlation(found)


def nearest_correlation(rows: Tensor, targets: Tensor, num_processes: int) -> Tensor:
    """Correlations ``(P, P)`` of each observation with the nearest of the other process, shrunk to the identity.

    Of many observations some are taken that are spread evenly: tables are often sorted.

    Returns:
        A correlation matrix.
    """
    seen = [rows[:, -1] == p for p in range(num_processes)]
    parts = [(rows[one, :-1], targets[one]) for one in seen]
    found = torch.eye(num_processes, dtype=rows.dtype, device=rows.device)
    for p in range(num_processes):
        for r in range(p):
            found[p, r] = found[r, p] = _of_pair(*parts[p], *parts[r])
    values, vectors = torch.linalg.eigh(found)
    found = vectors @ (values.clamp(min=0.0).unsqueeze(-1) * vectors.mT)
    scale = found.diagonal().rsqrt()
    identity = torch.eye(num_processes, dtype=rows.dtype, device=rows.device)
    return _LARGEST * found * scale * scale.unsqueeze(-1) + (1.0 - _LARGEST) * identity


def _of_pair(x1: Tensor, y1: Tensor, x2: Tensor, y2: Tensor) -> Tensor:
    """Correlation of observations with the nearest of the other process, 0 where it is not defined."""
    if min(len(y1), len(y2)) < 3:
        return y1.new_zeros(())
    x1, y1 = spread(_COMPARED, x1, y1)
    x2, y2 = spread(_AMONG, x2, y2)
    nearest = torch.cdist(x1, x2).argmin(-1)
    found = torch.corrcoef(torch.stack([y1, y2[nearest]]))[0, 1]
    return found.nan_to_num(0.0)


def spread(number: int, *values: Tensor) -> list[Tensor]:
    """At most this many rows of each, evenly spread over them."""
    size = len(values[0])
    kept = torch.linspace(0, size - 1, min(number, size), device=values[0].device).round().long()
    return [value[kept] for value in values]
