"""What predictions keep of observed rows, so that a further one takes the time of its own rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cgp.operators.markov import MarkovLinearOperator
from cgp.statespace.between import MOST_ENTRIES, Between, KeptRows, Requested, kept_rows
from cgp.statespace.factors import FilterState
from cgp.statespace.filter import Chain
from cgp.statespace.kernels import Steps

from .markov_rows import Layout, MarkovTerm, entries_of, markov_terms, observed_rows, space_of

__all__ = ["Known", "MarkovMemory", "MemoryPosterior"]


class Known(NamedTuple):
    """The observations: minus their mean, noise variances, and which there are, ``(*batch, n)`` each."""

    residual: Tensor
    noise: Tensor
    observed: Tensor

    @property
    def requires_grad(self) -> bool:
        """Whether gradients by them are asked for."""
        return torch.is_grad_enabled() and (self.residual.requires_grad or self.noise.requires_grad)


class _End(NamedTuple):
    """The state after a number of rows, the input of the last, and the parameters that it is of."""

    rows: int
    time: float
    state: FilterState
    parameters: list[Tensor]


class MemoryPosterior(NamedTuple):
    """The outputs at new rows in order, and the place of each row in it."""

    ordered: Between
    places: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances, ``(m,)`` each."""
        mean, variance = (torch.as_tensor(each)[self.places] for each in (self.ordered.mean(), self.ordered.variance()))
        return mean, variance

    def covariance(self) -> Tensor:
        """Covariance, ``(m, m)``."""
        return torch.as_tensor(self.ordered.covariance())[self.places][:, self.places]


class MarkovMemory:
    """Observed rows of a kernel, and what is kept of them as long as its parameters stay as they are.

    Args:
        x: the rows, ``(n, d)``.
        end: what is known after the first of them; then predictions after these take no others.
    """

    def __init__(self, x: Tensor, end: _End | None = None) -> None:
        self._x, self._before = x, end
        self._parameters: list[Tensor] = []
        self._kept: dict[int, KeptRows | None] = {}  # by the number of rows before them

    def end(self) -> _End | None:
        """The state after all rows, if a prediction has computed it."""
        every = [rows for rows in self._kept.values() if rows is not None]
        return _End(len(self._x), float(every[0].times[-1]), every[0].end(), self._parameters) if every else None

    def posterior(self, kernel: Kernel, layout: Layout, known: Known, new: Tensor) -> MemoryPosterior | None:
        """The outputs at new rows ``(m, d)``, or None where they are not to be had from what is kept."""
        self._check(kernel)
        terms = markov_terms(kernel)
        times, outputs, _ = entries_of(new.double(), layout, 0)
        if not len(times):
            return None
        rows = self._rows(terms, layout, known, float(times.min()))
        if rows is None or len(times) * rows.mean.shape[1] ** 2 > MOST_ENTRIES:
            return None
        times, order = times.sort()
        start = min(float(times[0]), float(rows.times[0]))
        lags = torch.as_tensor(rows.lags(times.numpy(), start)).flatten()
        steps = Chain(space_of(terms, layout, Steps(lags, lags.new_tensor(start)), torch.arange(len(lags))))
        return MemoryPosterior(Between(rows, steps, Requested(times.numpy(), outputs[order].numpy())), order.argsort())

    def _check(self, kernel: Kernel) -> None:
        """Forget what is of other parameters."""
        now = [each.detach().clone() for each in kernel.state_dict().values()]
        if not _are_equal(now, self._parameters):
            self._parameters, self._kept = now, {}
        if self._before is not None and not _are_equal(now, self._before.parameters):
            self._before = None

    def _rows(self, terms: list[MarkovTerm], layout: Layout, known: Known, first: float) -> KeptRows | None:
        """The rows after those known before if no input is earlier, else all."""
        before = self._before
        if before is not None and first >= before.time:
            rows = self._kept_after(terms, layout, known, before)
            if rows is not None:
                return rows
        return self._kept_after(terms, layout, known, None)

    def _kept_after(
        self, terms: list[MarkovTerm], layout: Layout, known: Known, before: _End | None
    ) -> KeptRows | None:
        count = 0 if before is None else before.rows
        if count not in self._kept:
            self._kept[count] = self._computed(terms, layout, known, before)
        return self._kept[count]

    def _computed(self, terms: list[MarkovTerm], layout: Layout, known: Known, before: _End | None) -> KeptRows | None:
        x, time = (self._x, None) if before is None else (self._x[before.rows :], before.time)
        space, cells, times = observed_rows(terms, layout, x, time)
        if time is not None and float(times.min()) < time:
            return None
        residual, noise, observed = (each[len(known.noise) - len(cells) :] for each in known)
        _, member = next(MarkovLinearOperator.of(space, cells, noise)._members(torch.Size()))
        chain = Chain(space, member.noises(), member.observed(observed))
        table = member.table(residual.double()[:, None])[..., 0]
        return kept_rows(chain, table.numpy(), times.numpy(), None if before is None else (before.time, before.state))


def _are_equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(torch.equal(*pair) for pair in zip(some, others, strict=True))
