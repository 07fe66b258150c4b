"""A triangular root of the covariance of observed cells, in linear time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .factors import lanes_are_faster
from .filter import Chain
from .lane_factor import LaneTables
from .lane_filter import FilteredLanes
from .lane_variance import carried_changes
from .lanes import Array, LaneSlopes, lanes_last
from .space import StateSpace

__all__ = ["CovarianceRoot", "LaneRoot"]


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


class CovarianceRoot:
    r"""L of :math:`LL^\top = K + \Sigma`, lower triangular for the cells row by row; it has no gradients of its own.

    Args:
        space: state space of N rows and P outputs.
        noise: noise variances, ``(N, P)``.
        observed: the cells whose covariance it is, ``(N, P)`` booleans; columns ``(N, P, S)`` are zero at others.

    Raises:
        NotPositiveDefiniteError: if their covariance is not.
    """

    @torch.no_grad()
    def __init__(self, space: StateSpace, noise: Tensor, observed: Tensor) -> None:
        self._chain, self._kinds = Chain(space, noise, observed), space.transition.shape[-1]
        lanes = lanes_are_faster(self._chain, False, True)
        self._tables = LaneTables(self._chain, complete=False, count=None if lanes else 1)
        self._root = LaneRoot(FilteredLanes(self._tables.lanes, self._tables.first))

    def product(self, columns: Tensor, *, transposed: bool = False) -> Tensor:
        r""":math:`LB` or :math:`L^\top B`."""
        product = self._root.transposed_product if transposed else self._root.product
        return torch.as_tensor(self._tables.table(product(self._columns(columns))))

    def solve(self, columns: Tensor, *, transposed: bool = False) -> Tensor:
        r""":math:`L^{-1}B` or :math:`L^{-\top}B`."""
        solve = self._root.transposed_solve if transposed else self._root.solve
        return torch.as_tensor(self._tables.table(solve(self._columns(columns))))

    def gradients(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        r"""Gradients of :math:`\operatorname{tr} B^\top L C` for columns B and C.

        Returns:
            By transition, noise, stationary covariance, loadings and the cells' variances.
        """
        kept = LaneRoot(FilteredLanes(self._tables.lanes, self._tables.first, keep=True))
        slopes = self._tables.slopes(kept.slopes(self._columns(left), self._columns(right)))
        by_kind = slopes.by_kind(self._chain.kinds, self._kinds)
        return tuple(map(torch.as_tensor, (*by_kind[:4], by_kind[5])))

    def _columns(self, columns: Tensor) -> Array:
        return self._tables.columns(self._chain.known(columns))
