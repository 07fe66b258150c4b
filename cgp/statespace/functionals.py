r"""Observations that are weighted sums of the outputs, beside readings of single ones, in time linear in the rows.

With the readings y conditioned on first, M sums :math:`t = Wf + \eta` are a normal vector of few entries,

.. math:: t \mid y \sim N\big(A^\top y,\; W B - B^\top A + \operatorname{Cov}\eta\big), \qquad
    B = KW^\top,\quad A = (K + \Sigma)^{-1}B

and what they say of the outputs follows from :math:`G = B - KA = \operatorname{Cov}[f, Wf \mid y]`. That is M more
columns of products and solutions, exact for sums that overlap, of several outputs, and of rows in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import cholesky

from .evidence import log_evidence
from .posterior import StateSpacePosterior
from .products import covariance_product, covariance_solve
from .space import StateSpace
from .totals import Terms

__all__ = ["FunctionalPosterior", "Functionals", "functionals_of", "sums_of_readings", "total_log_evidence"]


class Functionals(NamedTuple):
    r"""Weighted sums that were observed.

    Attributes:
        weights: W of each cell, ``(N, P, M)``.
        values: t, minus the sums of the prior means, ``(M,)``.
        noise: covariance of :math:`\eta`, ``(M, M)``; zero for sums that are known exactly.
    """

    weights: Tensor
    values: Tensor
    noise: Tensor


def functionals_of(terms: Terms, values: Tensor, noise: Tensor, shape: tuple[int, int]) -> Functionals:
    """Sums of the process itself, from their terms.

    Args:
        terms: terms of M sums.
        values: ``(M,)``.
        noise: variances of their errors, ``(M,)``.
        shape: N and P.

    Returns:
        The sums, with independent errors.
    """
    rows, outputs, sums = (torch.as_tensor(each) for each in (terms.rows, terms.outputs, terms.sums))
    empty = torch.zeros(*shape, len(values), dtype=torch.float64)
    weights = empty.index_put((rows, outputs, sums), torch.as_tensor(terms.weights).double(), accumulate=True)
    return Functionals(weights, values.double(), noise.double().diag())


def sums_of_readings(sums: Functionals, residual: Tensor, noise: Tensor, observed: Tensor) -> Functionals:
    """The same sums of readings, each with its noise, of which some are known.

    Args:
        sums: sums over cells.
        residual: known readings minus their mean, ``(N, P)``.
        noise: noise variances of readings, ``(N, P)``.
        observed: which readings are known, ``(N, P)`` booleans.

    Returns:
        What remains for the readings that are not known: sums of the process with the noise of these cells, which
        sums that overlap share.
    """
    unknown = torch.where(observed[..., None], 0.0, sums.weights)
    known = torch.einsum("npm,np->m", sums.weights - unknown, torch.where(observed, residual, 0.0).double())
    shared = torch.einsum("npm,np,npl->ml", unknown, noise.double(), unknown)
    return Functionals(unknown, sums.values - known, sums.noise + shared)


def total_log_evidence(
    space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, sums: Functionals
) -> Tensor:
    """Log-density of readings and sums together, with gradients.

    Args:
        space: state space of N rows and P outputs.
        residual: readings minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        sums: M sums.

    Returns:
        In nats, a scalar.
    """
    given = _given_readings(space, residual, noise, observed, sums)
    factor = cholesky(given.covariance, name="covariance of the sums", jitter=0.0)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(given.error), scale_tril=factor)
    return log_evidence(space, residual, noise, observed) + normal.log_prob(given.error).to(residual)


class FunctionalPosterior:
    """The outputs at all rows given readings and sums; results are computed lazily and kept.

    Args:
        space: state space of N rows and P outputs.
        residual: readings minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        sums: M sums.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(3, dtype=torch.long))
        >>> y = torch.zeros(3, 1, dtype=torch.float64)
        >>> sums = Functionals(torch.ones(3, 1, 1).double(), torch.tensor([6.0]).double(), torch.zeros(1, 1).double())
        >>> posterior = FunctionalPosterior(space, y, y + 0.1, y < 0, sums)
        >>> posterior.mean.sum().round(decimals=9)
        tensor(6., dtype=torch.float64)
    """

    @torch.no_grad()
    def __init__(self, space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, sums: Functionals) -> None:
        self._points, self._sums = StateSpacePosterior(space, residual, noise, observed), sums
        self._given = _given_readings(space, residual, noise, observed, sums)
        self._factor = cholesky(self._given.covariance, name="covariance of the sums", jitter=0.0)
        self._effect = self._given.prior - covariance_product(space, self._given.solved)  # G

    @lazy
    def mean(self) -> Tensor:
        """Mean of every output at every row, ``(N, P)``."""
        return self._points.mean + self._moved(self._given.error[:, None])[..., 0]

    @lazy
    def variance(self) -> Tensor:
        """Variance of every output at every row, without noise, ``(N, P)``."""
        white = torch.linalg.solve_triangular(self._factor, self._effect.flatten(0, 1).mT, upper=False)
        explained = white.square().sum(0).reshape(self._points.variance.shape)
        return (self._points.variance - explained).clamp(min=0.0)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Joint draws of all outputs at all rows, without noise, that have the sums.

        Args:
            count: number of draws.
            generator: source of randomness; None is torch's global generator.

        Returns:
            ``(count, N, P)``.
        """
        draws = self._points.draw(count, generator)
        values, vectors = torch.linalg.eigh(self._sums.noise)
        normal = torch.randn(len(values), count, generator=generator, dtype=torch.float64)
        errors = (vectors * values.clamp(min=0.0).sqrt()) @ normal
        drawn = torch.einsum("npm,snp->ms", self._sums.weights, draws) + errors
        return draws + self._moved(self._sums.values[:, None] - drawn).movedim(-1, 0)

    def _moved(self, errors: Tensor) -> Tensor:
        """The effect on all cells, ``(N, P, S)``, of columns by which sums differ from what readings say of them."""
        return self._effect @ torch.cholesky_solve(errors, self._factor)


class _Given(NamedTuple):
    """Sums given the readings: B, A, their errors and their covariance."""

    prior: Tensor
    solved: Tensor
    error: Tensor
    covariance: Tensor


def _given_readings(space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, sums: Functionals) -> _Given:
    prior = covariance_product(space, sums.weights)
    solved = covariance_solve(space, prior, noise, observed)
    known = torch.where(observed, residual, 0.0).double()
    covariance = torch.einsum("npm,npl->ml", sums.weights, prior) - torch.einsum("npm,npl->ml", prior, solved)
    error = sums.values - torch.einsum("npm,np->m", solved, known)
    return _Given(prior, solved, error, 0.5 * (covariance + covariance.mT) + sums.noise)
