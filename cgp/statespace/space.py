r"""Several outputs as mixtures of independent Markov processes along one ordered input.

.. math:: y_{ip} = \sum_k \Lambda_{pk}\, [s_i^{(k)}]_0 + \epsilon_{ip}, \qquad
    s_{i+1}^{(k)} = A_i^{(k)} s_i^{(k)} + w_i^{(k)}

It is the dense Gaussian process of covariance :math:`\sum_k \Lambda_{pk}\Lambda_{rk}\,\kappa_k(t - t')`, for K
processes of d states each (:mod:`cgp.statespace.processes`); any entry of y may be missing. What follows from
observations is in time O(N D² P), D = K d: the evidence in :mod:`cgp.statespace.evidence`, everything else in
:mod:`cgp.statespace.posterior`, both on the recursions of :mod:`cgp.statespace.filter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .processes import MarkovProcess

__all__ = ["StateSpace", "state_space"]


class StateSpace(NamedTuple):
    """Independent Markov processes, mixed.

    Attributes:
        transition: A of C kinds of processes at U lags, ``(U, d, d, C)``.
        noise: Q, ``(U, d, d, C)``.
        stationary: P, ``(d, d, C)``.
        loadings: ``(P, K)``.
        kinds: the kind of each process, ``(K,)``.
        steps: index of the lag before each of N rows, ``(N,)``; the first is used if a posterior continues another.
    """

    transition: Tensor
    noise: Tensor
    stationary: Tensor
    loadings: Tensor
    kinds: Tensor
    steps: Tensor


def state_space(processes: Sequence[MarkovProcess], loadings: Sequence[Tensor], steps: Tensor) -> StateSpace:
    """Copies of some kinds of processes, mixed.

    Args:
        processes: C kinds, at the same U lags; where they differ in their number of states, zeros are added.
        loadings: loadings of each kind, ``(P, R_c)``, one column per copy.
        steps: index of the lag before each row, ``(N,)``.

    Returns:
        The state space of K = ΣR_c processes.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> state_space([process], [torch.ones(2, 3)], torch.zeros(5, dtype=torch.long)).loadings.shape
        torch.Size([2, 3])
    """
    size = max(process.stationary.shape[-1] for process in processes)
    parts = [_padded(process, size) for process in processes]
    transitions, noises, starts = zip(*parts, strict=True)
    transition, noise, stationary = _stacked(transitions, 3), _stacked(noises, 3), _stacked(starts, 2)
    copies = torch.tensor([columns.shape[-1] for columns in loadings])
    kinds = torch.arange(len(processes)).repeat_interleave(copies)
    return StateSpace(transition, noise, stationary, _joined(loadings), kinds, steps)


def _stacked(fields: Sequence[Tensor], dims: int) -> Tensor:
    """Fields of processes, which may have batch dimensions before these, side by side in a last dimension."""
    batch = torch.broadcast_shapes(*(field.shape[: field.dim() - dims] for field in fields))
    return torch.stack([field.expand(*batch, *field.shape[field.dim() - dims :]) for field in fields], dim=-1)


def _joined(loadings: Sequence[Tensor]) -> Tensor:
    batch = torch.broadcast_shapes(*(columns.shape[:-2] for columns in loadings))
    return torch.cat([columns.expand(*batch, *columns.shape[-2:]) for columns in loadings], dim=-1)


def _padded(process: MarkovProcess, size: int) -> MarkovProcess:
    """The process with additional states that are zero."""
    extra = size - process.stationary.shape[-1]
    return MarkovProcess(*(torch.nn.functional.pad(field, (0, extra, 0, extra)) for field in process))
