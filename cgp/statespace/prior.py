"""A state space before any observation: variances and draws of its cells."""

from __future__ import annotations

import torch
from torch import Tensor

from .filter import Chain
from .lane_factor import LaneTables
from .space import StateSpace

__all__ = ["prior_draws", "prior_variances"]

_MOST_STATES = 128  # of a chain that is drawn in lanes


def prior_variances(space: StateSpace) -> Tensor:
    """Variances of all cells without noise, ``(N, P)``, with gradients."""
    covariances = _state_covariances(space)[:, 0, 0, space.kinds]  # (N, K)
    return covariances @ space.loadings.square().mT.to(covariances)


def _state_covariances(space: StateSpace) -> Tensor:
    """Covariances of the processes' states at all rows, ``(N, d, d, C)``, in doubling steps if they change."""
    stationary, count = space.stationary, len(space.steps)
    A, Q = (field.movedim(-1, 1) for field in (space.transition, space.noise))  # (U, C, d, d)
    P = stationary.movedim(-1, 0)
    gap = (A @ P @ A.mT + Q - P).detach().abs().amax()
    if gap <= 1e-6 * P.detach().abs().amax():
        return stationary.expand(count, *stationary.shape)
    moves = torch.cat([torch.zeros_like(A[:1]), A[space.steps[1:]]])
    noises = torch.cat([P[None], Q[space.steps[1:]]])
    distance = 1
    while distance < count:
        before, after = slice(None, -distance), slice(distance, None)
        joined = noises[after] + moves[after] @ noises[before] @ moves[after].mT
        noises = torch.cat([noises[:distance], joined])
        moves = torch.cat([moves[:distance], moves[after] @ moves[before]])
        distance *= 2
    return noises.movedim(1, -1)


def prior_draws(space: StateSpace, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Joint draws of all cells without noise.

    Args:
        space: state space of N rows and P outputs.
        count: number of draws.
        generator: source of randomness; None is torch's global generator.

    Returns:
        ``(N, P, count)``, of float64 and without gradients.
    """
    chain = Chain(space)
    if chain.size > _MOST_STATES:
        return torch.as_tensor(chain.prior_draws(count, generator))
    return torch.as_tensor(LaneTables(chain, complete=True).prior_draws(count, generator))
