r"""The recursions of a filter side by side: time is cut into stretches, the lanes, that take their steps together.

For few states and many rows. Every reading is a step, so that nothing is factored, and :math:`\sqrt n` steps of arrays
over all lanes take the place of n steps. A lane of a filter is an element of an associative operation: from a known
state it ends with covariance C, moves a change of that state by :math:`\Phi`, and says J about it,

.. math:: P_{l+1} = C_l + \Phi_l (I + P_l J_l)^{-1} P_l \Phi_l^\top

so that the steps are taken once from known states, and once from those with these covariances. Means and the adjoint
recursion are linear, and start anew likewise. An associative scan can replace the loops over lanes.

Source: Särkkä & García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgp.functional.linalg import NotPositiveDefiniteError

__all__ = ["Adjoint", "LaneFilter", "LaneMeans", "LaneSlopes", "Lanes", "Visits"]

Array = NDArray[np.float64]
_LANES = 2.0  # lanes per step, squared root: a step costs more than the start of a lane


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


class LaneFilter(NamedTuple):
    """The quantities that the filter stores for T steps of L lanes.

    Attributes:
        gain: covariances of the predicted state and the reading, ``(T, D, L)``.
        weight: inverse variance of the reading, zero if it is not observed, ``(T, L)``.
        filtered: covariance of the state after each step, ``(T, D, D, L)``; empty unless it is requested.
        log_determinant: that of the observations' covariance.
        ends: covariances of the states after the lanes, ``(L, D, D)``.
        move: changes of the states after the lanes by those before them, ``(L, D, D)``.
        information: what each lane says about the state before it, ``(L, D, D)``.
    """

    gain: Array
    weight: Array
    filtered: Array
    log_determinant: float
    ends: Array
    move: Array
    information: Array


class LaneMeans(NamedTuple):
    """Means of columns.

    Attributes:
        innovations: readings minus their predicted means, ``(T, S, L)``.
        filtered: means of the state after each step, ``(T, D, S, L)``; empty unless they are requested.
        ends: means of the states after the lanes, ``(L, D, S)``.
    """

    innovations: Array
    filtered: Array
    ends: Array


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
        lanes = max(1, round((_LANES * n) ** 0.5)) if count is None else count
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

    def filtered(self, start: Array, keep: bool = False) -> LaneFilter:
        """The covariances, given that of the state before the first step, ``(D, D)``."""
        starts = start[None]
        if self.L > 1:
            starts = _riccati(start, self._covariances(np.zeros((self.L, *start.shape)), keep=False))
        return self._covariances(starts, keep)

    def _covariances(self, starts: Array, keep: bool) -> LaneFilter:
        D, K, T, L = self.D, self.K, self.T, self.L
        C, move = _last(starts), np.zeros((D, D, L)) + np.eye(D)[..., None]
        information, logarithms = np.zeros((D, D, L)), np.zeros(L)
        gain, weight, kept = np.empty((T, D, L)), np.empty((T, L)), np.empty((T * keep, D, D, L))
        for t in range(T):
            h, seen = self.h[t], self.seen[t]
            C = self._spread(t, C)
            gain[t] = g = np.einsum("ikl,kl->il", C[:, :K], h)
            variance = np.where(seen, np.einsum("kl,kl->l", h, g[:K]) + self.variances[t], 1.0)
            if variance.min() <= 0.0:
                raise NotPositiveDefiniteError("the covariance of the observations cannot be factored")
            weight[t] = w = seen / variance
            logarithms += np.log(variance)
            gw = g * w
            C -= g[:, None] * gw
            move = self.forward(t, move)
            e = np.einsum("kl,ksl->sl", h, move[:K])
            information += e[:, None] * (e * w)
            move -= gw[:, None] * e
            kept[t : t + keep] = C
        ends = (np.moveaxis(matrix, -1, 0).copy() for matrix in (C, move, information))
        return LaneFilter(gain, weight, kept, float(logarithms.sum()), *ends)

    def means(self, known: LaneFilter, values: Array, start: Array, keep: bool = False) -> LaneMeans:
        """Innovations and means of the states.

        Args:
            known: result of the filter.
            values: columns of readings, zero where they are not observed, ``(T, S, L)``.
            start: means of the state before the first step, ``(D, S)``.
            keep: whether to keep the means after every step.
        """
        starts = start[None]
        if self.L > 1:
            ends = self._innovations(known, values, np.zeros((self.L, *start.shape)), keep=False).ends
            starts = _carried(known.move, ends, start)
        return self._innovations(known, values, starts, keep)

    def _innovations(self, known: LaneFilter, values: Array, starts: Array, keep: bool) -> LaneMeans:
        m, innovations, K = _last(starts), np.empty_like(values), self.K
        kept = np.empty((self.T * keep, *m.shape))
        for t in range(self.T):
            m = self.forward(t, m)
            innovations[t] = v = values[t] - np.einsum("kl,ksl->sl", self.h[t], m[:K])
            m += known.gain[t][:, None] * (known.weight[t] * v)
            kept[t : t + keep] = m
        return LaneMeans(innovations, kept, np.moveaxis(m, -1, 0))

    def weights(self, known: LaneFilter, innovations: Array, keep: bool = False) -> tuple[Array, Array, Array]:
        """The adjoint recursion of columns.

        Returns:
            Weights of the readings and corrections of their predicted means, ``(T, S, L)`` each, and the adjoint
            states before the readings, ``(T, D, S, L)``, if they are requested.
        """
        ends = np.zeros((self.L, self.D, innovations.shape[1]))
        if self.L > 1:
            begins = self._weights(known, innovations, ends, keep=False)[3]
            ends = _carried(known.move[::-1].swapaxes(-1, -2), begins[::-1], ends[0])[::-1]
        return self._weights(known, innovations, ends, keep)[:3]

    def _weights(
        self, known: LaneFilter, innovations: Array, ends: Array, keep: bool
    ) -> tuple[Array, Array, Array, Array]:
        r, K = _last(ends), self.K
        weights, shifts = np.empty_like(innovations), np.empty_like(innovations)
        kept = np.empty((self.T * keep, *r.shape))
        for t in range(self.T - 1, -1, -1):
            g = known.gain[t]
            weights[t] = u = known.weight[t] * (innovations[t] - np.einsum("il,isl->sl", g, r))
            r[:K] += self.h[t][:, None] * u
            shifts[t] = np.einsum("il,isl->sl", g, r)
            kept[t : t + keep] = r
            r = self.adjoint(t, r)
        return weights, shifts, kept, np.moveaxis(r, -1, 0)

    def spread(self, known: LaneFilter) -> tuple[Array, Array]:
        """Variances of the readings without noise, and the diagonal of their inverse covariance, ``(T, L)`` each."""
        N, K = self._later_information(known), self.K
        variance, precision = np.empty_like(known.weight), np.empty_like(known.weight)
        for t in range(self.T - 1, -1, -1):
            g = known.gain[t]
            N, precision[t], _ = self._observed(t, N, known)
            variance[t] = np.einsum("kl,kl->l", self.h[t], g[:K])
            variance[t] -= np.einsum("il,il->l", g, np.einsum("ijl,jl->il", N, g))
            N = self._precise(t, N)
        return variance.clip(min=0.0), precision

    def _later_information(self, known: LaneFilter) -> Array:
        """What all later lanes say about the state after each, ``(D, D, L)``."""
        later = np.zeros((self.L, self.D, self.D))
        for lane in range(self.L - 1, 0, -1):
            move = known.move[lane]
            later[lane - 1] = known.information[lane] + move.T @ later[lane] @ move
        return _last(later)

    def _observed(self, t: int, N: Array, known: LaneFilter) -> tuple[Array, Array, Array]:
        """N before a reading from that after it, the reading's precision, and its gain times the N after it."""
        g, w, h, K = known.gain[t], known.weight[t], self.h[t], self.K
        moved = np.einsum("ijl,jl->il", N, g) * w
        precision = w * (1.0 + np.einsum("il,il->l", g, moved))
        change = h[:, None] * (moved - 0.5 * np.concatenate([h * precision, np.zeros((self.D - K, self.L))]))
        N = N.copy()
        N[:K] -= change
        N[:, :K] -= change.swapaxes(0, 1)
        return N, precision, moved

    def log_determinant_slopes(self, known: LaneFilter) -> LaneSlopes:
        r"""Gradients of :math:`\log|\Sigma|`, given a filter that kept its covariances."""
        N, K = self._later_information(known), self.K
        A, Q, h, variances = (np.empty(like.shape) for like in (self.A, self.Q, self.h, self.variances))
        before_lanes = _last(np.concatenate([np.zeros((1, self.D, self.D)), known.ends[:-1]]))
        for t in range(self.T - 1, -1, -1):
            N, variances[t], moved = self._observed(t, N, known)
            explained = np.einsum("jl,jkl->kl", moved, known.filtered[t, :, :K])
            h[t] = 2.0 * (known.weight[t] * known.gain[t, :K] - explained)
            before = self.forward(t, known.filtered[t - 1] if t else before_lanes)
            Q[t], A[t] = self._blocks(N), 2.0 * self._paired_blocks(N, before)
            N = self._precise(t, N)
        return LaneSlopes(A, Q, self._blocks(N)[..., 0], h, variances)

    def smoothed(self, known: LaneFilter, values: Array) -> Adjoint:
        """The readings' weights as columns: with them, r is the adjoint state, and s the smoothed one.

        Args:
            known: result of the filter, with the filtered covariances.
            values: columns of readings, zero where they are not observed, ``(T, S, L)``.
        """
        means = self.means(known, values, np.zeros((self.D, values.shape[1])), keep=True)
        u, _, r = self.weights(known, means.innovations, keep=True)
        later = r.copy()
        later[:, : self.K] -= self.h[:, :, None] * u[:, None]
        after = means.filtered + np.einsum("tijl,tjsl->tisl", known.filtered, later)
        before = np.zeros_like(after)
        before[1:], before[0, ..., 1:] = after[:-1], after[-1, ..., :-1]
        return Adjoint(u, r, self.adjoint(0, r[0])[..., 0], before, after)

    def product(self, columns: Array, start: Array) -> Adjoint:
        """The states whose readings are the covariance, without noise, times columns ``(T, S, L)``.

        Args:
            columns: ``(T, S, L)``.
            start: covariance of the state before the first step, ``(D, D)``.
        """
        inputs = np.zeros((self.T, self.D, *columns.shape[1:]))
        inputs[:, : self.K] = self.h[:, :, None] * columns[:, None]
        adjoint, first = self._summed_back(inputs)
        before, after = self.states(self.noisy(adjoint), start @ first)
        return Adjoint(columns, adjoint, first, before, after)

    def _summed_back(self, inputs: Array) -> tuple[Array, Array]:
        """r of all steps from what they add, and r before the first."""
        r, sums = np.zeros(inputs.shape[1:]), np.empty_like(inputs)
        for last in (False, True):
            for t in range(self.T - 1, -1, -1):
                sums[t] = r = r + inputs[t]
                r = self.adjoint(t, r)
            if last or self.L == 1:
                break
            begins = np.moveaxis(r, -1, 0)[::-1]
            r = _last(_carried(self.moves[::-1].swapaxes(-1, -2), begins, np.zeros(begins.shape[1:]))[::-1])
        return sums, r[..., 0]

    def states(self, inputs: Array, start: Array) -> tuple[Array, Array]:
        r"""States :math:`s_i = A_i s_{i-1} + w_i` of columns w ``(T, D, S, L)``, from that before, ``(D, S)``.

        Returns:
            The states before and after each step, ``(T, D, S, L)`` each.
        """
        starts = start[None]
        if self.L > 1:
            ends = self._summed(inputs, np.zeros((self.L, *start.shape)))[1][-1]
            starts = _carried(self.moves, np.moveaxis(ends, -1, 0), start)
        return self._summed(inputs, starts)

    def _summed(self, inputs: Array, starts: Array) -> tuple[Array, Array]:
        s, before, after = _last(starts), np.empty_like(inputs), np.empty_like(inputs)
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
        A = self._outer(left.adjoint, right.before) + self._outer(right.adjoint, left.before)
        Q = self._outer(left.adjoint, right.adjoint)
        P = np.einsum("aks,cks->ack", *(each.first.reshape(self.d, self.K, -1) for each in (left, right)))
        h = np.einsum("tsl,tksl->tkl", left.columns, right.after[:, : self.K])
        h += np.einsum("tsl,tksl->tkl", right.columns, left.after[:, : self.K])
        symmetric = (0.5 * (each + np.swapaxes(each, axis, axis + 1)) for each, axis in ((Q, 1), (P, 0)))
        return LaneSlopes(A, *symmetric, h, np.einsum("tsl,tsl->tl", left.columns, right.columns))

    def _outer(self, left: Array, right: Array) -> Array:
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

    def _spread(self, t: int, C: Array) -> Array:
        moved = self.forward(t, C).reshape(self.D, self.d, self.K, self.L)
        spread = np.einsum("abkl,ibkl->akil", self.A[t], moved)
        self._blocks(spread)[...] += self.Q[t]
        return spread.reshape(C.shape)

    def _precise(self, t: int, N: Array) -> Array:
        moved = self.adjoint(t, N).reshape(self.D, self.d, self.K, self.L)
        return np.einsum("abkl,iakl->bkil", self.A[t], moved).reshape(N.shape)

    def _blocks(self, matrix: Array) -> Array:
        """The blocks of single processes in ``(D, D, L)``, a view: ``(d, d, K, L)``."""
        return np.einsum("akckl->ackl", matrix.reshape(self.d, self.K, self.d, self.K, self.L))

    def _paired_blocks(self, left: Array, right: Array) -> Array:
        """The blocks of single processes in the product of a matrix with another, ``(d, d, K, L)``."""
        shape = self.d, self.K, -1, self.L
        rows, columns = left.reshape(shape), right.reshape(-1, self.d, self.K, self.L)
        return np.einsum("akil,ickl->ackl", rows, columns)


def _last(matrices: Array) -> Array:
    """Matrices ``(L, D, S)`` with the lanes last, contiguous."""
    return np.ascontiguousarray(np.moveaxis(matrices, 0, -1))


def _riccati(start: Array, known: LaneFilter) -> Array:
    """Covariances of the states before the lanes, from that before the first, ``(L, D, D)``."""
    starts = np.empty_like(known.ends)
    starts[0] = start
    unit = np.eye(len(start))
    for lane in range(len(starts) - 1):
        P, move = starts[lane], known.move[lane]
        explained = np.linalg.solve(unit + P @ known.information[lane], P)
        P = known.ends[lane] + move @ explained @ move.T
        starts[lane + 1] = 0.5 * (P + P.T)
    return starts


def _carried(moves: Array, ends: Array, start: Array) -> Array:
    """Columns of states before the lanes, from those before the first and the ends of lanes that start with zero."""
    starts = np.empty((len(moves), *start.shape))
    starts[0] = start
    for lane in range(len(moves) - 1):
        starts[lane + 1] = moves[lane] @ starts[lane] + ends[lane]
    return starts
