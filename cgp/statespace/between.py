r"""Outputs at inputs between the rows of a state space, from what a filter and a smoother keep of the rows.

Of the row before an input the filter keeps the state's mean m and covariance C; of the row after it the smoother keeps
what this and all later rows say about its state, r and N. With the step A to the input and A' on to the row after it,

.. math:: \hat P = ACA^\top + Q, \qquad \mu = H(Am + \hat P A'^\top r), \qquad
    v = H(\hat P - \hat P A'^\top N A' \hat P)H^\top

in time that does not grow with the rows but by the search among them. Covariances of inputs need the steps of the rows
between them: those of whole lanes are kept (:mod:`cgp.statespace.lane_filter`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .factors import FilterState, lanes_are_faster
from .filter import Array, Chain, diagonal_blocks
from .lane_factor import LaneTables
from .lane_filter import FilteredLanes
from .lanes import Lanes, Visits

__all__ = ["MOST_ENTRIES", "Between", "KeptRows", "Requested", "kept_rows"]

MOST_ENTRIES = 2**24  # of the covariances of states that are kept, or used at once
_TO, _ON, _PREVIOUS = range(3)  # steps to an input, on to the row after it, and to it from the input before it


class Requested(NamedTuple):
    """Outputs at inputs, ``(q,)`` each; the inputs in increasing order."""

    inputs: Array
    outputs: NDArray[np.int64]


class KeptRows(NamedTuple):
    """What predictions need of N rows, by step and lane, and of the state before them.

    Attributes:
        times: inputs of the state before the rows, if it is known, and of the rows, ``(N + 1,)``.
        first: the first reading of each row, ``(N,)``.
        last: the last, ``(N,)``.
        before: the state before the rows; None is that of the prior.
        filtered: the filter, with its covariances C.
        mean: m, ``(T, D, L)``.
        adjoint: r, ``(T, D, L)``.
        information: N, ``(T, D, D, L)``.
    """

    times: Array
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    before: FilterState | None
    filtered: FilteredLanes
    mean: Array
    adjoint: Array
    information: Array

    def places(self, inputs: Array) -> NDArray[np.intp]:
        """The number of rows up to each input."""
        return np.searchsorted(self.times[1:], inputs, side="right")

    def end(self) -> FilterState:
        """The states after the last row."""
        covariances = self.filtered.known.filtered
        mean, covariance = (self.of_readings(each, self.last[-1:]) for each in (self.mean, covariances))
        return FilterState(mean, covariance[..., 0])

    def of_readings(self, values: Array, readings: NDArray[np.intp]) -> Array:
        """Values by step and lane of some readings, ``(..., q)``."""
        lane, step = np.divmod(readings, self.filtered.lanes.T)
        return np.moveaxis(values[step, ..., lane], 0, -1)

    def lags(self, inputs: Array, start: float) -> Array:
        """The lags to each input, on to the row after it, and from the input before it.

        Args:
            inputs: in increasing order, ``(q,)``.
            start: where the prior starts, at the latest at the first of all.

        Returns:
            ``(q, 3)``.
        """
        times = np.append(start if self.before is None else self.times[0], self.times[1:])
        places = self.places(inputs)
        after = np.where(places < len(times) - 1, np.append(times, times[-1])[places + 1] - inputs, 0.0)
        return np.stack([inputs - times[places], after, np.diff(inputs, prepend=inputs[0])], axis=-1)


def kept_rows(
    chain: Chain, residual: Array, times: Array, before: tuple[float, FilterState] | None = None
) -> KeptRows | None:
    """What predictions need, in time linear in the rows.

    Args:
        chain: recursions of N rows and P outputs, with what is observed.
        residual: observations minus their mean, zero where nothing is observed, ``(N, P)``.
        times: inputs of the rows, ``(N,)``.
        before: input and distribution of the states before the first row; None is the prior's.

    Returns:
        None where rows are taken one by one, or too much would be kept.
    """
    if chain.observed.size * chain.size**2 > MOST_ENTRIES or not lanes_are_faster(chain, complete=False, keep=True):
        return None
    tables = LaneTables(chain, complete=False, continued=before is not None)
    start, state = (times[0], None) if before is None else before
    filtered = FilteredLanes(tables.lanes, tables.first if state is None else state.covariance, keep=True)
    mean = np.zeros((chain.size, 1)) if state is None else state.mean
    means = filtered.means(tables.columns(residual[..., None]), mean, keep=True)
    adjoint = filtered.weights(means.innovations, keep=True)[2]
    kept = means.filtered[:, :, 0], adjoint[:, :, 0], filtered.information()
    return KeptRows(np.append(start, times), *tables.ends, state, filtered, *kept)


class Between:
    """The posterior of some outputs.

    Args:
        kept: what is kept of the rows.
        steps: recursions over the lags of :meth:`KeptRows.lags`, flattened, from where the prior starts.
        requested: not before the first known state.
    """

    def __init__(self, kept: KeptRows, steps: Chain, requested: Requested) -> None:
        count, self._K = len(requested.inputs), steps.count
        self._kept, self._places = kept, kept.places(requested.inputs)
        lags, weights = steps.steps, steps.loadings[requested.outputs.repeat(3)].T
        visits = Visits(lags, weights, np.ones(len(lags)), np.zeros(len(lags), dtype=bool))
        self._lanes = Lanes(steps.tables[0], steps.tables[1], visits, count)  # an input is a lane
        mean, covariance = self._states_before(diagonal_blocks(steps.stationary))
        adjoint, information = self._rows_after()
        self._mean = self._lanes.forward(_TO, mean[:, None])[:, 0]
        self._covariance = self._lanes.spread(_TO, covariance)
        self._adjoint = self._lanes.adjoint(_ON, adjoint[:, None])[:, 0]
        self._information = self._lanes.precise(_ON, information)
        self._loadings = self._lanes.h[_TO]
        self._gain = np.einsum("ikl,kl->il", self._covariance[:, : self._K], self._loadings)
        self._known = np.einsum("ijl,jl->il", self._information, self._gain)

    def _states_before(self, prior: Array) -> tuple[Array, Array]:
        kept, early = self._kept, self._places == 0
        rows = kept.last[np.maximum(self._places - 1, 0)]
        mean, covariance = (kept.of_readings(each, rows) for each in (kept.mean, kept.filtered.known.filtered))
        before = FilterState(np.zeros((len(prior), 1)), prior) if kept.before is None else kept.before
        return np.where(early, before.mean, mean), np.where(early, before.covariance[..., None], covariance)

    def _rows_after(self) -> tuple[Array, Array]:
        kept, late = self._kept, self._places == len(self._kept.first)
        rows = kept.first[np.minimum(self._places, len(kept.first) - 1)]
        adjoint, information = (kept.of_readings(each, rows) for each in (kept.adjoint, kept.information))
        return np.where(late, 0.0, adjoint), np.where(late, 0.0, information)

    def mean(self) -> Array:
        """``(q,)``."""
        own = np.einsum("kl,kl->l", self._loadings, self._mean[: self._K])
        return own + np.einsum("il,il->l", self._gain, self._adjoint)

    def variance(self) -> Array:
        """Without noise, ``(q,)``."""
        prior = np.einsum("kl,kl->l", self._loadings, self._gain[: self._K])
        return (prior - np.einsum("il,il->l", self._gain, self._known)).clip(min=0.0)

    def covariance(self) -> Array:
        """Without noise, ``(q, q)``."""
        moves, count = self._moves(), len(self._places)
        X, covariance = np.zeros((self._lanes.D, count)), np.zeros((count, count))
        for each in range(count):
            X[:, :each] = moves[..., each] @ X[:, :each]
            X[:, each] = self._gain[:, each]
            row = self._loadings[:, each] @ X[: self._K, : each + 1] - self._known[:, each] @ X[:, : each + 1]
            covariance[each, : each + 1] = covariance[: each + 1, each] = row
        return covariance

    def _moves(self) -> Array:
        """How the state at each input changes with that at the input before it, ``(D, D, q)``."""
        D, count = self._lanes.D, len(self._places)
        unit = np.zeros((D, D, count)) + np.eye(D)[..., None]
        same = np.diff(self._places, prepend=self._places[0]) == 0
        on = np.roll(self._lanes.forward(_ON, unit), 1, axis=-1)  # from the input before to its next row
        pairs = np.flatnonzero(~same)
        moved = on.copy()
        moved[..., pairs] = _through(self._kept, on[..., pairs], self._places[pairs - 1], self._places[pairs] - 1)
        return np.where(same, self._lanes.forward(_PREVIOUS, unit), self._lanes.forward(_TO, moved))


def _through(kept: KeptRows, moves: Array, first: NDArray[np.intp], last: NDArray[np.intp]) -> Array:
    """Moves to the state predicted at each first row, carried on to that after each last row, ``(D, D, S)``."""
    T = kept.filtered.lanes.T
    (begin, since), (end, until) = np.divmod(kept.first[first], T), np.divmod(kept.last[last], T)
    one = begin == end
    _carry(kept.filtered, moves, begin, since, np.where(one, until, T - 1), moved=True)
    for pair in np.flatnonzero(~one):
        for lane in range(begin[pair] + 1, end[pair]):
            moves[..., pair] = kept.filtered.known.move[lane] @ moves[..., pair]
    _carry(kept.filtered, moves, end, np.zeros_like(until), np.where(one, -1, until), moved=False)
    return moves


def _carry(
    filtered: FilteredLanes,
    moves: Array,
    lane: NDArray[np.intp],
    since: NDArray[np.intp],
    until: NDArray[np.intp],
    *,
    moved: bool,
) -> None:
    """Carry moves ``(D, D, S)`` through steps of a lane each; ``moved`` says that those of the first are taken."""
    lanes, known = filtered.lanes, filtered.known
    for t in range(since.min(initial=lanes.T), until.max(initial=-1) + 1):
        taken = np.flatnonzero((since <= t) & (t <= until))
        own, M = lane[taken], moves[..., taken]
        step = np.einsum("abkl,bksl->aksl", lanes.A[t][..., own], M.reshape(lanes.d, lanes.K, *M.shape[1:]))
        M = np.where(moved & (since[taken] == t), M, step.reshape(M.shape))
        read = np.einsum("kl,ksl->sl", lanes.h[t][:, own], M[: lanes.K])
        moves[..., taken] = M - (known.gain[t] * known.weight[t])[:, None, own] * read
