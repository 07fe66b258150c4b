"""Initial correlations of processes that may be observed at different inputs."""

from __future__ import annotations

import torch
from gpytorch.kernels import AdditiveKernel
from torch import Tensor

__all__ = ["nearest_correlation", "spread", "start_at_correlation"]

_LARGEST = 0.9
_COMPARED = 512  # number of observations of a process that are compared
_AMONG = 8192  # number of observations of the other process that are searched for neighbours


def start_at_correlation(covariance: AdditiveKernel, rows: Tensor, targets: Tensor) -> None:
    """Initialise all components with the correlations of neighbouring observations."""
    size = covariance.kernels[0].num_processes
    if not covariance.kernels[0].loadings.correlated:
        return
    correlation = nearest_correlation(rows.detach(), targets.detach(), size)
    for component in covariance.kernels:
        component.loadings.set_correlation(correlation)


def nearest_correlation(rows: Tensor, targets: Tensor, num_processes: int) -> Tensor:
    """Correlations ``(P, P)`` of each observation with the nearest of the other process, shrunk to the identity.

    Of many observations an evenly spaced subset is used, as tables are often sorted.

    Returns:
        A correlation matrix.
    """
    seen = [rows[:, -1] == p for p in range(num_processes)]
    parts = [(rows[of_process, :-1], targets[of_process]) for of_process in seen]
    correlation = torch.eye(num_processes, dtype=rows.dtype, device=rows.device)
    for p in range(num_processes):
        for r in range(p):
            correlation[p, r] = correlation[r, p] = _of_pair(*parts[p], *parts[r])
    values, vectors = torch.linalg.eigh(correlation)
    correlation = vectors @ (values.clamp(min=0.0).unsqueeze(-1) * vectors.mT)
    scale = correlation.diagonal().rsqrt()
    identity = torch.eye(num_processes, dtype=rows.dtype, device=rows.device)
    return _LARGEST * correlation * scale * scale.unsqueeze(-1) + (1.0 - _LARGEST) * identity


def _of_pair(x1: Tensor, y1: Tensor, x2: Tensor, y2: Tensor) -> Tensor:
    """Correlation of observations with the nearest of the other process, 0 if it is undefined."""
    if min(len(y1), len(y2)) < 3:
        return y1.new_zeros(())
    x1, y1 = spread(_COMPARED, x1, y1)
    x2, y2 = spread(_AMONG, x2, y2)
    nearest = torch.cdist(x1, x2).argmin(-1)
    correlation = torch.corrcoef(torch.stack([y1, y2[nearest]]))[0, 1]
    return correlation.nan_to_num(0.0)


def spread(number: int, *values: Tensor) -> list[Tensor]:
    """At most this many rows of each tensor, evenly spaced."""
    size = len(values[0])
    kept = torch.linspace(0, size - 1, min(number, size), device=values[0].device).round().long()
    return [value[kept] for value in values]
