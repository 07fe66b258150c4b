r"""Rows that read a value, a derivative, an integral or a sum of a process, each as its value is read: in linear time.

The state s of a process, of which f is the first, is followed by its integral and its weighted sum since they were last
read. A row reads :math:`g^\top s`: e₀, the first row of the generator F, or one of the two. The state is turned there,
so that what is read stands first, and back before the next step. Every row is a row of the same state space, and a
:class:`~cgp.operators.MarkovLinearOperator` of it has them as any others: of several outputs, with gaps and noise.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import MarkovKernel, Steps
from .processes import MarkovProcess

__all__ = ["Reading", "Readings", "reading_processes"]

_SMALL = 0.1  # of the generator's norm times a lag: longer lags are doubled
_ROUNDING = 1e-9


class Reading(IntEnum):
    """What a row reads: since the last row that read an integral (a sum) or the first, the integral (the sum)."""

    VALUE = 0
    DERIVATIVE = 1
    INTEGRAL = 2
    SUM = 3


class Readings(NamedTuple):
    """Rows in order.

    Attributes:
        times: of N rows, ``(N,)``; those that read a sum or integral may repeat the time of another.
        kinds: a :class:`Reading` each, ``(N,)``.
        weights: of the value at each row in the sum that it belongs to, ``(N,)``; a mean is a sum of such weights.
    """

    times: Tensor
    kinds: Tensor
    weights: Tensor


def reading_processes(kernel: MarkovKernel, readings: Readings) -> list[MarkovProcess]:
    """The processes of a stationary kernel at some rows, of which each has a lag of its own.

    Args:
        kernel: its scales may require gradients.
        readings: N rows.

    Returns:
        Processes of N lags, whose first states are what the rows read.

    Raises:
        ValueError: if the kernel is not stationary or rows are not in order, or if a derivative is read of a process
            that has none.

    Example:
        >>> from cgp.statespace.kernels import Matern
        >>> from cgp.statespace.space import state_space
        >>> times, kinds = (
        ...     torch.tensor([0.0, 0.0, 1.0]),
        ...     torch.tensor([Reading.VALUE, Reading.DERIVATIVE, Reading.INTEGRAL]),
        ... )
        >>> processes = reading_processes(Matern(torch.tensor(1.0), 1), Readings(times, kinds, torch.zeros(3)))
        >>> space = state_space(processes, [torch.ones(1, 1)], torch.arange(3))  # of one output
        >>> from cgp.operators import MarkovLinearOperator
        >>> MarkovLinearOperator.of(space, torch.arange(3), torch.full((3,), 0.01)).to_dense()
        tensor([[1.0100, 0.0000, 0.7735],
                [0.0000, 3.0100, 0.5166],
                [0.7735, 0.5166, 0.8775]])
    """
    times = readings.times.double()
    lags = torch.cat([times.new_zeros(1), times.diff()])
    if not kernel.stationary:
        raise ValueError(f"kernel: expected a stationary one, got {type(kernel).__name__}")
    if bool((lags < 0).any()):
        raise ValueError("readings: expected times in order")
    generators = _generators(kernel, times)
    processes = kernel.processes(Steps(lags, times[0]))
    return [_with_readings(*pair, lags, readings) for pair in zip(processes, generators, strict=True)]


def _generators(kernel: MarkovKernel, times: Tensor) -> list[Tensor]:
    """F of each process, the slope of its transition at a lag of zero."""
    with torch.enable_grad():
        lag = times.new_zeros(1).requires_grad_()
        transitions = [process.transition[0] for process in kernel.processes(Steps(lag, times[0].detach()))]
        slopes = [
            torch.stack([_slope(entry, lag) for entry in each.flatten()]).reshape(each.shape) for each in transitions
        ]
    constant = not any(each.transition.requires_grad for each in kernel.processes(Steps(lag.detach(), times[0])))
    return [each.detach() if constant else each for each in slopes]


def _slope(entry: Tensor, lag: Tensor) -> Tensor:
    if not entry.requires_grad:
        return torch.zeros((), dtype=torch.float64)
    (slope,) = torch.autograd.grad(entry, lag, create_graph=True, allow_unused=True, materialize_grads=True)
    return slope[0]


def _with_readings(process: MarkovProcess, F: Tensor, lags: Tensor, readings: Readings) -> MarkovProcess:
    kinds, size, unit = readings.kinds, F.shape[-1] + 2, torch.eye(F.shape[-1] + 2, dtype=F.dtype)
    P = process.stationary.to(F)
    diffusion = -(F @ P + P @ F.mT)
    if bool((kinds == Reading.DERIVATIVE).any()) and diffusion[0, 0].item() > _ROUNDING * (F.norm() * P[0, 0]).item():
        raise ValueError("kernel: expected a process that is differentiable, as a derivative is read")
    A, Q = _with_integral(F, diffusion, lags)
    A = _padded(A, size) + torch.diag(unit[-1])
    before = torch.cat([kinds[:1], kinds[:-1]])
    kept = 1.0 - unit[-2] * (before == Reading.INTEGRAL)[:, None] - unit[-1] * (before == Reading.SUM)[:, None]
    gather = unit + readings.weights.to(F)[:, None, None] * torch.outer(unit[-1], unit[0])
    read = torch.stack([unit[0], torch.nn.functional.pad(F[0], (0, 2)), unit[-2], unit[-1]])[kinds]
    turn = _turned(read) @ _padded(gather, size + 1)
    back = _back(torch.cat([read[:1], read[:-1]]))
    transition = turn @ _padded(A * kept[:, None], size + 1) @ back
    stationary = turn[0] @ _padded(P, size + 1) @ turn[0].mT
    return MarkovProcess(transition, turn @ _padded(Q, size + 1) @ turn.mT, stationary)


def _with_integral(F: Tensor, diffusion: Tensor, lags: Tensor) -> tuple[Tensor, Tensor]:
    """A and Q ``(U, d + 1, d + 1)`` of a process and its integral over each lag (Van Loan, with doubled lags)."""
    size = len(F) + 1
    generator = _padded(F, size) + torch.eye(size, dtype=F.dtype)[-1:].mT * torch.eye(size, dtype=F.dtype)[:1]
    reach = float(generator.detach().norm() * lags.detach().max())
    doublings = max(0, math.ceil(math.log2(reach / _SMALL))) if reach > 0.0 else 0
    blocks = torch.cat([-generator, _padded(diffusion, size)], -1), torch.cat([0.0 * generator, generator.mT], -1)
    moved = torch.matrix_exp(torch.cat(blocks, -2) * (lags / 2.0**doublings)[:, None, None])
    A = moved[:, size:, size:].mT
    Q = A @ moved[:, :size, size:]
    for _ in range(doublings):
        A, Q = A @ A, Q + A @ Q @ A.mT
    return A, 0.5 * (Q + Q.mT)


def _turned(read: Tensor) -> Tensor:
    """The turn ``(N, D + 1, D + 1)`` that puts what is read ``(N, D)`` first, and the first state last."""
    size = read.shape[-1] + 1
    unit = torch.eye(size, dtype=read.dtype)
    first = torch.nn.functional.pad(read, (0, 1)) + unit[-1]  # the last state, of which nothing is read, is zero
    return torch.cat([first[:, None], unit[1:-1].expand(len(read), -1, -1), unit[:1].expand(len(read), 1, -1)], 1)


def _back(read: Tensor) -> Tensor:
    """The turn back."""
    size = read.shape[-1] + 1
    unit = torch.eye(size, dtype=read.dtype)
    last = unit[0] - torch.nn.functional.pad(read[:, 1:], (1, 1)) - read[:, :1] * unit[-1]
    return torch.cat([unit[-1:].expand(len(read), 1, -1), unit[1:-1].expand(len(read), -1, -1), last[:, None]], 1)


def _padded(blocks: Tensor, size: int) -> Tensor:
    extra = size - blocks.shape[-1]
    return torch.nn.functional.pad(blocks, (0, extra, 0, extra))
