"""Constant mean of each process."""

from __future__ import annotations

import torch
from gpytorch.means import Mean
from gpytorch.priors import NormalPrior
from torch import Tensor, nn

from .likelihood import process_numbers

__all__ = ["ProcessMean"]


class ProcessMean(Mean):
    r"""A constant for each process, :math:`\mu(x, p) = m_p`, with a standard normal prior.

    Args:
        num_processes: P.

    Example:
        >>> ProcessMean(2)(torch.tensor([[0.3, 1.0], [0.5, 0.0]]))
        tensor([0., 0.], grad_fn=<...>)
    """

    def __init__(self, num_processes: int) -> None:
        super().__init__()
        self.num_processes = num_processes
        self.register_parameter("constants", nn.Parameter(torch.zeros(num_processes)))
        loc, scale = (torch.tensor(value, dtype=torch.float64) for value in (0.0, 1.0))
        self.register_prior("constants_prior", NormalPrior(loc, scale), "constants")

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The mean of rows.

        Args:
            input: ``(*batch, n, d + 1)``, the last column 0 … P-1. GPyTorch's name for it.

        Returns:
            ``(*batch, n)``.
        """
        numbers = process_numbers(input, self.num_processes)
        batch = torch.broadcast_shapes(self.constants.shape[:-1], numbers.shape[:-1])
        return self.constants.expand(*batch, -1).gather(-1, numbers.expand(*batch, -1))
