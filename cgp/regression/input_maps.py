"""Input maps: how every process of a regression sees the inputs of its canonical process."""

from __future__ import annotations

import math
from functools import partial

import torch
from gpytorch import Module
from gpytorch.priors import NormalPrior
from torch import Tensor, nn

__all__ = ["InputMaps", "PriorModule", "process_numbers", "rows_of"]

_LOG_SCALE_SD = math.sqrt(3.0)
_LOG_RATIO_SD = 0.5
_SHIFT_SD = 1.0


class PriorModule(Module):
    """A module whose parameters are unconstrained and have normal priors, so that samples of them can be loaded."""

    def register_normal(self, name: str, initial: Tensor, mean: float, sd: float) -> None:
        """Add a parameter with a normal prior.

        Args:
            name: of the parameter; its prior is called ``NAME_prior``.
            initial: the value to start from; an empty one means that there is no such parameter.
            mean: of the prior.
            sd: of the prior.
        """
        self.register_parameter(name, nn.Parameter(initial) if initial.numel() else None)
        if initial.numel():
            loc, scale = (torch.tensor(value, dtype=torch.float64) for value in (mean, sd))
            # GPyTorch's own closures cannot be pickled.
            self.register_prior(
                f"{name}_prior", NormalPrior(loc, scale), partial(_value, name=name), partial(_assign, name=name)
            )


def _value(module: Module, name: str) -> Tensor:
    return getattr(module, name)


def _assign(module: Module, value: Tensor, name: str) -> None:
    module.initialize(**{name: value})


class InputMaps(PriorModule):
    r"""Diagonal affine maps of P processes into the inputs of one canonical process.

    .. math:: (x, p) \mapsto x \odot w_0 \odot r_p + b_p, \qquad r_0 = 1,\; b_0 = 0

    The first process has the inverse lengthscales w_0; a later one has them times its ratios r and is shifted by b.
    Priors, for inputs of unit variance: :math:`\log w_0 \sim N(-\tfrac12\log d, 3)`, :math:`\log r \sim N(0, 1/4)`,
    :math:`b \sim N(0, 1)`, in units of the lengthscale. Processes are thus expected to vary about as fast, and one with
    few observations takes its lengthscales from the first.

    Args:
        num_processes: P.
        input_dim: d.
        ratios: whether later processes have r.
        shifts: whether later processes have b.

    Source:
        CGPT equations (13)-(16).

    Example:
        >>> InputMaps(2, 1)(torch.tensor([[0.3], [0.5]]), torch.tensor([0, 1]))
        tensor([[0.3000], [0.5000]], grad_fn=<...>)
    """

    def __init__(self, num_processes: int, input_dim: int, *, ratios: bool = True, shifts: bool = True) -> None:
        super().__init__()
        later = num_processes - 1
        centre = -0.5 * math.log(input_dim)
        self.register_normal("log_scales", torch.full((input_dim,), centre), centre, _LOG_SCALE_SD)
        self.register_normal("log_ratios", torch.zeros(later * ratios, input_dim), 0.0, _LOG_RATIO_SD)
        self.register_normal("shifts", torch.zeros(later * shifts, input_dim), 0.0, _SHIFT_SD)

    @property
    def scales(self) -> Tensor:
        """Inverse lengthscales of the first process, ``(*batch, d)``."""
        return self.log_scales.exp()

    def forward(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Map inputs into the canonical space.

        Args:
            x: ``(*batch, n, d)``.
            numbers: the process of each input, ``(*batch, n)`` of int64.

        Returns:
            ``(*batch, n, d)``.
        """
        mapped = x * self.scales.unsqueeze(-2)
        if self.log_ratios is not None:
            mapped = mapped * rows_of(_after_zeros(self.log_ratios), numbers).exp()
        return mapped if self.shifts is None else mapped + rows_of(_after_zeros(self.shifts), numbers)


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


def rows_of(table: Tensor, numbers: Tensor) -> Tensor:
    """The row of each process, where table and numbers may have batch dimensions of their own.

    Args:
        table: ``(*batch, P, k)``.
        numbers: ``(*batch, n)`` of int64.

    Returns:
        ``(*batch, n, k)``.

    Example:
        >>> rows_of(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1, 0])).mT
        tensor([[2., 2., 1.]])
    """
    batch = torch.broadcast_shapes(table.shape[:-2], numbers.shape[:-1])
    numbers = numbers.expand(*batch, -1).unsqueeze(-1).expand(*batch, numbers.shape[-1], table.shape[-1])
    return table.expand(*batch, *table.shape[-2:]).gather(-2, numbers)


def _after_zeros(later: Tensor) -> Tensor:
    """Values of all processes from those of the later ones."""
    return nn.functional.pad(later, (0, 0, 1, 0))
