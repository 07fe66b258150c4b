r"""Steps of a state space side by side: time is cut into stretches, the lanes, that take their steps together.

For few states and many rows: :math:`\sqrt n` steps of arrays over all lanes take the place of n steps. What is linear
goes through the lanes twice, the first time from zero: then a lane's end is known from its start, and the starts from
each other. An associative scan can replace the loop over lanes (:func:`carried`).

Source: Särkkä & García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Adjoint", "LaneSlopes", "Lanes", "Visits", "carried", "lanes_last"]

Array = NDArray[np.float64]
_LANES = 2.0  # lanes per step: a step costs more than the start of a lane
_ENTRIES = 2**16  # of a step's matrices, which should stay in a processor's cache


class Visits(NamedTuple):
    """Readings in order; those of a row follow each other.

    Attributes:
        step: index of the lag before each of n, or the number of lags where there is none, ``(n,)``.
        loadings: weights of the K processes in each, ``(K, n)``.
        variances: noise of each, ``(n,)``.
        observed: whether its value is known, ``(n,)``.
    """

    step: NDArray[np.int64]
    loadings: Array
    variances: Array
    observed: NDArray[np.bool_]


class Adjoint(NamedTuple):
    r"""Columns of readings b, what they sum up to back in time, and the states that their covariances make of it.

    .. math:: r_i = A_{i+1}^\top r_{i+1} + h_i b_i, \qquad s_i = A_i s_{i-1} + Q_i r_i

    Attributes:
        columns: ``(T, S, L)``.
        adjoint: r, ``(T, D, S, L)``.
        first: r before the first step, ``(D, S)``.
        before: states before the steps, ``(T, D, S, L)``.
        after: states after the steps, ``(T, D, S, L)``.
    """

    columns: Array
    adjoint: Array
    first: Array
    before: Array
    after: Array


class LaneSlopes(NamedTuple):
    """Gradients by what each step has, and by the covariance of the first states.

    Attributes:
        transition: ``(T, d, d, K, L)``.
        noise: ``(T, d, d, K, L)``.
        stationary: ``(d, d, K)``.
        loadings: ``(T, K, L)``.
        variances: ``(T, L)``.
    """

    transition: Array
    noise: Array
    stationary: Array
    loadings: Array
    variances: Array


class Lanes:
    """Steps of a state space in lanes. States are ordered by derivative, then by process: ``(d, K)``.

    Args:
        transition: A at U lags, ``(U, d, d, K)``.
        noise: Q, ``(U, d, d, K)``.
        visits: n readings in order.
        count: number of lanes; None chooses it.
    """

    def __init__(self, transition: Array, noise: Array, visits: Visits, count: int | None = None) -> None:
        n, (U, d, _, K) = len(visits.step), transition.shape
        most = max(64, _ENTRIES // (d * K) ** 2)
        lanes = max(1, min(round((_LANES * n) ** 0.5), most)) if count is None else count
        self.T = -(-n // lanes)
        self.n, self.d, self.K, self.D, self.L = n, d, K, d * K, -(-n // self.T)
        self.steps = self._in_lanes(visits.step, U)
        still = np.zeros((1, d, d, K))
        tables = np.concatenate([transition, still + np.eye(d)[..., None]]), np.concatenate([noise, still])
        self.A, self.Q = (np.ascontiguousarray(np.moveaxis(table[self.steps], 1, -1)) for table in tables)
        self.h = np.ascontiguousarray(np.moveaxis(self._in_lanes(visits.loadings, 0.0), 0, 1))  # (T, K, L)
        self.seen = self._in_lanes(visits.observed, False)
        self.variances = self._in_lanes(visits.variances, 1.0)

    def _in_lanes(self, values: NDArray[Any], fill: float) -> NDArray[Any]:
        """Values of the readings, ``(..., n)``, by step and lane: ``(..., T, L)``."""
        padded = np.full((*values.shape[:-1], self.T * self.L), fill, dtype=values.dtype)
        padded[..., : self.n] = values
        return np.ascontiguousarray(padded.reshape(*values.shape[:-1], self.L, self.T).swapaxes(-1, -2))

    def columns(self, values: Array) -> Array:
        """Columns of values of the readings, ``(n, S)``, by step and lane: ``(T, S, L)``."""
        return np.ascontiguousarray(np.moveaxis(self._in_lanes(values.T, 0.0), 0, 1))

    def rows(self, values: Array) -> Array:
        """Values by step and lane, ``(T, ..., L)``, in the order of the readings: ``(n, ...)``."""
        ordered = np.moveaxis(values, -1, 0)  # (L, T, ...)
        return ordered.reshape(-1, *ordered.shape[2:])[: self.n]

    def product(self, columns: Array, start: Array) -> Adjoint:
        """The states whose readings are the covariance, without noise, times columns ``(T, S, L)``.

        Args:
            columns: ``(T, S, L)``.
            start: covariance of the state before the first step, ``(D, D)``.

        Returns:
            With the states after the steps.
        """
        adjoint, first = self.summed_back(self.inputs(columns))
        before, after = self.states(self.noisy(adjoint), start @ first)
        return Adjoint(columns, adjoint, first, before, after)

    def inputs(self, columns: Array) -> Array:
        """States ``(T, D, S, L)`` that readings ``(T, S, L)`` weigh, as :meth:`readings` transposed."""
        inputs = np.zeros((self.T, self.D, *columns.shape[1:]))
        inputs[:, : self.K] = self.h[:, :, None] * columns[:, None]
        return inputs

    def summed_back(self, inputs: Array) -> tuple[Array, Array]:
        """R of all steps from what they add, and r before the first."""
        r, sums = np.zeros(inputs.shape[1:]), np.empty_like(inputs)
        for last in (False, True):
            for t in range(self.T - 1, -1, -1):
                sums[t] = r = r + inputs[t]
                r = self.adjoint(t, r)
            if last or self.L == 1:
                break
            begins = np.moveaxis(r, -1, 0)[::-1]
            r = lanes_last(carried(self.moves[::-1].swapaxes(-1, -2), begins, np.zeros(begins.shape[1:]))[::-1])
        return sums, r[..., 0]

    def states(self, inputs: Array, start: Array) -> tuple[Array, Array]:
        r"""States :math:`s_i = A_i s_{i-1} + w_i` of columns w ``(T, D, S, L)``, from that before, ``(D, S)``.

        Returns:
            The states before and after each step, ``(T, D, S, L)`` each.
        """
        starts = start[None]
        if self.L > 1:
            ends = self._summed(inputs, np.zeros((self.L, *start.shape)))[1][-1]
            starts = carried(self.moves, np.moveaxis(ends, -1, 0), start)
        return self._summed(inputs, starts)

    def _summed(self, inputs: Array, starts: Array) -> tuple[Array, Array]:
        s, before, after = lanes_last(starts), np.empty_like(inputs), np.empty_like(inputs)
        for t in range(self.T):
            before[t] = s
            after[t] = s = self.forward(t, s) + inputs[t]
        return before, after

    @cached_property
    def moves(self) -> Array:
        """Transitions over whole lanes, ``(L, D, D)``."""
        move = np.zeros((self.D, self.D, self.L)) + np.eye(self.D)[..., None]
        for t in range(self.T):
            move = self.forward(t, move)
        return np.moveaxis(move, -1, 0)

    def bilinear_slopes(self, left: Adjoint, right: Adjoint) -> LaneSlopes:
        r"""Gradients of :math:`\operatorname{tr} b^\top (K + \Sigma) c` for columns b and c, K the covariance."""
        A = self.paired_columns(left.adjoint, right.before) + self.paired_columns(right.adjoint, left.before)
        Q = self.paired_columns(left.adjoint, right.adjoint)
        P = np.einsum("aks,cks->ack", *(each.first.reshape(self.d, self.K, -1) for each in (left, right)))
        h = np.einsum("tsl,tksl->tkl", left.columns, right.after[:, : self.K])
        h += np.einsum("tsl,tksl->tkl", right.columns, left.after[:, : self.K])
        symmetric = (0.5 * (each + np.swapaxes(each, axis, axis + 1)) for each, axis in ((Q, 1), (P, 0)))
        Q, P = symmetric
        return LaneSlopes(A, Q, P, h, np.einsum("tsl,tsl->tl", left.columns, right.columns))

    def paired_columns(self, left: Array, right: Array) -> Array:
        """The blocks of single processes in products of columns, summed over columns: ``(T, d, d, K, L)``."""
        parts = (each.reshape(self.T, self.d, self.K, *each.shape[2:]) for each in (left, right))
        return np.einsum("taksl,tcksl->tackl", *parts)

    def noisy(self, columns: Array) -> Array:
        """The noise Q of every step times columns of states, ``(T, D, S, L)``."""
        parts = columns.reshape(self.T, self.d, self.K, *columns.shape[2:])
        return np.einsum("tabkl,tbksl->taksl", self.Q, parts).reshape(columns.shape)

    def readings(self, states: Array) -> Array:
        """The readings ``(T, S, L)`` of states ``(T, D, S, L)``."""
        return np.einsum("tkl,tksl->tsl", self.h, states[:, : self.K])

    def forward(self, t: int, x: Array) -> Array:
        """Columns of states ``(D, S, L)`` after the lag before a step."""
        return np.einsum("abkl,bksl->aksl", self.A[t], x.reshape(self.d, self.K, *x.shape[1:])).reshape(x.shape)

    def adjoint(self, t: int, x: Array) -> Array:
        """The transpose of :meth:`forward`."""
        return np.einsum("abkl,aksl->bksl", self.A[t], x.reshape(self.d, self.K, *x.shape[1:])).reshape(x.shape)

    def spread(self, t: int, C: Array) -> Array:
        """Covariances of states ``(D, D, L)`` after the lag before a step."""
        moved = self.forward(t, C).reshape(self.D, self.d, self.K, self.L)
        spread = np.einsum("abkl,ibkl->akil", self.A[t], moved)
        self.blocks(spread)[...] += self.Q[t]
        return spread.reshape(C.shape)

    def precise(self, t: int, N: Array) -> Array:
        """Information ``(D, D, L)`` about the states before the lag before a step."""
        moved = self.adjoint(t, N).reshape(self.D, self.d, self.K, self.L)
        return np.einsum("abkl,iakl->bkil", self.A[t], moved).reshape(N.shape)

    def blocks(self, matrix: Array) -> Array:
        """The blocks of single processes in ``(D, D, L)``, a view: ``(d, d, K, L)``."""
        return np.einsum("akckl->ackl", matrix.reshape(self.d, self.K, self.d, self.K, self.L))

    def paired_blocks(self, left: Array, right: Array) -> Array:
        """The blocks of single processes in the product of a matrix with another, ``(d, d, K, L)``."""
        shape = self.d, self.K, -1, self.L
        rows, columns = left.reshape(shape), right.reshape(-1, self.d, self.K, self.L)
        return np.einsum("akil,ickl->ackl", rows, columns)


def lanes_last(matrices: Array) -> Array:
    """A copy of matrices ``(L, D, S)`` with the lanes last."""
    return np.array(np.moveaxis(matrices, 0, -1), order="C")


def carried(moves: Array, ends: Array, start: Array) -> Array:
    """Columns of states before the lanes, from those before the first and the ends of lanes that start with zero."""
    starts = np.empty((len(moves), *start.shape))
    starts[0] = start
    for lane in range(len(moves) - 1):
        starts[lane + 1] = moves[lane] @ starts[lane] + ends[lane]
    return starts
