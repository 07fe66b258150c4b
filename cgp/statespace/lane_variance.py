r"""Gradients of variances given observations, in lanes.

With K the covariance of readings and :math:`\Lambda` their precisions, zero where nothing is observed, the variances
are :math:`v_t = \partial F / \partial\Lambda_t` of :math:`F = \log|I + K\Lambda|`. Gradients of :math:`\sum_t c_t v_t`
are hence how the gradients of a log-determinant change along :math:`\Lambda' = c`: the filter's covariances change by
:math:`P'`, forwards, and the adjoint ones by :math:`N'`, back,

.. math:: P' \leftarrow \Phi A P' A^\top \Phi^\top - c\,(Ph)(Ph)^\top, \qquad \Phi = I - w g h^\top

which is linear: two passes give all lanes their starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lane_filter import FilteredLanes
from .lanes import Array, LaneSlopes, lanes_last

__all__ = ["carried_changes", "variance_slopes"]


class _Changes(NamedTuple):
    """How the filter changes: gains ``(T, D, L)``, weights ``(T, L)``, covariances ``(T, D, D, L)`` and the last."""

    gain: Array
    weight: Array
    filtered: Array
    ends: Array


def variance_slopes(filtered: FilteredLanes, weights: Array) -> LaneSlopes:
    """Gradients of a weighted sum of the readings' variances, without noise, given what is observed.

    Args:
        filtered: a filter that kept its covariances.
        weights: of the variances, ``(T, L)``.

    Returns:
        By everything that the lanes have.
    """
    lanes, nothing = filtered.lanes, np.zeros((filtered.lanes.L, filtered.lanes.D, filtered.lanes.D))
    starts, ends = nothing, nothing
    if lanes.L > 1:
        starts = carried_changes(filtered.known.move, _changed(filtered, weights, nothing).ends)
    changes = _changed(filtered, weights, starts)
    if lanes.L > 1:
        begins = np.moveaxis(_slopes(filtered, weights, changes, nothing)[1], -1, 0)
        ends = carried_changes(filtered.known.move[::-1].swapaxes(-1, -2), begins[::-1])[::-1]
    return _slopes(filtered, weights, changes, ends)[0]


def carried_changes(moves: Array, ends: Array) -> Array:
    """Changes of covariances before the lanes, from those at the ends of lanes that start with none, ``(L, D, D)``."""
    starts = np.zeros_like(ends)
    for lane in range(len(moves) - 1):
        starts[lane + 1] = moves[lane] @ starts[lane] @ moves[lane].T + ends[lane]
    return starts


def _changed(filtered: FilteredLanes, weights: Array, starts: Array) -> _Changes:
    lanes, known, K = filtered.lanes, filtered.known, filtered.lanes.K
    C, kept = lanes_last(starts), np.empty_like(known.filtered)
    gain, weight = np.empty_like(known.gain), np.empty_like(known.weight)
    left = np.where(lanes.seen, known.weight * lanes.variances, 1.0)  # of the predicted variance, after the reading
    for t in range(lanes.T):
        g, w, h = known.gain[t], known.weight[t], lanes.h[t]
        C = lanes.forward(t, lanes.forward(t, C).swapaxes(0, 1))
        gain[t] = e = np.einsum("ikl,kl->il", C[:, :K], h)
        weight[t] = weights[t] * left[t] ** 2 - w**2 * np.einsum("kl,kl->l", h, e[:K])
        half = g[:, None] * (w * e + 0.5 * weight[t] * g)
        C = C - half - half.swapaxes(0, 1)
        kept[t] = C
    return _Changes(gain, weight, kept, np.moveaxis(C, -1, 0))


def _slopes(filtered: FilteredLanes, weights: Array, changes: _Changes, ends: Array) -> tuple[LaneSlopes, Array]:
    """The gradients, and how the information before the lanes changes, ``(D, D, L)``."""
    lanes, known, K = filtered.lanes, filtered.known, filtered.lanes.K
    slopes = LaneSlopes(*map(np.empty_like, (lanes.A, lanes.Q, lanes.A[0, ..., 0], lanes.h, lanes.variances)))
    none = np.zeros((1, lanes.D, lanes.D))
    before_lanes = [lanes_last(np.concatenate([none, each[:-1]])) for each in (known.ends, changes.ends)]
    pairs = list(zip((known.filtered, changes.filtered), before_lanes, strict=True))
    N, change = filtered.later_information(), lanes_last(ends)
    for t in range(lanes.T - 1, -1, -1):
        g, w, h, dw = known.gain[t], known.weight[t], lanes.h[t], changes.weight[t]
        u = dw * g + w * changes.gain[t]
        later, moved = _times(N, u), _times(change, w * g)
        explained = _times(known.filtered[t], later + moved) + _times(changes.filtered[t], w * _times(N, g))
        slopes.loadings[t] = 2.0 * (u - explained)[:K]
        twice = w * _dot(g, moved)
        N, precision, information = filtered.observed(t, N)
        own = weights[t] * (1.0 - 2.0 * precision * lanes.variances[t])
        slopes.variances[t] = np.where(lanes.seen[t], dw + 2.0 * _dot(information, u) + twice + own, 0.0)
        b = later + moved
        b[:K] -= h * (w * _dot(g, later) + 0.5 * (dw + twice))
        change = change.copy()
        change[:K] -= h[:, None] * b
        change[:, :K] -= (h[:, None] * b).swapaxes(0, 1)
        before = [lanes.forward(t, x[t - 1] if t else y) for x, y in pairs]
        slopes.noise[t] = lanes.blocks(change)
        slopes.transition[t] = 2.0 * (lanes.paired_blocks(change, before[0]) + lanes.paired_blocks(N, before[1]))
        N, change = lanes.precise(t, N), lanes.precise(t, change)
    slopes.stationary[:] = lanes.blocks(change)[..., 0]
    return slopes, change


def _times(matrix: Array, vector: Array) -> Array:
    return np.asarray(np.einsum("ijl,jl->il", matrix, vector))


def _dot(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("il,il->l", left, right))
