r"""A triangular root of the covariance of readings, in lanes: what the filter does to standard normal innovations.

With gains g, weights w and noise variances R of the filter, :math:`LL^\top = K + \Sigma` of the readings in order is

.. math:: (L\epsilon)_t = h_t^\top s_t + R_t\sqrt{w_t}\,\epsilon_t, \qquad s_t = A_t s_{t-1} + g_t\sqrt{w_t}\,\epsilon_t

so that products with L, its transpose and their inverses take the steps of a filter or of an adjoint recursion.
"""

from __future__ import annotations

import numpy as np

from .lane_filter import FilteredLanes
from .lane_variance import carried_changes
from .lanes import Array, LaneSlopes, lanes_last

__all__ = ["LaneRoot"]


class LaneRoot:
    """L of the readings of some lanes, all of which are observed; columns are ``(T, S, L)``.

    Args:
        filtered: the filter; for gradients one that kept its covariances.
    """

    def __init__(self, filtered: FilteredLanes) -> None:
        self._filtered, self._lanes, self._known = filtered, filtered.lanes, filtered.known
        self._root = np.sqrt(filtered.known.weight)
        self._gain = filtered.known.gain * self._root[:, None]
        self._left = self._root * filtered.lanes.variances

    def product(self, columns: Array) -> Array:
        r""":math:`LB`."""
        return self._lanes.readings(self._states(columns)[1]) + self._left[:, None] * columns

    def transposed_product(self, columns: Array) -> Array:
        r""":math:`L^\top B`."""
        adjoint = self._lanes.summed_back(self._lanes.inputs(columns))[0]
        return np.einsum("til,tisl->tsl", self._gain, adjoint) + self._left[:, None] * columns

    def solve(self, columns: Array) -> Array:
        r""":math:`L^{-1}B`."""
        start = np.zeros((self._lanes.D, columns.shape[1]))
        return self._filtered.means(columns, start).innovations * self._root[:, None]

    def transposed_solve(self, columns: Array) -> Array:
        r""":math:`L^{-\top}B`."""
        scale = np.divide(1.0, self._root, out=np.zeros_like(self._root), where=self._root > 0.0)
        return self._filtered.weights(columns * scale[:, None])[0]

    def _states(self, columns: Array) -> tuple[Array, Array]:
        inputs = self._gain[:, :, None] * columns[:, None]
        return self._lanes.states(inputs, np.zeros((self._lanes.D, columns.shape[1])))

    def slopes(self, left: Array, right: Array) -> LaneSlopes:
        r"""Gradients of :math:`\operatorname{tr} B^\top L C` by everything that the lanes have."""
        lanes = self._lanes
        before, after = self._states(right)
        adjoint, _ = lanes.summed_back(lanes.inputs(left))
        by_gain = np.einsum("tisl,tsl->til", adjoint, right)
        by_left = np.einsum("tsl,tsl->tl", left, right)
        ends = np.zeros((lanes.L, lanes.D, lanes.D))
        if lanes.L > 1:
            begins = np.moveaxis(self._covariance_slopes(by_gain, by_left, ends)[1], -1, 0)
            ends = carried_changes(self._known.move[::-1].swapaxes(-1, -2), begins[::-1])[::-1]
        slopes, _ = self._covariance_slopes(by_gain, by_left, ends)
        loadings = np.einsum("tksl,tsl->tkl", after[:, : lanes.K], left)
        transition = slopes.transition + lanes.paired_columns(adjoint, before)
        return slopes._replace(transition=transition, loadings=slopes.loadings + loadings)

    def _covariance_slopes(self, by_gain: Array, by_left: Array, ends: Array) -> tuple[LaneSlopes, Array]:
        """Gradients by way of the filter's covariances, and those by the covariances before the lanes."""
        lanes, known, K = self._lanes, self._known, self._lanes.K
        slopes = LaneSlopes(*map(np.empty_like, (lanes.A, lanes.Q, lanes.A[0, ..., 0], lanes.h, lanes.variances)))
        before_lanes = lanes_last(np.concatenate([np.zeros((1, lanes.D, lanes.D)), known.ends[:-1]]))
        P = lanes_last(ends)  # the gradient by the covariance of the states after a step
        for t in range(lanes.T - 1, -1, -1):
            g, w, root, h = known.gain[t], known.weight[t], self._root[t], lanes.h[t]
            explained = np.einsum("ijl,jl->il", P, g) * w
            pull = by_left[t] * lanes.variances[t] + np.einsum("il,il->l", by_gain[t], g)
            variance = w * np.einsum("il,il->l", g, explained) - 0.5 * w * root * pull
            gain = root * by_gain[t] - 2.0 * explained
            gain[:K] += h * variance
            slopes.variances[t] = variance + by_left[t] * root
            later = np.einsum("ijl,jl->il", known.filtered[t], gain) + g * (w * np.einsum("il,il->l", g, gain))
            slopes.loadings[t] = g[:K] * variance + later[:K]
            P = P.copy()
            P[:K] += 0.5 * h[:, None] * gain
            P[:, :K] += 0.5 * (h[:, None] * gain).swapaxes(0, 1)
            before = lanes.forward(t, known.filtered[t - 1] if t else before_lanes)
            slopes.noise[t], slopes.transition[t] = lanes.blocks(P), 2.0 * lanes.paired_blocks(P, before)
            P = lanes.precise(t, P)
        slopes.stationary[:] = lanes.blocks(P)[..., 0]
        return slopes, P
