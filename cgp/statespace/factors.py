"""A state space with its noise, factored once: row by row, or in lanes where there are few states."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from .filter import Array, Chain, diagonal_blocks
from .lanes import LaneFilter, LaneMeans, Lanes, LaneSlopes, Visits
from .slopes import Slopes, evidence_slopes, summed_by_lag

__all__ = ["FilterState", "SpaceFactor", "factor_of"]

_SMALLEST_NOISE = 1e-9  # in units of the prior variance: below, a reading may say all about the state before a lane
_MOST_STATES = 32
_WORK = 5000  # squares of states that lanes take in the time of a row
_MOST_ENTRIES = 2**26  # of the covariances of all states


class FilterState(NamedTuple):
    """Distribution of the states after the last row.

    Attributes:
        mean: means of the states, ``(D, S)``.
        covariance: covariance of the states, ``(D, D)``.
    """

    mean: Array
    covariance: Array


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

    def slopes(self, white: Any, quadratic: float, determinant: float) -> Slopes:
        r"""Gradients of :math:`a\\,y^\top\\Sigma^{-1}y + b\\log|\\Sigma|`; of a factor that kept its covariances."""


def factor_of(chain: Chain, start: Array | None = None, *, complete: bool = False, keep: bool = False) -> SpaceFactor:
    """The covariance of the observations, factored.

    Args:
        chain: recursions of N rows and P outputs.
        start: covariance of the states before the first row, ``(D, D)``; None is the stationary distribution.
        complete: whether means and variances of all cells are asked for, or only of observed ones.
        keep: whether gradients will be asked for.

    Raises:
        NotPositiveDefiniteError: if it cannot be factored.
    """
    if _lanes_are_faster(chain, complete):
        return _LaneFactor(chain, start, complete, keep)
    return _RowFactor(chain, start, keep)


def _lanes_are_faster(chain: Chain, complete: bool) -> bool:
    """Whether lanes are exact to rounding, and take less time than the rows one by one."""
    observed, rows = chain.observed, len(chain.observed)
    visits = observed.size if complete else max(int(observed.sum()), rows)
    if chain.size > _MOST_STATES or visits * chain.size**2 > _MOST_ENTRIES or not observed.any():
        return False
    prior = float((np.square(chain.loadings) @ chain.stationary[0, 0]).max())
    if chain.variances[observed].min() <= _SMALLEST_NOISE * prior:
        return False
    return bool(visits * chain.size**2 < _WORK * rows)


class _RowFactor:
    """Rows one by one."""

    def __init__(self, chain: Chain, start: Array | None, keep: bool) -> None:
        self._chain, self._factors = chain, chain.filtered(start, keep=keep)

    @property
    def log_determinant(self) -> float:
        return 2.0 * sum(float(np.log(factor.root.diagonal()).sum()) for factor in self._factors)

    def whitened(self, values: Array, start: Array | None) -> tuple[list[Array], list[Array], Array]:
        return self._chain.whitened(self._factors, values, start)

    def quadratic(self, white: tuple[list[Array], list[Array], Array]) -> Array:
        return np.asarray(sum(np.square(each).sum(0) for each in white[1]))

    def smoothed(self, white: tuple[list[Array], list[Array], Array]) -> tuple[Array, Array]:
        return self._chain.smoothed(self._factors, *white[:2])

    def last(self, white: tuple[list[Array], list[Array], Array]) -> FilterState:
        return FilterState(white[2], self._factors[-1].filtered)

    def spread(self) -> tuple[Array, Array]:
        return self._chain.spread(self._factors)

    def slopes(self, white: tuple[list[Array], list[Array], Array], quadratic: float, determinant: float) -> Slopes:
        return evidence_slopes(self._chain, self._factors, white[1], quadratic, determinant)


class _LaneFactor:
    """Readings one by one, in lanes."""

    def __init__(self, chain: Chain, start: Array | None, complete: bool, keep: bool) -> None:
        self._chain = chain
        observed, none = chain.observed, len(chain.tables[0])
        wanted = np.ones_like(observed) if complete else observed.copy()
        wanted[~wanted.any(-1), 0] = True  # a place for rows without observations
        self._wanted = wanted
        rows, self._outputs = np.nonzero(wanted)
        self._steps = np.where(np.diff(rows, prepend=-1) > 0, chain.steps[rows], none)
        if start is None:
            self._steps[0] = none
        visits = Visits(self._steps, chain.loadings[self._outputs].T, chain.variances[wanted], observed[wanted])
        self._lanes = Lanes(chain.tables[0], chain.tables[1], visits)
        first = diagonal_blocks(chain.stationary) if start is None else start
        self._known: LaneFilter = self._lanes.filtered(first, keep)

    @property
    def log_determinant(self) -> float:
        return self._known.log_determinant

    def whitened(self, values: Array, start: Array | None) -> tuple[Array, LaneMeans]:
        columns = self._lanes.columns(values[self._wanted])
        first = np.zeros((self._chain.size, columns.shape[1])) if start is None else start
        return columns, self._lanes.means(self._known, columns, first)

    def quadratic(self, white: tuple[Array, LaneMeans]) -> Array:
        return np.asarray(np.einsum("tl,tsl->s", self._known.weight, np.square(white[1].innovations)))

    def smoothed(self, white: tuple[Array, LaneMeans]) -> tuple[Array, Array]:
        columns, means = white
        weights, shifts, _ = self._lanes.weights(self._known, means.innovations)
        return self._table(columns - means.innovations + shifts), self._table(weights)

    def last(self, white: tuple[Array, LaneMeans]) -> FilterState:
        return FilterState(white[1].ends[-1], self._known.ends[-1])

    def spread(self) -> tuple[Array, Array]:
        variance, precision = self._lanes.spread(self._known)
        return self._table(variance), self._table(precision)

    def slopes(self, white: tuple[Array, LaneMeans], quadratic: float, determinant: float) -> Slopes:
        smoothed = self._lanes.smoothed(self._known, white[0])
        one, other = self._lanes.bilinear_slopes(smoothed, smoothed), self._lanes.log_determinant_slopes(self._known)
        slopes = LaneSlopes(*(determinant * b - quadratic * a for a, b in zip(one, other, strict=True)))
        lags, count = len(self._chain.tables[0]), len(self._chain.loadings)
        A, Q, h = (self._lanes.rows(each) for each in (slopes.transition, slopes.noise, slopes.loadings))
        return Slopes(
            summed_by_lag(A, self._steps, lags),
            summed_by_lag(Q, self._steps, lags),
            slopes.stationary,
            summed_by_lag(h, self._outputs, count),
            self._table(2.0 * quadratic * smoothed.columns[:, 0]),
            self._table(slopes.variances),
        )

    def _table(self, values: Array) -> Array:
        """Values by step and lane, ``(T, ..., L)``, by row and output, ``(N, P, ...)``; zero at other cells."""
        table = np.zeros((*self._wanted.shape, *values.shape[1:-1]))
        table[self._wanted] = self._lanes.rows(values)
        return table
