"""What neighbouring observations say before a fit: correlations of processes, and the most that noise may be."""

from __future__ import annotations

import torch
from gpytorch.kernels import AdditiveKernel
from torch import Tensor

__all__ = ["nearest_correlation", "neighbour_noise", "spread", "start_at_correlation"]

_LARGEST = 0.9
_COMPARED = 512  # number of observations of a process that are compared
_ERRORS = 2.0  # standard errors added to the noise that neighbours allow
_NOISY = 2048  # number of observations whose noise is estimated
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


def neighbour_noise(rows: Tensor, targets: Tensor) -> Tensor:
    r"""An upper bound of the noise variance of one process by its nearest observations.

    .. math:: \gamma = \tfrac12\overline{(y_i - y_{n(i)})^2}

    plus two standard errors. Observations at different inputs differ by more than noise.

    Returns:
        The bound, a scalar.

    Source:
        Cressie (1993), Statistics for spatial data, section 2.4, on the semivariogram and its nugget.
    """
    numbers = torch.arange(len(rows), device=rows.device)
    x, y, number = spread(_NOISY, rows, targets, numbers)
    others, values, other = spread(_AMONG, rows, targets, numbers)
    nearest = torch.cdist(x, others).masked_fill(number[:, None] == other, torch.inf).argmin(-1)
    halves = 0.5 * (y - values[nearest]).square()
    return halves.mean() + _ERRORS * halves.std() / len(halves) ** 0.5
