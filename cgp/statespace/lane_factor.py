"""A state space in lanes: its tables of rows and outputs are readings one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .filter import Array, Chain, diagonal_blocks, symmetric_roots
from .lane_filter import FilteredLanes, LaneMeans
from .lanes import Lanes, LaneSlopes, Visits
from .slopes import Slopes, summed_by_lag

__all__ = ["FilterState", "LaneFactor", "LaneTables"]


class FilterState(NamedTuple):
    """Distribution of the states after the last row.

    Attributes:
        mean: means of the states, ``(D, S)``.
        covariance: covariance of the states, ``(D, D)``.
    """

    mean: Array
    covariance: Array


class LaneTables:
    """Tables ``(N, P)`` of a chain as readings in lanes.

    Args:
        chain: recursions of N rows and P outputs.
        complete: whether all cells are readings, or only the observed ones.
        continued: whether a lag precedes the first row.
        count: number of lanes; None chooses it.
    """

    def __init__(self, chain: Chain, complete: bool, *, continued: bool = False, count: int | None = None) -> None:
        self.chain, none = chain, len(chain.tables[0])
        self.wanted = np.ones_like(chain.observed) if complete else chain.observed.copy()
        self.wanted[~self.wanted.any(-1), 0] = True  # a place for rows without observations
        self._rows, self._outputs = np.nonzero(self.wanted)
        self._fresh = np.diff(self._rows, prepend=-1) > 0
        self._steps = np.where(self._fresh, chain.steps[self._rows], none)
        if not continued:
            self._steps[0] = none
        loadings, wanted = chain.loadings[self._outputs].T, self.wanted
        visits = Visits(self._steps, loadings, chain.variances[wanted], chain.observed[wanted])
        self.lanes = Lanes(chain.tables[0], chain.tables[1], visits, count)
        self.first = diagonal_blocks(chain.stationary)

    @property
    def ends(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first and the last reading of every row, ``(N,)`` each."""
        return np.flatnonzero(self._fresh), np.flatnonzero(np.append(self._fresh[1:], True))

    def columns(self, values: Array) -> Array:
        """A table ``(N, P, S)`` by step and lane, ``(T, S, L)``."""
        return self.lanes.columns(values[self.wanted])

    def table(self, values: Array) -> Array:
        """Values by step and lane, ``(T, ..., L)``, by row and output, ``(N, P, ...)``; zero at other cells."""
        table = np.zeros((*self.wanted.shape, *values.shape[1:-1]))
        table[self.wanted] = self.lanes.rows(values)
        return table

    def slopes(self, slopes: LaneSlopes, residual: Array | None = None) -> Slopes:
        """Gradients by the tables, with those by the residuals, ``(N, P)``."""
        lags, count = len(self.chain.tables[0]), len(self.chain.loadings)
        A, Q, h = (self.lanes.rows(each) for each in (slopes.transition, slopes.noise, slopes.loadings))
        return Slopes(
            summed_by_lag(A, self._steps, lags),
            summed_by_lag(Q, self._steps, lags),
            slopes.stationary,
            summed_by_lag(h, self._outputs, count),
            np.zeros_like(self.chain.variances) if residual is None else residual,
            self.table(slopes.variances),
        )

    def prior_draws(self, count: int, generator: torch.Generator | None, start: Array | None = None) -> Array:
        """As :meth:`.Chain.prior_draws`, of the same random numbers."""
        chain, lanes = self.chain, self.lanes
        first = chain.first_draws(chain.normal(count, generator), start).reshape(lanes.D, count)
        rows = range(len(chain.steps) if start is not None else len(chain.steps) - 1)
        normal = np.stack([np.zeros((lanes.d, lanes.K, count)), *(chain.normal(count, generator) for _ in rows)])
        fresh = self._fresh & (self._steps < len(chain.tables[0]))
        order = np.where(fresh, np.cumsum(fresh), 0)
        roots = symmetric_roots(chain.tables[1])[np.where(fresh, self._steps, 0)]
        noise = np.einsum("nabk,nbks->naks", roots, normal[order]).reshape(len(order), -1)
        inputs = lanes.columns(noise).reshape(lanes.T, lanes.D, count, lanes.L)
        return self.table(lanes.readings(lanes.states(inputs, first)[1]))


class LaneFactor:
    """The covariance of the observations, factored in lanes: a :class:`.SpaceFactor`."""

    def __init__(self, tables: LaneTables, start: Array | None, keep: bool) -> None:
        self._tables, self._start = tables, start
        self._filtered = FilteredLanes(tables.lanes, tables.first if start is None else start, keep)

    @property
    def log_determinant(self) -> float:
        """That of the observations' covariance."""
        return self._filtered.known.log_determinant

    def whitened(self, values: Array, start: Array | None) -> tuple[Array, LaneMeans]:
        """Columns in lanes, with their innovations."""
        columns = self._tables.columns(values)
        first = np.zeros((self._tables.lanes.D, columns.shape[1])) if start is None else start
        return columns, self._filtered.means(columns, first)

    def quadratic(self, white: tuple[Array, LaneMeans]) -> Array:
        """Forms ``(S,)``."""
        weight = self._filtered.known.weight
        return np.asarray(np.einsum("tl,tsl->s", weight, np.square(white[1].innovations)))

    def smoothed(self, white: tuple[Array, LaneMeans]) -> tuple[Array, Array]:
        """Means and weights."""
        columns, means = white
        weights, shifts, _ = self._filtered.weights(means.innovations)
        return self._tables.table(columns - means.innovations + shifts), self._tables.table(weights)

    def last(self, white: tuple[Array, LaneMeans]) -> FilterState:
        """The states after the last row."""
        return FilterState(white[1].ends[-1], self._filtered.known.ends[-1])

    def spread(self) -> tuple[Array, Array]:
        """Variances and precisions."""
        variance, precision = self._filtered.spread()
        return self._tables.table(variance), self._tables.table(precision)

    def prior_draws(self, count: int, generator: torch.Generator | None) -> Array:
        """Draws ``(N, P, count)``."""
        return self._tables.prior_draws(count, generator, self._start)

    def slopes(self, white: tuple[Array, LaneMeans], quadratic: float, determinant: float) -> Slopes:
        """Gradients, those of the quadratic form as of a bilinear form of the weights."""
        smoothed = self._filtered.smoothed(white[0])
        one, other = self._tables.lanes.bilinear_slopes(smoothed, smoothed), self._filtered.log_determinant_slopes()
        slopes = LaneSlopes(*[determinant * b - quadratic * a for a, b in zip(one, other, strict=True)])
        return self._tables.slopes(slopes, self._tables.table(2.0 * quadratic * smoothed.columns[:, 0]))
