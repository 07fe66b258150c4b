r"""Observations that are weighted sums of the outputs, beside readings of single ones, in time linear in the rows.

With the readings y conditioned on first, M sums :math:`t = Wf + \eta` are a normal vector of few entries,

.. math:: t \mid y \sim N\big(W\hat f,\; WG + \operatorname{Cov}\eta\big), \qquad
    G = \operatorname{Cov}[f, Wf \mid y] = KW^\top - K(K + \Sigma)^{-1}KW^\top

and what they say of the outputs follows from G. That is M more columns of products and solutions, exact for sums that
overlap, of several outputs, and of rows in any order. A sum may be one of readings: then the noise of those that are
not known, which sums that overlap share, is part of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import cholesky

from .evidence import log_evidence
from .expansions import Expansion
from .filter import Array
from .posterior import StateSpacePosterior
from .products import covariance_columns, covariance_product, covariance_solve
from .space import StateSpace
from .totals import Terms

__all__ = ["FunctionalPosterior", "Functionals", "Response", "known_as_zero", "total_log_evidence"]

_ENTRIES = 2**20  # of columns that are computed together
_ROUNDING = 1e-8  # of a variance without the sums: what remains below is that of a sum that is known


class Functionals(NamedTuple):
    r"""Weighted sums that were observed.

    Attributes:
        terms: which cells, with what weight, in which of M sums.
        values: t, minus the sums of the prior means, ``(M,)``.
        noise: variances of errors of the sums themselves, ``(M,)``; zero for sums that are known exactly.
        readings: the reading that each term is of, 0 … U-1, or -1 where it is of the process itself.
        variances: of the noise of these readings, ``(U,)``.
    """

    terms: Terms
    values: Tensor
    noise: Tensor
    readings: Tensor
    variances: Tensor

    def columns(self, shape: tuple[int, int], first: int = 0, last: int | None = None) -> Tensor:
        """The weights of all cells in some sums, ``(N, P, S)``."""
        last = len(self.values) if last is None else last
        rows, outputs, weights, sums = (torch.as_tensor(each) for each in self.terms)
        some = (sums >= first) & (sums < last)
        places = rows[some], outputs[some], sums[some] - first
        return weights.new_zeros(*shape, last - first).index_put(places, weights[some], accumulate=True)

    def applied(self, values: Tensor) -> Tensor:
        """The sums of values ``(N, P, S)``, ``(M, S)``."""
        rows, outputs, weights, sums = (torch.as_tensor(each) for each in self.terms)
        parts = weights[:, None] * values[rows, outputs]
        return parts.new_zeros(len(self.values), values.shape[-1]).index_add(0, sums, parts)

    @property
    def shares(self) -> Tensor:
        """The weights of readings in the sums, ``(U, M)``."""
        _, _, weights, sums = (torch.as_tensor(each) for each in self.terms)
        noisy = self.readings >= 0
        empty = weights.new_zeros(len(self.variances), len(self.values))
        return empty.index_put((self.readings[noisy], sums[noisy]), weights[noisy], accumulate=True)

    @property
    def errors(self) -> Tensor:
        """The covariance of what the sums have besides those of the process, ``(M, M)``."""
        shares = self.shares
        return self.noise.diag() + shares.mT @ (self.variances[:, None] * shares)


class Response(NamedTuple):
    """How means at cells follow sums.

    Attributes:
        slopes: of the means by the values of the sums, ``(t, M)``.
        error: values of the sums less their means given the readings, ``(M,)``.
        covariance: of the sums given the readings, ``(M, M)``.
    """

    slopes: Tensor
    error: Tensor
    covariance: Tensor


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
    prior = covariance_product(space, sums.columns((len(residual), residual.shape[-1])))
    solved = covariance_solve(space, prior, noise, observed)
    known = torch.where(observed, residual, 0.0).double()
    covariance = sums.applied(prior) - torch.einsum("npm,npl->ml", prior, solved)
    error = sums.values - torch.einsum("npm,np->m", solved, known)
    factor = _root(sums, covariance)
    return log_evidence(space, residual, noise, observed) + _log_density(error, factor).to(residual)


class FunctionalPosterior:
    """Outputs and readings at cells given readings and sums.

    Args:
        space: state space of N rows and P outputs.
        residual: readings minus their mean, ``(N, P)``; missing ones are ignored.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        sums: M sums.

    Example:
        >>> import numpy as np
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(3, dtype=torch.long))
        >>> y, nothing = torch.zeros(3, 1, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        >>> terms = Terms(np.arange(3), np.zeros(3, dtype=int), np.ones(3), np.zeros(3, dtype=int))
        >>> sums = Functionals(terms, y[:1, 0] + 6.0, y[:1, 0], torch.full((3,), -1), nothing)
        >>> posterior = FunctionalPosterior(space, y, y + 0.1, y < 0, sums)
        >>> posterior.marginals(torch.arange(3))[0].sum().round(decimals=9)
        tensor(6., dtype=torch.float64)
    """

    def __init__(self, space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, sums: Functionals) -> None:
        self._given, self.sums = (space, residual, noise, observed), sums

    @lazy
    def points(self) -> StateSpacePosterior:
        """Given the readings only."""
        return StateSpacePosterior(*self._given)

    @lazy
    @torch.no_grad()
    def _columns(self) -> tuple[Tensor, Tensor]:
        """The covariances of cells with the sums given the readings, ``(N P, M)``, and the readings' weights."""
        (space, residual, _, observed), effects, weights = self._given, [], []
        count, width = len(self.sums.values), max(1, _ENTRIES // residual.numel())
        for first in range(0, count, width):
            columns = self.sums.columns((len(residual), residual.shape[-1]), first, min(first + width, count))
            prior = covariance_columns(space, columns)
            explained, solved = self.points.regressed(prior)
            effects.append((prior - explained).flatten(0, 1))
            weights.append(solved[observed])
        return torch.cat(effects, dim=-1), torch.cat(weights, dim=-1)

    @lazy
    def _factor(self) -> Tensor:
        """The root of the covariance of the sums given the readings, ``(M, M)``."""
        effect = self._columns[0].reshape(*self._given[1].shape, -1)
        return _root(self.sums, self.sums.applied(effect))

    @property
    def log_evidence(self) -> Tensor:
        """Log-density of readings and sums, in nats."""
        return self.points.log_evidence + _log_density(self._error[:, 0], self._factor)

    @lazy
    def _shares(self) -> Tensor:
        """The weights of readings in the sums, ``(U, M)``."""
        return self.sums.shares

    @lazy
    def _error(self) -> Tensor:
        """What the sums differ by from what the readings say of them, ``(M, 1)``."""
        return self.sums.values[:, None] - self.sums.applied(self.points.mean[..., None])

    @lazy
    def _moved(self) -> Tensor:
        """The same as weights of effects, ``(M, 1)``."""
        return torch.cholesky_solve(self._error, self._factor)

    def marginals(self, cells: Tensor, readings: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances of the outputs, or of readings without the noise of those that no sum has.

        Args:
            cells: numbers of cells, ``(t,)``.
            readings: of the sums, -1 for others, ``(t,)``; None is the outputs.

        Returns:
            ``(t,)`` each.
        """
        effect = self._effects(cells, readings)
        mean = self.points.mean.flatten()[cells] + (effect @ self._moved)[:, 0]
        variance = self.points.variance.flatten()[cells] + self._noise(readings, len(cells)) - self._explained(effect)
        return mean, variance.clamp(min=0.0)

    def explained_covariance(self, cells: Tensor, readings: Tensor | None = None) -> Tensor:
        """By how much the sums reduce the covariance at cells, ``(t, t)``."""
        effect = self._effects(cells, readings)
        return effect @ torch.cholesky_solve(effect.mT, self._factor)

    def total_variances(self, cells: Tensor, terms: Terms, readings: Tensor | None = None) -> Tensor:
        """Variances of other sums of outputs, or of readings without the noise of those that no known sum has.

        Args:
            cells: numbers of cells, those of the terms.
            terms: of A sums.
            readings: as in :meth:`marginals`.

        Returns:
            ``(A,)``.
        """
        weights, sums = torch.as_tensor(terms.weights), torch.as_tensor(terms.sums)
        before = self.points.total_variances(terms)
        before = before.index_add(0, sums, weights.square() * self._noise(readings, len(cells)))
        effect = self._effects(cells, readings)
        summed = effect.new_zeros(len(before), effect.shape[-1]).index_add(0, sums, weights[:, None] * effect)
        variance = before - self._explained(summed)
        return torch.where(variance > _ROUNDING * before, variance, 0.0)

    def expansion_variances(
        self, cells: Tensor, terms: Terms, expansion: Expansion, readings: Tensor | None = None
    ) -> Tensor:
        """As :meth:`.StateSpacePosterior.expansion_variances`; cells and readings as in :meth:`total_variances`."""
        noise = expansion.noise + self._noise(readings, len(cells)).numpy()
        white = self._white(self._effects(cells, readings)).mT.numpy()
        given = expansion._replace(noise=noise, further=white, sign=-1.0)
        return known_as_zero(self.points.expansion_variances(terms, given), expansion.sizes, terms.sums)

    def draw(
        self,
        count: int,
        cells: Tensor,
        readings: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Joint draws of the outputs, or of readings without the noise of those that no sum has: they have the sums.

        Args:
            count: number of draws.
            cells: numbers of cells, ``(t,)``.
            readings: as in :meth:`marginals`.
            generator: source of randomness; None is torch's global generator.

        Returns:
            ``(count, t)``.
        """

        def normal(variances: Tensor) -> Tensor:
            shape = (len(variances), count)
            return variances.sqrt()[:, None] * torch.randn(shape, generator=generator, dtype=torch.float64)

        draws = self.points.draw(count, generator).movedim(0, -1)
        noise, errors = normal(self.sums.variances), normal(self.sums.noise)
        drawn = self.sums.applied(draws) + self._shares.mT @ noise + errors
        moved = torch.cholesky_solve(self.sums.values[:, None] - drawn, self._factor)
        result = draws.flatten(0, 1)[cells] + self._effects(cells, readings) @ moved
        if readings is not None and len(noise):
            result = result + torch.where((readings >= 0)[:, None], noise[readings], 0.0)
        return result.mT

    def response(self, cells: Tensor, readings: Tensor | None = None) -> Response:
        """How the means at cells follow the sums; cells and readings as in :meth:`marginals`."""
        moved = torch.cholesky_solve(self._effects(cells, readings).mT, self._factor).mT
        return Response(moved, self._error[:, 0], self._factor @ self._factor.mT)

    def leave_one_out(self, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r"""Weights and precisions of the readings given the sums: those of :math:`(y, t)` at y.

        Args:
            known: weights of the observed readings in the sums, ``(n, M)``, which their values leave as they are; None
                is no weight.

        Returns:
            ``(n,)`` each, of the observed cells in order.
        """
        seen = torch.as_tensor(self.points.observed)
        effect = self._columns[1] if known is None else self._columns[1] + known
        weights = self.points.weights[seen] - (effect @ self._moved)[:, 0]
        return weights, self.points.precision[seen] + self._explained(effect)

    def _effects(self, cells: Tensor, readings: Tensor | None) -> Tensor:
        """Covariances of outputs or readings with the sums, ``(t, M)``."""
        effect = self._columns[0][cells]
        if readings is None or not len(self.sums.variances):
            return effect
        shares = (self.sums.variances[:, None] * self._shares)[readings]
        return effect + torch.where((readings >= 0)[:, None], shares, 0.0)

    def _noise(self, readings: Tensor | None, count: int) -> Tensor:
        if readings is None or not len(self.sums.variances):
            return torch.zeros(count, dtype=torch.float64)
        return torch.where(readings >= 0, self.sums.variances[readings], 0.0)

    def _white(self, effect: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self._factor, effect.mT, upper=False)

    def _explained(self, effect: Tensor) -> Tensor:
        return self._white(effect).square().sum(0)


def known_as_zero(variances: Tensor, sizes: Array, sums: NDArray[np.int64]) -> Tensor:
    """Variances of sums, those of known ones 0: what is left is below the rounding of their terms of these sizes."""
    total = torch.as_tensor(np.bincount(sums, sizes))
    return torch.where(variances > _ROUNDING * total.square(), variances, 0.0)


def _log_density(error: Tensor, factor: Tensor) -> Tensor:
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(error), scale_tril=factor)
    return normal.log_prob(error)


def _root(sums: Functionals, covariance: Tensor) -> Tensor:
    """The root of the covariance of sums given the readings, from that of their outputs, ``(M, M)``."""
    return cholesky(0.5 * (covariance + covariance.mT) + sums.errors, name="covariance of the sums", jitter=0.0)
