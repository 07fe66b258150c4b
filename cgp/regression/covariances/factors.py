"""Many outputs by few processes that they share: loadings, where they start, and how many the criterion takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from cgp.regression.checks import check_count
from cgp.regression.inference.comparison import Fitted, fitted
from cgp.regression.inference.windows import Table, pairwise_correlation
from cgp.regression.likelihood import PriorModule
from cgp.regression.solvers.model import RegressionModel

from .rows import RowKernel

__all__ = [
    "FACTORS",
    "MixingLoadings",
    "factor_counts",
    "factor_covariance",
    "fit_factors",
    "output_correlation",
    "start_at_components",
]

FACTORS = "factors"
_MOST_LATENTS = 2500  # processes times inputs


class MixingLoadings(PriorModule):
    r"""Weights of processes that all outputs share, none of which is an output's own, with a standard normal prior.

    Args:
        num_processes: P.
        num_factors: R.

    Source:
        Teh, Seeger & Jordan (2005), Semiparametric latent factor models.
    """

    partials: Tensor | None = None  # of a correlation matrix, as in :class:`.Loadings`: there are none
    shared = False

    def __init__(self, num_processes: int, num_factors: int) -> None:
        super().__init__()
        self.num_processes = num_processes
        self.register_normal("weights", torch.ones(num_processes, num_factors), 0.0, 1.0)

    @property
    def scales(self) -> Tensor:
        """Standard deviation of each output, ``(*batch, P)``."""
        return self.weights.norm(dim=-1)

    def forward(self) -> Tensor:
        """The loadings of all outputs, ``(*batch, P, R)``."""
        return self.weights


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
    options: dict[str, Any] = {"structure": "coregionalised"}
    return AdditiveKernel(
        *(
            RowKernel(kernel, num_processes, input_dim, loadings=MixingLoadings(num_processes, 1), **options).double()
            for _ in range(num_factors)
        )
    )


@torch.no_grad()
def start_at_components(covariance: AdditiveKernel, correlation: Tensor) -> None:
    """Let the processes start as the principal components of a correlation matrix ``(P, P)``, the largest first."""
    values, vectors = torch.linalg.eigh(correlation)
    common = (vectors * values.clamp(min=0.0).sqrt()).flip(-1)
    for component, column in zip(covariance.kernels, common.mT, strict=False):
        component.loadings.weights.copy_(column.unsqueeze(-1))


def factor_counts(num_processes: int, num_inputs: int) -> list[int]:
    """The numbers of processes that are tried: 1, 2, 4, … below P, as many as are factored in seconds."""
    most = min(num_processes - 1, max(_MOST_LATENTS // num_inputs, 1))
    return [2**power for power in range(max(most, 1).bit_length())]


def fit_factors(build: Callable[[int], RegressionModel], counts: Sequence[int], **options: Any) -> Fitted:
    """Fit models of more and more processes until the criterion no longer falls.

    The first races; later ones start at its lengthscales and noise.

    Args:
        build: makes a model, not yet fitted, of so many processes.
        counts: the numbers of processes to try.
        **options: of :func:`.fit_model`.

    Returns:
        The best.
    """
    fits: list[Fitted] = []
    for count in counts:
        model = build(count)
        if fits:
            _start_from(model, fits[-1].model)
        fits.append(fitted(model, **options, race=not fits))
        if fits[-1].criterion > min(fit.criterion for fit in fits):
            break
    return min(fits, key=lambda fit: fit.criterion)


def output_correlation(rows: Tensor, targets: Tensor, num_processes: int) -> Tensor:
    """Correlations ``(P, P)`` of outputs over the inputs that they were observed at together."""
    inputs, place = rows[:, :-1].unique(dim=0, return_inverse=True)
    numbers = np.full((len(inputs), num_processes), -1)
    numbers[place.numpy(), rows[:, -1].long().numpy()] = np.arange(len(rows))
    return pairwise_correlation(Table(inputs, numbers), targets)


@torch.no_grad()
def _start_from(model: RegressionModel, before: RegressionModel) -> None:
    """Take the processes, the means and the noise of another model of fewer processes."""
    known, count = before.state_dict(), len(before.covar_module.kernels)
    model.load_state_dict(known, strict=False)
    last = before.covar_module.kernels[count - 1].input_maps.log_scales
    for component in model.covar_module.kernels[count:]:
        component.input_maps.log_scales.copy_(last)
