"""A state space with its noise, factored once: row by row, or in lanes where there are few states."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from .filter import Array, Chain, Factor
from .lane_factor import FilterState, LaneFactor, LaneTables
from .slopes import Slopes, evidence_slopes

__all__ = ["FilterState", "RowFactor", "SpaceFactor", "factor_of", "lanes_are_faster", "takes_lanes"]

_SMALLEST_NOISE = 1e-9  # in units of the prior variance: below, a reading may say all about the state before a lane
_MOST_STATES = 32
_WORK = 2500  # squares of states that lanes take in the time of a row
_MOST_ENTRIES = 2**27  # that are kept of all states


class SpaceFactor(Protocol):
    """What follows from a factor; columns of readings are ``(N, P, S)``, zero where nothing is observed."""

    @property
    def log_determinant(self) -> float:
        """That of the observations' covariance."""

    def whitened(self, values: Array, start: Array | None) -> Any:
        """The columns as the other methods take them, given the means of the states before, ``(D, S)``."""

    def quadratic(self, white: Any) -> Array:
        r""":math:`y^\top\\Sigma^{-1}y` of every column, ``(S,)``."""

    def smoothed(self, white: Any) -> tuple[Array, Array]:
        """Means of all cells given the columns, and the columns' weights, ``(N, P, S)`` each."""

    def last(self, white: Any) -> FilterState:
        """The states after the last row given the columns."""

    def spread(self) -> tuple[Array, Array]:
        """Variances of all cells without noise, and the diagonal of the observations' inverse covariance."""

    def prior_draws(self, count: int, generator: torch.Generator | None) -> Array:
        """Draws of all cells from the prior, ``(N, P, count)``."""

    def slopes(self, white: Any, quadratic: float, determinant: float) -> Slopes:
        r"""Gradients of :math:`a\\,y^\top\\Sigma^{-1}y + b\\log|\\Sigma|`; of a factor that kept its covariances."""


def factor_of(chain: Chain, start: Array | None = None, *, complete: bool = False, keep: bool = False) -> SpaceFactor:
    """The covariance of the observations, factored.

    Args:
        chain: recursions of N rows and P outputs.
        start: covariance of the states before the first row, ``(D, D)``; None is the stationary distribution.
        complete: whether means and variances of all cells are asked for, or only of observed ones.
        keep: whether gradients will be asked for.

    Returns:
        In lanes where they are exact and faster.

    Raises:
        NotPositiveDefiniteError: if it cannot be factored.
    """
    if lanes_are_faster(chain, complete, keep):
        return LaneFactor(LaneTables(chain, complete, continued=start is not None), start, keep)
    return RowFactor(chain, start, keep)


def lanes_are_faster(chain: Chain, complete: bool, keep: bool) -> bool:
    """Whether lanes are exact to rounding, and take less time than the rows one by one.

    Args:
        chain: recursions of N rows and P outputs.
        complete: whether all cells are readings, or only observed ones.
        keep: whether the covariances of all states are kept, for gradients.

    Returns:
        If something is observed.
    """
    observed, rows = chain.observed, len(chain.observed)
    readings = observed.size if complete else max(int(observed.sum()), rows)
    if not observed.any() or not takes_lanes(rows, readings, chain.size, keep):
        return False
    prior = float((np.square(chain.loadings) @ chain.stationary[0, 0]).max())
    return bool(chain.variances[observed].min() > _SMALLEST_NOISE * prior)


def takes_lanes(rows: int, readings: int, states: int, keep: bool) -> bool:
    """Whether so many readings of so many states are taken in lanes, if their noise allows it.

    Args:
        rows: N.
        readings: number of observations, at least N.
        states: D.
        keep: whether the covariances of all states are kept, for gradients.

    Returns:
        Else the rows are taken one by one.
    """
    fits = readings * states * (states if keep else 8) <= _MOST_ENTRIES
    return fits and states <= _MOST_STATES and readings * states**2 < _WORK * rows


class RowFactor:
    """Rows one by one."""

    def __init__(self, chain: Chain, start: Array | None, keep: bool) -> None:
        self._chain, self._start, self._factors = chain, start, chain.filtered(start, keep=keep)

    @property
    def rows(self) -> list[Factor]:
        """The results of the filter."""
        return self._factors

    @property
    def log_determinant(self) -> float:
        """That of the observations' covariance."""
        return 2.0 * sum(float(np.log(factor.root.diagonal()).sum()) for factor in self._factors)

    def whitened(self, values: Array, start: Array | None) -> tuple[list[Array], list[Array], Array]:
        """Predicted outputs and whitened innovations of every row, and means of the states after the last."""
        return self._chain.whitened(self._factors, values, start)

    def quadratic(self, white: tuple[list[Array], list[Array], Array]) -> Array:
        """Forms ``(S,)``."""
        return np.asarray(sum(np.square(each).sum(0) for each in white[1]))

    def smoothed(self, white: tuple[list[Array], list[Array], Array]) -> tuple[Array, Array]:
        """Means and weights."""
        return self._chain.smoothed(self._factors, *white[:2])

    def last(self, white: tuple[list[Array], list[Array], Array]) -> FilterState:
        """The states after the last row."""
        return FilterState(white[2], self._factors[-1].filtered)

    def spread(self) -> tuple[Array, Array]:
        """Variances and precisions."""
        return self._chain.spread(self._factors)

    def prior_draws(self, count: int, generator: torch.Generator | None) -> Array:
        """Draws ``(N, P, count)``."""
        return self._chain.prior_draws(count, generator, self._start)

    def slopes(self, white: tuple[list[Array], list[Array], Array], quadratic: float, determinant: float) -> Slopes:
        """Gradients, row by row."""
        return evidence_slopes(self._chain, self._factors, white[1], quadratic, determinant)
