"""Schedules of the regulariser's and the divergences' weights, as plain functions of the step."""

from __future__ import annotations

import math

__all__ = ["cosine", "linear", "warm_up"]


def linear(step: int, num_steps: int, start: float = 0.0, end: float = 1.0) -> float:
    r"""Linear from start to end, then constant: CGPT's annealing of alpha (0 → 1 or 0.5 → 1), SGPA's of the KL.

    .. math:: a + (b - a)\min(t/T, 1)

    Args:
        step: t, from 0.
        num_steps: T; 0 gives ``end`` at once.
        start: a.
        end: b.

    Returns:
        The weight at this step.

    Raises:
        ValueError: if the step or the number of steps is negative.

    Example:
        >>> [linear(t, 4, 0.5, 1.0) for t in (0, 2, 4, 9)]
        [0.5, 0.75, 1.0, 1.0]
    """
    return start + (end - start) * _progress(step, num_steps)


def cosine(step: int, num_steps: int, start: float = 1.0, end: float = 0.0) -> float:
    r"""Half a cosine from start to end, then constant.

    .. math:: b + (a - b)\,\tfrac12\big(1 + \cos(\pi \min(t/T, 1))\big)

    Args:
        step: t, from 0.
        num_steps: T; 0 gives ``end`` at once.
        start: a.
        end: b.

    Returns:
        The weight at this step.

    Raises:
        ValueError: if the step or the number of steps is negative.

    Example:
        >>> [round(cosine(t, 4), 3) for t in (0, 2, 4)]
        [1.0, 0.5, 0.0]
    """
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * _progress(step, num_steps)))


def warm_up(step: int, num_steps: int, weight: float = 1.0) -> float:
    """Nothing for a number of steps, then the weight: a mean-only warm-up.

    Args:
        step: from 0.
        num_steps: how many steps have weight 0.
        weight: the weight from then on.

    Returns:
        The weight at this step.

    Raises:
        ValueError: if the step or the number of steps is negative.

    Example:
        >>> [warm_up(t, 2) for t in range(4)]
        [0.0, 0.0, 1.0, 1.0]
    """
    _progress(step, num_steps)
    return weight if step >= num_steps else 0.0


def _progress(step: int, num_steps: int) -> float:
    if step < 0 or num_steps < 0:
        raise ValueError(f"step, num_steps: expected non-negative numbers, got {step} and {num_steps}")
    return 1.0 if step >= num_steps else step / num_steps
