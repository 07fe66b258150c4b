"""State spaces of observations of several outputs over one input, possibly after earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cgp.kernels.canonical_kernel import process_numbers
from cgp.kernels.markov_forms import markov_processes
from cgp.statespace.evidence import log_evidence
from cgp.statespace.factors import FilterState
from cgp.statespace.kernels import Steps
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import MarkovProcess
from cgp.statespace.space import StateSpace, state_space
from cgp.statespace.timeline import TimeLine, time_line
from cgp.statespace.totals import Terms

from .covariances.rows import RowKernel

__all__ = ["Frontier", "Observations", "Series", "SeriesComponent", "advanced", "member_of", "series_of"]


_LEAST_LOADING = 1e-5  # of a copy that is in the chain


class Observations(NamedTuple):
    """Observations of a chain.

    Attributes:
        places: input and output of each, ``(n, 2)``.
        residual: observations minus their mean, ``(n,)``.
        noise: noise variances, ``(n,)``.
    """

    places: Tensor
    residual: Tensor
    noise: Tensor

    def joined(self, further: Observations) -> Observations:
        """These and further observations."""
        return Observations(*(torch.cat(pair) for pair in zip(self, further, strict=True)))

    def chosen(self, which: Tensor) -> Observations:
        """The observations selected by a mask ``(n,)``."""
        return Observations(*(values[which] for values in self))


class Settled(NamedTuple):
    """The end of the part of a chain that precedes all later observations.

    Attributes:
        place: input and output of its last row, ``(2,)``.
        state: distribution of the states after it.
    """

    place: Tensor
    state: FilterState


class Frontier(NamedTuple):
    """The state of a filter: all that later rows and predictions need of the past.

    Attributes:
        latest: the largest input.
        settled: end of the chain up to the earliest possible later observation; None if that may precede all rows.
        pending: observations after that, of outputs that are ahead of others.
    """

    latest: float
    settled: Settled | None
    pending: Observations

    def series(self, components: Sequence[SeriesComponent], besides: Tensor) -> Series:
        """The chain from this point, with rows ``(t, 2)`` in addition to its observations."""
        return series_of(self.pending, components, besides, self.settled)


class Series(NamedTuple):
    """A member of a batch as a state space.

    Attributes:
        space: state space of N rows and P outputs.
        line: positions of the observations and of further requested rows on the time line.
        residual: observations minus their mean, ``(N, P)``.
        noise: noise variances, ``(N, P)``.
        observed: whether observed, ``(N, P)`` booleans.
        start: distribution of the states before the first row; None is the stationary distribution.
    """

    space: StateSpace
    line: TimeLine
    residual: Tensor
    noise: Tensor
    observed: Tensor
    start: FilterState | None

    @property
    def table(self) -> tuple[StateSpace, Tensor, Tensor, Tensor]:
        """State space and observations."""
        return self.space, self.residual, self.noise, self.observed

    def log_evidence(self) -> Tensor:
        """Log-density of the observations in nats, with gradients."""
        return log_evidence(*self.table)

    def posterior(self) -> StateSpacePosterior:
        """The outputs at all rows given the observations."""
        return StateSpacePosterior(*self.table, start=self.start)

    def terms(self, cells: Tensor, weights: Tensor, sums: Tensor) -> Terms:
        """The terms of sums at cells."""
        places = np.divmod(cells.numpy(), self.residual.shape[-1])
        return Terms(*places, weights.double().numpy(), sums.numpy())


class SeriesComponent(NamedTuple):
    """A component of the covariance with its parameters for each output.

    Attributes:
        kernel: covariance of the canonical process.
        loadings: ``(*batch, P, R)``.
        scales: inverse lengthscales, ``(*batch, P)``.
        shifts: ``(*batch, P)``, or None.
        has_ratios: whether outputs have different lengthscales; each then has a separate copy.
    """

    kernel: Kernel
    loadings: Tensor
    scales: Tensor
    shifts: Tensor | None
    has_ratios: bool

    @classmethod
    def of(cls, component: RowKernel) -> Self:
        """The component of a kernel of rows, for all members of a batch."""
        maps = component.input_maps
        shifts = None if maps.all_shifts is None else maps.all_shifts[..., 0].double()
        scales = maps.all_scales[..., 0].double()
        return cls(component.covar_module, component.loadings().double(), scales, shifts, maps.log_ratios is not None)

    def member(self, batch: torch.Size, index: tuple[int, ...]) -> Self:
        """The component for a member of the batch."""
        shifts = None if self.shifts is None else member_of(self.shifts, 1, batch, index)
        scales, loadings = member_of(self.scales, 1, batch, index), member_of(self.loadings, 2, batch, index)
        return self._replace(loadings=loadings, scales=scales, shifts=shifts)

    def processes(self, line: TimeLine, start: Tensor) -> Iterator[tuple[MarkovProcess, Tensor]]:
        """Processes at the lags of the rows, each with the loadings ``(P, R)`` of its copies."""
        if self.has_ratios:
            for scale, column in zip(self.scales, self.loadings.mT, strict=True):
                for process in markov_processes(self.kernel, Steps(scale * line.gaps, scale * start)):
                    yield process, column[:, None]
            return
        lags, first = self.scales[0] * line.gaps, self.scales[0] * start
        if self.shifts is not None:
            before, after = self.shifts[line.outputs].unbind(-1)
            lags, first = lags + (after - before), first + self.shifts[line.outputs[line.steps[0], 1]]
            lags = lags - lags.detach().clamp(max=0.0)  # equal times may differ by rounding: no negative lags
        largest = self.loadings.detach().abs().amax(0)
        present = (largest > _LEAST_LOADING) | (largest == 0.0)  # a fit may start at nought
        loadings = self.loadings[:, present] if present.any() else self.loadings[:, :1]
        for process in markov_processes(self.kernel, Steps(lags, first)):
            yield process, loadings

    @property
    def delays(self) -> Tensor:
        """Delay of each output with respect to the processes, in units of the inputs, ``(P,)``."""
        return torch.zeros_like(self.scales) if self.shifts is None else self.shifts / self.scales


def series_of(
    observations: Observations,
    components: Sequence[SeriesComponent],
    besides: Tensor | None = None,
    settled: Settled | None = None,
) -> Series:
    """The state space of observations, of a member of a batch.

    Args:
        observations: n of them.
        components: components of the covariance.
        besides: further rows, ``(t, 2)``.
        settled: end of an earlier chain that this one continues.

    Returns:
        Its cells are those of the observations, then those of the further rows.
    """
    places = observations.places if besides is None else torch.cat([observations.places, besides])
    outputs, count = len(components[0].loadings), len(observations.residual)
    delays = None if components[0].shifts is None else components[0].delays
    before = None if settled is None else (float(settled.place[0]), int(settled.place[1]))
    line = time_line(places[:, 0], process_numbers(places, outputs), outputs, count, delays, before)
    start = places[line.first, 0].double()
    processes, loadings = zip(
        *(pair for component in components for pair in component.processes(line, start)), strict=True
    )
    shape, cells = (len(line.steps), outputs), line.cells[:count]
    empty = torch.zeros(shape, dtype=torch.float64).flatten()
    observed = torch.zeros_like(empty, dtype=torch.bool).index_fill(0, cells, True).reshape(shape)
    residual, noise = (empty.index_put((cells,), values.double()).reshape(shape) for values in observations[1:])
    state = None if settled is None else settled.state
    return Series(state_space(processes, loadings, line.steps), line, residual, noise, observed, state)


@torch.no_grad()
def advanced(
    frontier: Frontier | None, further: Observations, components: Sequence[SeriesComponent], latest: float
) -> Frontier:
    """The filter after further observations.

    Args:
        frontier: state of the filter before them; None if they are the first observations.
        further: observations, none before the latest earlier one.
        components: components of the covariance.
        latest: largest input of all.

    Returns:
        The state of the filter after them.
    """
    settled, pending = (None, further) if frontier is None else (frontier.settled, frontier.pending.joined(further))
    delays = components[0].delays
    times = pending.places[:, 0] + delays[process_numbers(pending.places, len(delays))]
    past = times <= latest + delays.min()
    if past.any():
        series = series_of(pending.chosen(past), components, settled=settled)
        settled = Settled(pending.places[past][series.line.last], series.posterior().last)
    return Frontier(latest, settled, pending.chosen(~past))


def member_of(values: Tensor, dims: int, batch: torch.Size, index: tuple[int, ...]) -> Tensor:
    """The values of a member of the batch, which may be absent; ``dims`` is the number of dimensions after it."""
    return values.expand(*batch, *values.shape[values.dim() - dims :])[index]
