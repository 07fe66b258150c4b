r"""Observed sums as further states, so that any number of them takes time linear in the rows.

An accumulator z adds up what a sum has of each row, is read after the sum's last row, and starts anew,

.. math:: z_{i+1} = z_i + \sum_p w_{ip}\,(H_p s_i + e_{ip}), \qquad t = z + \eta

where e is the noise of readings that are not known, a state of one row. Sums that overlap have an accumulator each.

Source: Harvey (1989), Forecasting, structural time series models and the Kalman filter, section 6.3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.functional.gaussians import lazy

from .expansions import Expansion, expansion_variances
from .factors import RowFactor
from .filter import Array, Chain, diagonal_blocks
from .functionals import FunctionalPosterior, Functionals, known_as_zero
from .space import StateSpace
from .totals import Terms, total_variances

__all__ = ["AccumulatedPosterior", "SumChain", "posterior_given_sums"]

_FEW, _MOST_ACCUMULATORS = 8, 6  # sums that take less time as columns, and sums that overlap


def posterior_given_sums(
    space: StateSpace, residual: Tensor, noise: Tensor, observed: Tensor, sums: Functionals
) -> FunctionalPosterior:
    """A posterior given readings and sums, as columns where they are few or overlap much, else as states."""
    is_long = len(sums.values) > _FEW and _accumulators(sums.terms)[0].max() < _MOST_ACCUMULATORS
    kind = AccumulatedPosterior if is_long else FunctionalPosterior
    return kind(space, residual, noise, observed, sums)


def _accumulators(terms: Terms) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The accumulator of each of M sums, so that none has two at a time, and their last rows."""
    count = int(terms.sums.max()) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
    np.minimum.at(first, terms.sums, terms.rows)
    np.maximum.at(last, terms.sums, terms.rows)
    numbers, ends = np.zeros(count, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for m in np.argsort(first, kind="stable"):
        free = np.flatnonzero(ends < first[m])
        numbers[m] = free[0] if len(free) else len(ends)
        if not len(free):
            ends = np.append(ends, last[m])
        ends[numbers[m]] = last[m]
    return numbers, last


class SumChain(Chain):
    """The recursions of a state space with E noises of readings and C accumulators; sums are read in rows of their own.

    States are those of the processes by value, noises, accumulators, then the other derivatives; outputs are the P of
    the space, E of them as readings, and the accumulators.

    Args:
        space: state space of N rows and P outputs.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        sums: M sums.

    Attributes:
        rows: where the rows of the space are, ``(N,)``.
        readings: row and output of each reading of the sums, ``(U,)`` each.
        sum_cells: row and output at which each sum is read, ``(M,)`` each.
    """

    def __init__(self, space: StateSpace, noise: Tensor, observed: Tensor, sums: Functionals) -> None:
        super().__init__(space, noise, observed)
        self.base, (N, P), terms = Chain(space), self.observed.shape, sums.terms
        readings = sums.readings.numpy()
        seen = readings >= 0
        homes = np.zeros((2, len(sums.variances)), dtype=np.int64)  # of a reading that is at several rows of one time
        homes[:, readings[seen]] = terms.rows[seen], terms.outputs[seen]
        rows = terms.rows.copy()
        rows[seen] = homes[0, readings[seen]]
        terms = terms._replace(rows=rows)
        numbers, last = _accumulators(terms)
        ended = np.unique(last)
        noisy = np.unique(terms.outputs[readings >= 0])
        K, E, C = self.count, len(noisy), int(numbers.max()) + 1
        self.rows = np.arange(N) + np.searchsorted(ended, np.arange(N))
        as_readings = np.full(P, -1)
        as_readings[noisy] = P + np.arange(E)
        self.readings = self.rows[homes[0]], as_readings[homes[1]]
        self.sum_cells = self.rows[last] + 1, P + E + numbers
        self._original = np.full(N + len(ended), -1)
        self._original[self.rows] = np.arange(N)
        self._widen(noisy, C, sums.noise.numpy())
        self._values = np.concatenate([np.arange(K), np.arange(K + E + C, self.size)])
        self._own_noise = np.zeros((len(self._original), E))
        self._own_noise[self.readings[0], self.readings[1] - P] = sums.variances.numpy()
        order = np.argsort(terms.rows, kind="stable")
        self._terms, self._places = terms.chosen(order), np.searchsorted(terms.rows[order], np.arange(N + 1))
        columns = np.where(seen, as_readings[terms.outputs], terms.outputs)[order]
        self._parts = numbers[self._terms.sums], columns
        self._still, self._noise = _Still(), (-1, np.zeros((0, 0)))

    def _widen(self, noisy: NDArray[np.int64], accumulators: int, errors: Array) -> None:
        """Loadings, cells and states with those of noises and accumulators."""
        P, K, E, C = len(self.loadings), self.count, len(noisy), accumulators
        loadings, shape = np.zeros((P + E + C, K + E + C)), (len(self._original), P + E + C)
        loadings[: P + E, :K] = np.concatenate([self.loadings, self.loadings[noisy]])
        loadings[P:, K:] = np.eye(E + C)
        variances, observed = np.zeros(shape), np.zeros(shape, dtype=bool)
        variances[self.rows, :P], observed[self.rows, :P] = self.variances, self.observed
        variances[self.sum_cells], observed[self.sum_cells] = errors, True
        self.loadings, self.variances, self.observed = loadings, variances, observed
        self.count, self.size = K + E + C, self.size + E + C

    @property
    def start(self) -> Array:
        """The covariance of the states before the first row."""
        C = np.zeros((self.size, self.size))
        C[np.ix_(self._values, self._values)] = diagonal_blocks(self.base.stationary)
        return C

    def transition(self, row: int) -> Any:
        """The step to a row, one to the first included."""
        K, E = self.base.count, self._own_noise.shape[1]
        number, before = int(self._original[row]), int(self._original[row - 1]) if row else -1
        step = self.base.transition(number) if row and number >= 0 else self._still
        weights = np.zeros((self.count - K - E, K + E))
        if before >= 0:
            here = slice(self._places[before], self._places[before + 1])
            accumulators, outputs = (part[here] for part in self._parts)
            added = self._terms.weights[here, None] * self.loadings[outputs, : K + E]
            np.add.at(weights, accumulators, added)
        keep = np.ones(len(weights))
        if row and before < 0:
            keep[self.observed[row - 1, -len(keep) :]] = 0.0
        return _Step(step, self._noise_of(step, number), (weights, keep, self._own_noise[row]), self._values)

    def _noise_of(self, step: Any, number: int) -> Array | None:
        """The noise Q of the processes."""
        if step is self._still:
            return None
        lag = int(self.base.steps[number])
        if self._noise[0] != lag:
            self._noise = lag, diagonal_blocks(self.base.tables[1][lag])
        return self._noise[1]


class _Still:
    """No step."""

    def forward(self, x: Array) -> Array:
        return x

    adjoint = forward


class _Step:
    """A step of the processes, of noises that are drawn anew, and of accumulators."""

    def __init__(self, step: Any, noise: Array | None, further: tuple[Array, Array, Array], values: Any) -> None:
        self._step, self._noise, self._values = step, noise, values
        self._weights, self._keep, self._own = further
        count = self._weights.shape[1]
        self._sums = slice(count, count + len(self._keep))

    def forward(self, x: Array) -> Array:
        moved = np.zeros_like(x)
        moved[self._values] = self._step.forward(x[self._values])
        moved[self._sums] = self._keep[:, None] * x[self._sums] + self._weights @ x[: self._sums.start]
        return moved

    def adjoint(self, r: Array) -> Array:
        moved = np.zeros_like(r)
        moved[self._values] = self._step.adjoint(r[self._values])
        moved[: self._sums.start] += self._weights.T @ r[self._sums]
        moved[self._sums] = self._keep[:, None] * r[self._sums]
        return moved

    def spread(self, C: Array) -> Array:
        moved = self.forward(self.forward(C).T)
        if self._noise is not None:
            moved[self._values[:, None], self._values] += self._noise
        noises = np.arange(self._sums.start - len(self._own), self._sums.start)
        moved[noises, noises] += self._own
        return moved

    def precise(self, N: Array) -> Array:
        return self.adjoint(self.adjoint(N).T)


class AccumulatedPosterior(FunctionalPosterior):
    """As :class:`.FunctionalPosterior`, with the sums as states.

    Arguments are the same.

    Example:
        >>> from cgp.statespace.processes import matern_process
        >>> from cgp.statespace.space import state_space
        >>> process = matern_process(torch.tensor([1.0], dtype=torch.float64), 1)
        >>> space = state_space([process], [torch.ones(1, 1)], torch.zeros(4, dtype=torch.long))
        >>> y, nothing = torch.zeros(4, 1, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        >>> terms = Terms(np.arange(4), np.zeros(4, dtype=int), np.ones(4), np.array([0, 0, 1, 1]))
        >>> sums = Functionals(terms, y[:2, 0] + 6.0, y[:2, 0], torch.full((4,), -1), nothing)
        >>> posterior = AccumulatedPosterior(space, y, y + 0.1, y < 0, sums)
        >>> posterior.marginals(torch.arange(4))[0].reshape(2, 2).sum(1).round(decimals=9)
        tensor([6., 6.], dtype=torch.float64)
    """

    @lazy
    def _chain(self) -> SumChain:
        space, _, noise, observed = self._given
        return SumChain(space, noise, observed, self.sums)

    @lazy
    def _factors(self) -> RowFactor:
        return RowFactor(self._chain, self._chain.start, False)

    @lazy
    def log_evidence(self) -> Tensor:
        """Log-density of readings and sums, in nats."""
        factor, count = self._factors, int(self._chain.observed.sum())
        quadratic = factor.quadratic(self._observed)
        value = -0.5 * (quadratic[0] + factor.log_determinant + count * math.log(2.0 * math.pi))
        return torch.tensor(value, dtype=torch.float64)

    def marginals(self, cells: Tensor, readings: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As :meth:`.FunctionalPosterior.marginals`."""
        places = self._at(cells, readings)
        return torch.as_tensor(self._smoothed[0][places][:, 0]), torch.as_tensor(self._spread[0][places])

    def total_variances(self, cells: Tensor, terms: Terms, readings: Tensor | None = None) -> Tensor:
        """As :meth:`.FunctionalPosterior.total_variances`."""
        rows, outputs = self._at(cells, readings)
        variances = total_variances(self._chain, self._factors.rows, Terms(rows, outputs, *terms[2:]))
        sizes = np.abs(terms.weights) * np.sqrt(self._spread[0][rows, outputs])
        return known_as_zero(torch.as_tensor(variances), sizes, terms.sums)

    def expansion_variances(
        self, cells: Tensor, terms: Terms, expansion: Expansion, readings: Tensor | None = None
    ) -> Tensor:
        """As :meth:`.FunctionalPosterior.expansion_variances`."""
        terms = Terms(*self._at(cells, readings), *terms[2:])
        variances = expansion_variances(self._chain, self._factors.rows, terms, expansion)
        return known_as_zero(torch.as_tensor(variances), expansion.sizes, terms.sums)

    def draw(
        self,
        count: int,
        cells: Tensor,
        readings: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """As :meth:`.FunctionalPosterior.draw`."""
        prior = self._chain.base.prior_draws(count, generator)

        def normal(variances: Array) -> Array:
            return (
                np.sqrt(variances)[..., None]
                * torch.randn((*variances.shape, count), generator=generator, dtype=torch.float64).numpy()
            )

        noise, sums = normal(self.sums.variances.numpy()), normal(self.sums.noise.numpy())
        rows, outputs, weights, numbers = self.sums.terms
        own, noisy = self.sums.readings.numpy(), self.sums.readings.numpy() >= 0
        np.add.at(sums, numbers, weights[:, None] * prior[rows, outputs])
        np.add.at(sums, numbers[noisy], weights[noisy, None] * noise[own[noisy]])
        drawn = prior + normal(self._given[2].double().numpy())
        known = self._factors.smoothed(self._whitened(drawn, torch.as_tensor(sums)))[0]
        places, flat = self._at(cells, readings), prior.reshape(-1, count)[cells.numpy()]
        result = self._smoothed[0][places] + flat - known[places]
        if readings is not None and len(noise):
            at = readings.numpy()
            result[at >= 0] += noise[at[at >= 0]]
        return torch.as_tensor(result).mT

    def leave_one_out(self, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As :meth:`.FunctionalPosterior.leave_one_out`."""
        if known is not None and known.any():
            return super().leave_one_out(known)
        seen, outputs = self._given[3].numpy(), self._given[3].shape[1]
        cells = (self._smoothed[1][..., 0], self._spread[1])
        weights, precision = (torch.as_tensor(each[self._chain.rows, :outputs][seen]) for each in cells)
        return weights, precision

    def _at(self, cells: Tensor, readings: Tensor | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and outputs of the chain at cells."""
        rows, outputs = np.divmod(cells.numpy(), self._given[1].shape[1])
        rows = self._chain.rows[rows]
        if readings is not None and len(self.sums.variances):
            at = readings.numpy()
            both = ((rows, outputs), (each[at] for each in self._chain.readings))
            rows, outputs = (np.where(at >= 0, reading, cell) for cell, reading in zip(*both, strict=True))
        return rows, outputs

    def _whitened(self, values: Array, sums: Tensor) -> Any:
        """Columns of readings ``(N, P, S)`` and of sums ``(M, S)``."""
        chain, S = self._chain, values.shape[-1]
        table = np.zeros((*chain.observed.shape, S))
        table[chain.rows, : values.shape[1]], table[chain.sum_cells] = values, sums.double().numpy()
        return self._factors.whitened(np.where(chain.observed[..., None], table, 0.0), np.zeros((chain.size, S)))

    @lazy
    def _observed(self) -> Any:
        return self._whitened(self._given[1].double().numpy()[..., None], self.sums.values[:, None])

    @lazy
    def _smoothed(self) -> tuple[Array, Array]:
        return self._factors.smoothed(self._observed)

    @lazy
    def _spread(self) -> tuple[Array, Array]:
        return self._factors.spread()
