"""Gaussian noise of each process, for rows that name their process in the last column."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from gpytorch.priors import LogNormalPrior
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

__all__ = ["ProcessGaussianLikelihood", "process_numbers"]

_PRIOR = (-3.0, 2.0)


def process_numbers(x: Tensor, num_processes: int) -> Tensor:
    """The process of each row.

    Args:
        x: ``(*batch, n, d + 1)``, the last column 0 … P-1.
        num_processes: P.

    Returns:
        ``(*batch, n)`` of int64.

    Raises:
        ValueError: if the last column holds anything else.

    Example:
        >>> process_numbers(torch.tensor([[0.3, 1.0], [0.5, 0.0]]), 2)
        tensor([1, 0])
    """
    column = x[..., -1]
    numbers = column.long()
    wrong = (numbers != column) | (numbers < 0) | (numbers >= num_processes)
    if wrong.any():
        last = num_processes - 1
        raise ValueError(f"x: expected processes 0 to {last} in the last column, got {float(column[wrong][0]):g}")
    return numbers


class _ProcessNoise(Noise):
    """One variance a process."""

    def __init__(self, num_processes: int, floor: float, initial: float) -> None:
        super().__init__()
        self.num_processes = num_processes
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_processes)))
        constraint = GreaterThan(floor, transform=torch.exp, inv_transform=torch.log)
        self.register_constraint("raw_noise", constraint)
        loc, scale = (torch.tensor(value, dtype=torch.float64) for value in _PRIOR)
        self.register_prior("noise_prior", LogNormalPrior(loc, scale), "noise")
        self.noise = torch.full((num_processes,), initial)

    @property
    def noise(self) -> Tensor:
        return self.raw_noise_constraint.transform(self.raw_noise)

    @noise.setter
    def noise(self, value: Tensor) -> None:
        floor = self.raw_noise_constraint.lower_bound * (1.0 + 1e-6)  # samplers try smaller values
        value = torch.as_tensor(value).to(self.raw_noise).clamp(min=floor)
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(value))

    def forward(
        self, *params: Any, shape: torch.Size | None = None, rows: Tensor | None = None, **kwargs: Any
    ) -> DiagLinearOperator:
        # GPyTorch's objectives hand on either positional or keyword arguments, not both.
        if rows is None and not params:
            raise ValueError("rows: expected the inputs of the observations, got none: their noise depends on them")
        x = rows if rows is not None else params[0] if isinstance(params[0], Tensor) else params[0][0]
        return DiagLinearOperator(self.of_rows(x))

    def of_rows(self, x: Tensor) -> Tensor:
        numbers = process_numbers(x, self.num_processes)
        batch = torch.broadcast_shapes(self.noise.shape[:-1], numbers.shape[:-1])
        return self.noise.expand(*batch, -1).gather(-1, numbers.expand(*batch, -1))


class ProcessGaussianLikelihood(_GaussianLikelihoodBase):
    r"""Observations with independent Gaussian noise, one variance a process.

    .. math:: y_i = z_{p_i}(x_i) + \epsilon_i, \qquad \epsilon_i \sim N(0, \sigma^2_{p_i})

    The noises have a log-normal prior (median 0.05, log-sd 2) for outputs of unit variance.

    Args:
        num_processes: P.
        floor: the smallest variance that is allowed.
        initial_noise: the variance to start from.

    Raises:
        ValueError: if there is no process, or the first noise is not above the floor.

    Example:
        >>> likelihood = ProcessGaussianLikelihood(2, initial_noise=0.5)
        >>> likelihood.noise_of_rows(torch.tensor([[0.3, 1.0]]))
        tensor([0.5000], grad_fn=<...>)
    """

    def __init__(self, num_processes: int, *, floor: float = 1e-6, initial_noise: float = 0.1) -> None:
        if num_processes < 1:
            raise ValueError(f"num_processes: expected at least 1, got {num_processes}")
        if not initial_noise > floor > 0:
            raise ValueError(f"initial_noise, floor: expected initial_noise > floor > 0, got {initial_noise}, {floor}")
        super().__init__(_ProcessNoise(num_processes, floor, initial_noise))

    @property
    def noise(self) -> Tensor:
        """Noise variance of each process, ``(*batch, P)``."""
        return self.noise_covar.noise

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.noise_covar.noise = value

    def noise_of_rows(self, x: Tensor) -> Tensor:
        """Noise variance of each row.

        Args:
            x: ``(*batch, n, d + 1)``, the last column 0 … P-1.

        Returns:
            ``(*batch, n)``.
        """
        return self.noise_covar.of_rows(x)
