r"""The filter of a state space in lanes, and its adjoint recursion: every reading is a step, so nothing is factored.

A lane is an element of an associative operation: from a known state it ends with covariance C, moves a change of that
state by :math:`\Phi`, and says J about it,

.. math:: P_{l+1} = C_l + \Phi_l (I + P_l J_l)^{-1} P_l \Phi_l^\top

so that the steps are taken once from known states, and once from those with these covariances.

Source: Särkkä & García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cgp.functional.linalg import NotPositiveDefiniteError

from .lanes import Adjoint, Array, Lanes, LaneSlopes, carried, lanes_last

__all__ = ["FilteredLanes", "LaneFilter", "LaneMeans"]


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


class FilteredLanes:
    """The readings of some lanes, given the covariance of the state before the first step.

    Args:
        lanes: steps in lanes.
        start: ``(D, D)``.
        keep: whether to keep the covariances of all states.
    """

    def __init__(self, lanes: Lanes, start: Array, keep: bool = False) -> None:
        self.lanes = lanes
        starts = start[None]
        if lanes.L > 1:
            starts = _riccati(start, self._covariances(np.zeros((lanes.L, *start.shape)), keep=False))
        self.known = self._covariances(starts, keep)

    def _covariances(self, starts: Array, keep: bool) -> LaneFilter:
        D, K, T, L = self.lanes.D, self.lanes.K, self.lanes.T, self.lanes.L
        C, move = lanes_last(starts), np.zeros((D, D, L)) + np.eye(D)[..., None]
        information, logarithms = np.zeros((D, D, L)), np.zeros(L)
        gain, weight, kept = np.empty((T, D, L)), np.empty((T, L)), np.empty((T * keep, D, D, L))
        for t in range(T):
            h, seen = self.lanes.h[t], self.lanes.seen[t]
            C = self.lanes.spread(t, C)
            gain[t] = g = np.einsum("ikl,kl->il", C[:, :K], h)
            variance = np.where(seen, np.einsum("kl,kl->l", h, g[:K]) + self.lanes.variances[t], 1.0)
            if variance.min() <= 0.0:
                raise NotPositiveDefiniteError("the covariance of the observations cannot be factored")
            weight[t] = w = seen / variance
            logarithms += np.log(variance)
            gw = g * w
            C -= g[:, None] * gw
            move = self.lanes.forward(t, move)
            e = np.einsum("kl,ksl->sl", h, move[:K])
            information += e[:, None] * (e * w)
            move -= gw[:, None] * e
            kept[t : t + keep] = C
        ends = (np.moveaxis(matrix, -1, 0).copy() for matrix in (C, move, information))
        return LaneFilter(gain, weight, kept, float(logarithms.sum()), *ends)

    def means(self, values: Array, start: Array, keep: bool = False) -> LaneMeans:
        """Innovations and means of the states.

        Args:
            values: columns of readings, zero where they are not observed, ``(T, S, L)``.
            start: means of the state before the first step, ``(D, S)``.
            keep: whether to keep the means after every step.

        Returns:
            Of all steps.
        """
        starts = start[None]
        if self.lanes.L > 1:
            ends = self._innovations(values, np.zeros((self.lanes.L, *start.shape)), keep=False).ends
            starts = carried(self.known.move, ends, start)
        return self._innovations(values, starts, keep)

    def _innovations(self, values: Array, starts: Array, keep: bool) -> LaneMeans:
        m, innovations, K = lanes_last(starts), np.empty_like(values), self.lanes.K
        kept = np.empty((self.lanes.T * keep, *m.shape))
        for t in range(self.lanes.T):
            m = self.lanes.forward(t, m)
            innovations[t] = v = values[t] - np.einsum("kl,ksl->sl", self.lanes.h[t], m[:K])
            m += self.known.gain[t][:, None] * (self.known.weight[t] * v)
            kept[t : t + keep] = m
        return LaneMeans(innovations, kept, np.moveaxis(m, -1, 0))

    def weights(self, innovations: Array, keep: bool = False) -> tuple[Array, Array, Array]:
        """The adjoint recursion of columns.

        Returns:
            Weights of the readings and corrections of their predicted means, ``(T, S, L)`` each, and the adjoint
            states before the readings, ``(T, D, S, L)``, if they are requested.
        """
        ends = np.zeros((self.lanes.L, self.lanes.D, innovations.shape[1]))
        if self.lanes.L > 1:
            begins = self._weights(innovations, ends, keep=False)[3]
            ends = carried(self.known.move[::-1].swapaxes(-1, -2), begins[::-1], ends[0])[::-1]
        return self._weights(innovations, ends, keep)[:3]

    def _weights(self, innovations: Array, ends: Array, keep: bool) -> tuple[Array, Array, Array, Array]:
        r, K = lanes_last(ends), self.lanes.K
        weights, shifts = np.empty_like(innovations), np.empty_like(innovations)
        kept = np.empty((self.lanes.T * keep, *r.shape))
        for t in range(self.lanes.T - 1, -1, -1):
            g = self.known.gain[t]
            weights[t] = u = self.known.weight[t] * (innovations[t] - np.einsum("il,isl->sl", g, r))
            r[:K] += self.lanes.h[t][:, None] * u
            shifts[t] = np.einsum("il,isl->sl", g, r)
            kept[t : t + keep] = r
            r = self.lanes.adjoint(t, r)
        return weights, shifts, kept, np.moveaxis(r, -1, 0)

    def spread(self) -> tuple[Array, Array]:
        """Variances of the readings without noise, and the diagonal of their inverse covariance, ``(T, L)`` each."""
        N, K = self.later_information(), self.lanes.K
        variance, precision = np.empty_like(self.known.weight), np.empty_like(self.known.weight)
        for t in range(self.lanes.T - 1, -1, -1):
            g = self.known.gain[t]
            N, precision[t], _ = self.observed(t, N)
            variance[t] = np.einsum("kl,kl->l", self.lanes.h[t], g[:K])
            variance[t] -= np.einsum("il,il->l", g, np.einsum("ijl,jl->il", N, g))
            N = self.lanes.precise(t, N)
        return variance.clip(min=0.0), precision

    def information(self) -> Array:
        """What each reading and all later ones say about the state before it, ``(T, D, D, L)``."""
        N, kept = self.later_information(), np.empty((self.lanes.T, self.lanes.D, self.lanes.D, self.lanes.L))
        for t in range(self.lanes.T - 1, -1, -1):
            kept[t] = N = self.observed(t, N)[0]
            N = self.lanes.precise(t, N)
        return kept

    def later_information(self) -> Array:
        """What all later lanes say about the state after each, ``(D, D, L)``."""
        later = np.zeros((self.lanes.L, self.lanes.D, self.lanes.D))
        for lane in range(self.lanes.L - 1, 0, -1):
            move = self.known.move[lane]
            later[lane - 1] = self.known.information[lane] + move.T @ later[lane] @ move
        return lanes_last(later)

    def observed(self, t: int, N: Array) -> tuple[Array, Array, Array]:
        """N before a reading from that after it, the reading's precision, and its gain times the N after it."""
        g, w, h, K = self.known.gain[t], self.known.weight[t], self.lanes.h[t], self.lanes.K
        moved = np.einsum("ijl,jl->il", N, g) * w
        precision = w * (1.0 + np.einsum("il,il->l", g, moved))
        change = h[:, None] * (moved - 0.5 * np.pad(h * precision, [(0, self.lanes.D - K), (0, 0)]))
        N = N.copy()
        N[:K] -= change
        N[:, :K] -= change.swapaxes(0, 1)
        return N, precision, moved

    def log_determinant_slopes(self) -> LaneSlopes:
        r"""Gradients of :math:`\log|\Sigma|`, given a filter that kept its covariances."""
        N, K = self.later_information(), self.lanes.K
        A, Q, h, variances = (
            np.empty(like.shape) for like in (self.lanes.A, self.lanes.Q, self.lanes.h, self.lanes.variances)
        )
        before_lanes = lanes_last(np.concatenate([np.zeros((1, self.lanes.D, self.lanes.D)), self.known.ends[:-1]]))
        for t in range(self.lanes.T - 1, -1, -1):
            N, variances[t], moved = self.observed(t, N)
            explained = np.einsum("jl,jkl->kl", moved, self.known.filtered[t, :, :K])
            h[t] = 2.0 * (self.known.weight[t] * self.known.gain[t, :K] - explained)
            before = self.lanes.forward(t, self.known.filtered[t - 1] if t else before_lanes)
            Q[t], A[t] = self.lanes.blocks(N), 2.0 * self.lanes.paired_blocks(N, before)
            N = self.lanes.precise(t, N)
        return LaneSlopes(A, Q, self.lanes.blocks(N)[..., 0], h, variances)

    def smoothed(self, values: Array) -> Adjoint:
        """The readings' weights as columns: with them, r is the adjoint state, and s the smoothed one.

        Args:
            values: columns of readings, zero where they are not observed, ``(T, S, L)``.

        Returns:
            Of the weights.
        """
        means = self.means(values, np.zeros((self.lanes.D, values.shape[1])), keep=True)
        u, _, r = self.weights(means.innovations, keep=True)
        later = r.copy()
        later[:, : self.lanes.K] -= self.lanes.h[:, :, None] * u[:, None]
        after = means.filtered + np.einsum("tijl,tjsl->tisl", self.known.filtered, later)
        before = np.zeros_like(after)
        before[1:], before[0, ..., 1:] = after[:-1], after[-1, ..., :-1]
        return Adjoint(u, r, self.lanes.adjoint(0, r[0])[..., 0], before, after)


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
