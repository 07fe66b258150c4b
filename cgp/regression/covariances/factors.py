"""Factors: many outputs as weighted sums of few processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from cgp.regression.covariances.structure import check_count, count

from .rows import FactorLoadings, RowKernel, principal_components
from .structure import Structure

if TYPE_CHECKING:
    from cgp.regression.observations import Observations

__all__ = [
    "Factors",
    "factor_counts",
    "factor_covariance",
    "start_at_components",
]

_MOST_LATENTS = 2500  # processes times inputs


@dataclass(frozen=True)
class Factors(Structure):
    """The outputs are weighted sums of R processes with different lengthscales, none of which is an output's own.

    Args:
        num_factors: R; None is selected by the criterion from 1, 2, 4, ...
    """

    name = "factors"
    num_factors: int | None = count(None)

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows, of one process if their number is not selected yet."""
        sizes = observations.num_outputs, observations.input_dim
        return factor_covariance(*sizes, self.num_factors or 1, kernel=kernel)

    def start(self, covariance: AdditiveKernel, observations: Observations) -> None:
        """Let the processes start as the principal components of the outputs' correlation."""
        start_at_components(covariance, observations.correlation())

    def variants(self, observations: Observations) -> Mapping[str, Structure]:
        """The numbers of processes that are tried."""
        counts = factor_counts(observations.num_outputs, len(observations.grid.inputs))
        return {f"{self.name} {each}": Factors(each) for each in ([self.num_factors] if self.num_factors else counts)}

    def obstacle(self, observations: Observations, kernel: str | Kernel | None, num_inducing: int | None) -> str | None:
        """Refuse inducing inputs."""
        return None if num_inducing is None else f"num_inducing: expected None, got {num_inducing!r}"


def factor_covariance(
    num_processes: int, input_dim: int, num_factors: int, *, kernel: str | Kernel = "rbf"
) -> AdditiveKernel:
    r"""The covariance of outputs that are weighted sums of R processes, each with lengthscales of its own.

    .. math:: k\big((x, p), (x', r)\big) = \sum_{q=1}^R \lambda_{pq}\lambda_{rq}\,\kappa\big((x - x') \odot w_q\big)

    Args:
        num_processes: P.
        input_dim: d.
        num_factors: R.
        kernel: as in :func:`.correlated_covariance`.

    Returns:
        A sum of R kernels of rows whose last column is the output.

    Raises:
        ValueError: if a count is below one.

    Example:
        >>> factor_covariance(20, 2, 3).kernels[0].loadings().shape
        torch.Size([20, 1])
    """
    for name, value in (("num_processes", num_processes), ("input_dim", input_dim), ("num_factors", num_factors)):
        check_count(name, value, 1)
    loadings = [FactorLoadings(num_processes, 1, separate=False) for _ in range(num_factors)]
    return AdditiveKernel(*(RowKernel(kernel, num_processes, input_dim, loadings=each).double() for each in loadings))


@torch.no_grad()
def start_at_components(covariance: AdditiveKernel, correlation: Tensor) -> None:
    """Let the processes start as the principal components of a correlation matrix ``(P, P)``, the largest first."""
    for component, column in zip(covariance.kernels, principal_components(correlation).mT, strict=False):
        component.loadings.factors.copy_(column.unsqueeze(-1))


def factor_counts(num_processes: int, num_inputs: int) -> list[int]:
    """The numbers of processes that are tried: 1, 2, 4, … below P, as many as are factored in seconds."""
    most = min(num_processes - 1, max(_MOST_LATENTS // num_inputs, 1))
    return [2**power for power in range(max(most, 1).bit_length())]
