"""Constant mean of each process."""

from __future__ import annotations

import torch
from gpytorch.means import Mean
from torch import Tensor

from .input_maps import PriorModule, process_numbers, rows_of

__all__ = ["ProcessMean"]


class ProcessMean(Mean, PriorModule):
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
        self.register_normal("constants", torch.zeros(num_processes), 0.0, 1.0)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The mean of rows ``(*batch, n, d + 1)``, ``(*batch, n)``."""
        return rows_of(self.constants.unsqueeze(-1), process_numbers(input, self.num_processes)).squeeze(-1)
