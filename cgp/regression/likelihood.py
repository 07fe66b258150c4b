"""Parts that are specific to a process: rows, a constant mean, Gaussian noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cgp.kernels.canonical_kernel import PriorModule, process_numbers, rows_of

__all__ = ["ProcessGaussianLikelihood", "ProcessMean", "every_process"]

_LOG_NOISE_MEAN, _LOG_NOISE_SD = -3.0, 2.0


def every_process(inputs: Tensor, num_processes: int) -> Tensor:
    """Every input ``(n, d)`` as a row of each process, ``(n, P, d + 1)``."""
    numbers = torch.arange(num_processes, dtype=inputs.dtype, device=inputs.device)
    each = numbers.expand(len(inputs), -1).unsqueeze(-1)
    return torch.cat([inputs.unsqueeze(1).expand(-1, num_processes, -1), each], dim=-1)


class ProcessMean(Mean, PriorModule):
    r"""A constant for each process, :math:`\mu(x, p) = m_p`, with a standard normal prior."""

    def __init__(self, num_processes: int) -> None:
        super().__init__()
        self.num_processes = num_processes
        self.register_normal("constants", torch.zeros(num_processes), 0.0, 1.0)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The mean of rows ``(*batch, n, d + 1)``, ``(*batch, n)``."""
        return rows_of(self.constants.unsqueeze(-1), process_numbers(input, self.num_processes)).squeeze(-1)


class _ProcessNoise(PriorModule):
    """One variance per process."""

    def __init__(self, num_processes: int, floor: float, initial: float) -> None:
        super().__init__()
        self.num_processes, self.floor = num_processes, floor
        start = torch.full((num_processes,), math.log(initial - floor))
        self.register_normal("log_noise", start, _LOG_NOISE_MEAN, _LOG_NOISE_SD)

    @property
    def noise(self) -> Tensor:
        return self.floor + self.log_noise.exp()

    @noise.setter
    def noise(self, value: Tensor | float) -> None:
        above = (torch.as_tensor(value).to(self.log_noise) - self.floor).clamp(min=1e-6 * self.floor)
        self.initialize(log_noise=above.log().expand(*above.shape[:-1], self.num_processes))

    def forward(
        self, *params: Any, shape: torch.Size | None = None, rows: Tensor | None = None, **kwargs: Any
    ) -> DiagLinearOperator:
        # GPyTorch's objectives pass either positional or keyword arguments, not both.
        if rows is None and params:
            rows = params[0] if isinstance(params[0], Tensor) else params[0][0]
        if rows is not None:
            noise = rows_of(self.noise.unsqueeze(-1), process_numbers(rows, self.num_processes, "rows")).squeeze(-1)
        elif self.num_processes == 1 and shape is not None:
            noise = self.noise.expand(*shape)
        else:
            raise ValueError(
                "rows: expected the inputs of the observations, which their noise depends on, got none: "
                "pass them as in likelihood(model(x), x) and objective(model(x), y, x)"
            )
        return DiagLinearOperator(noise)


class ProcessGaussianLikelihood(_GaussianLikelihoodBase):
    r"""Observations with independent Gaussian noise, one variance per process.

    .. math:: y_i = z_{p_i}(x_i) + \epsilon_i, \qquad \epsilon_i \sim N(0, \sigma^2_{p_i})

    The logarithms of the noises have the prior N(-3, 4), for outputs of unit variance. Calls take the rows in
    addition to the distribution; with one process they are optional.

    Args:
        num_processes: number P of processes.
        floor: smallest allowed variance.
        initial_noise: initial variance.

    Raises:
        ValueError: if there is no process, or the initial noise is not above the floor.

    Example:
        >>> from gpytorch.distributions import MultivariateNormal
        >>> likelihood = ProcessGaussianLikelihood(2, initial_noise=0.5)
        >>> likelihood(MultivariateNormal(torch.zeros(1), torch.eye(1)), torch.tensor([[0.3, 1.0]])).variance
        tensor([1.5000], grad_fn=<...>)
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
    def noise(self, value: Tensor | float) -> None:
        self.noise_covar.noise = value
