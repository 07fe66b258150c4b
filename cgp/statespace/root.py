"""A triangular root of the covariance of observed cells, in linear time."""

from __future__ import annotations

import torch
from torch import Tensor

from .factors import lanes_are_faster
from .filter import Array, Chain
from .lane_factor import LaneTables
from .lane_filter import FilteredLanes
from .lane_root import LaneRoot
from .space import StateSpace

__all__ = ["CovarianceRoot"]


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
