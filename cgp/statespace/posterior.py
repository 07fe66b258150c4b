"""The outputs of a state space given observations: means, variances, draws, and leave-one-out quantities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import cholesky

from .expansions import Expansion, expansion_variances
from .factors import FilterState, RowFactor, factor_of
from .filter import Array, Chain, Factor
from .joint import joint_covariance
from .space import StateSpace
from .totals import Terms, total_variances

__all__ = ["FilterState", "StateSpacePosterior"]


class StateSpacePosterior:
    """The outputs at all rows given the observations; results are computed lazily and kept.

    Args:
        space: state space of N rows and P outputs.
        residual: observations minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        start: distribution of the states before the first row; None is the stationary distribution.

    Raises:
        NotPositiveDefiniteError: if the observations' covariance is not.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(3, dtype=torch.long))
        >>> y = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
        >>> posterior = StateSpacePosterior(space, y, torch.full_like(y, 0.1), torch.tensor([[True], [False], [True]]))
        >>> posterior.mean[1], posterior.variance[1]
        (tensor([0.7798], dtype=torch.float64), tensor([0.6231], dtype=torch.float64))
    """

    def __init__(
        self, space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, *, start: FilterState | None = None
    ) -> None:
        self._chain = Chain(space, noise, observed)
        self._residual = self._chain.known(residual[..., None])
        self._start = start
        self._factor = factor_of(self._chain, None if start is None else start.covariance, complete=True)

    @property
    def observed(self) -> Array:
        """Whether observed, ``(N, P)`` booleans."""
        return self._chain.observed

    @lazy
    def mean(self) -> Tensor:
        """Mean of every output at every row, ``(N, P)``."""
        return torch.as_tensor(self._smoothed[0][..., 0])

    @lazy
    def variance(self) -> Tensor:
        """Variance of every output at every row, without noise, ``(N, P)``."""
        return torch.as_tensor(self._spread[0])

    @lazy
    def weights(self) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}(y - m)` at the observations, zero elsewhere, ``(N, P)``."""
        return torch.as_tensor(self._smoothed[1][..., 0])

    @lazy
    def precision(self) -> Tensor:
        r"""The diagonal of :math:`(K + \Sigma)^{-1}` at the observations, zero elsewhere, ``(N, P)``."""
        return torch.as_tensor(self._spread[1])

    @lazy
    def log_evidence(self) -> Tensor:
        """Log-density of the observations, in nats."""
        count, quadratic = int(self._chain.observed.sum()), self._factor.quadratic(self._whitened)[0]
        value = -0.5 * (quadratic + self._factor.log_determinant + count * math.log(2.0 * math.pi))
        return torch.tensor(value, dtype=torch.float64)

    @lazy
    def last(self) -> FilterState:
        """Distribution of the states after the last row, from which a posterior of later rows starts."""
        return self._factor.last(self._whitened)

    @lazy
    def covariance(self) -> Tensor:
        r"""Covariance of all outputs at all rows, without noise, for few rows.

        .. math:: K - K_{\cdot O}(K_{OO} + \Sigma_O)^{-1}K_{O\cdot}

        Returns:
            ``(N P, N P)``, in time O((N P)³).
        """
        prior = torch.as_tensor(self._chain.prior_covariance(None if self._start is None else self._start.covariance))
        seen = torch.as_tensor(self._chain.observed).flatten()
        noisy = prior[seen][:, seen] + torch.as_tensor(self._chain.variances).flatten()[seen].diag()
        white = torch.linalg.solve_triangular(
            cholesky(noisy, name="covariance of the observations", jitter=0.0), prior[seen], upper=False
        )
        return prior - white.mT @ white

    def covariance_of(self, cells: Tensor) -> Tensor:
        """Covariance of some outputs at rows, places in ``(N, P)``, flattened, ``(m,)``: ``(m, m)``, linear in N."""
        unique, inverse = np.unique(cells.numpy(), return_inverse=True)
        covariance = joint_covariance(self._chain, self._filtered, unique)
        return torch.as_tensor(covariance[np.ix_(inverse, inverse)])

    def solve(self, columns: Tensor) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}B` for columns B, ``(N, P, S)``; unobserved entries are ignored."""
        return self.regressed(columns)[1]

    def smooth(self, columns: Tensor) -> Tensor:
        r""":math:`K_{\cdot O}(K_{OO} + \Sigma_O)^{-1}B`, the means given columns B of observations, ``(N, P, S)``."""
        return self.regressed(columns)[0]

    def regressed(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`smooth` and :meth:`solve` in one pass."""
        means, weights = self._factor.smoothed(self._factor.whitened(self._chain.known(columns), None))
        return torch.as_tensor(means), torch.as_tensor(weights)

    def total_variances(self, terms: Terms) -> Tensor:
        """Variances of weighted sums of the outputs, without noise, ``(A,)``, in linear time."""
        return torch.as_tensor(total_variances(self._chain, self._filtered, terms))

    def expansion_variances(self, terms: Terms, expansion: Expansion) -> Tensor:
        """Variances of sums of functions of the outputs, ``(A,)``: :func:`.expansions.expansion_variances`."""
        return torch.as_tensor(expansion_variances(self._chain, self._filtered, terms, expansion))

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Joint draws of all outputs at all rows, without noise: draws of the prior, corrected by the observations.

        Args:
            count: number of draws.
            generator: source of randomness; None is torch's global generator.

        Returns:
            ``(count, N, P)``.

        Source:
            Durbin & Koopman (2002), A simple and efficient simulation smoother for state space time series analysis.
        """
        prior = self._factor.prior_draws(count, generator)
        noise = torch.randn(prior.shape, generator=generator, dtype=torch.float64).numpy()
        noisy = prior + np.sqrt(self._chain.variances)[..., None] * noise
        start = None if self._start is None else np.zeros((self._chain.size, count))  # in the prior's draw
        white = self._factor.whitened(np.where(self._chain.observed[..., None], noisy, 0.0), start)
        known = self._factor.smoothed(white)[0]
        return self.mean + torch.as_tensor(np.moveaxis(prior - known, -1, 0))

    @property
    def _filtered(self) -> list[Factor]:
        if isinstance(self._factor, RowFactor):
            return self._factor.rows
        return self._chain.filtered(None if self._start is None else self._start.covariance)

    @lazy
    def _whitened(self) -> Any:
        return self._factor.whitened(self._residual, None if self._start is None else self._start.mean)

    @lazy
    def _smoothed(self) -> tuple[Array, Array]:
        return self._factor.smoothed(self._whitened)

    @lazy
    def _spread(self) -> tuple[Array, Array]:
        return self._factor.spread()
