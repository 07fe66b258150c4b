"""Observations of several outputs over one input as state spaces, by themselves or after others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cgp.functional.markov import MarkovProcess
from cgp.functional.state_space import StateSpace, state_space
from cgp.functional.state_space_evidence import log_evidence
from cgp.functional.state_space_posterior import FilterState, StateSpacePosterior
from cgp.kernels.process_rows import process_numbers

from .covariance import RowKernel
from .markov_kernels import Steps, markov_processes
from .timeline import TimeLine, time_line

__all__ = ["Frontier", "Observations", "Series", "SeriesComponent", "advanced", "member_of", "series_of"]


class Observations(NamedTuple):
    """What a chain is conditioned on.

    Attributes:
        places: input and output of each, ``(n, 2)``.
        residual: less their mean, ``(n,)``.
        noise: their variances, ``(n,)``.
    """

    places: Tensor
    residual: Tensor
    noise: Tensor

    def joined(self, further: Observations) -> Observations:
        """These and further ones."""
        return Observations(*(torch.cat(pair) for pair in zip(self, further, strict=True)))

    def chosen(self, which: Tensor) -> Observations:
        """Those of a mask ``(n,)``."""
        return Observations(*(values[which] for values in self))


class Settled(NamedTuple):
    """The end of a chain that no later observation comes before.

    Attributes:
        place: input and output of its last row, ``(2,)``.
        state: what is known after it.
    """

    place: Tensor
    state: FilterState


class Frontier(NamedTuple):
    """How far the filter has come, which is all that later rows and predictions need of the past.

    Attributes:
        latest: the largest input.
        settled: the chain up to where later observations may begin; None if they may come before all.
        pending: observations after that: outputs that are ahead of others.
    """

    latest: float
    settled: Settled | None
    pending: Observations

    def series(self, components: Sequence[SeriesComponent], besides: Tensor) -> Series:
        """The chain from here on, with places ``(t, 2)`` besides its observations."""
        return series_of(self.pending, components, besides, self.settled)


class Series(NamedTuple):
    """A member of a batch as a state space.

    Attributes:
        space: of N rows and P outputs.
        line: where in the rows the observations are, and the places that are asked for besides.
        residual: the observations less their mean, ``(N, P)``.
        noise: their variances, ``(N, P)``.
        observed: ``(N, P)`` booleans.
        start: what is known before the first row; None is the stationary distribution.
    """

    space: StateSpace
    line: TimeLine
    residual: Tensor
    noise: Tensor
    observed: Tensor
    start: FilterState | None

    def log_evidence(self) -> Tensor:
        """Log-density of the observations in nats, with gradients."""
        return log_evidence(self.space, self.residual, self.noise, self.observed)

    def posterior(self) -> StateSpacePosterior:
        """The outputs at all rows given the observations."""
        return StateSpacePosterior(self.space, self.residual, self.noise, self.observed, start=self.start)


class SeriesComponent(NamedTuple):
    """A component of the covariance as the outputs see it.

    Attributes:
        kernel: of the canonical process.
        loadings: ``(*batch, P, R)``.
        scales: inverse lengthscales, ``(*batch, P)``.
        shifts: ``(*batch, P)``, or None.
        has_ratios: whether outputs have lengthscales of their own; each then has its own copy.
    """

    kernel: Kernel
    loadings: Tensor
    scales: Tensor
    shifts: Tensor | None
    has_ratios: bool

    @classmethod
    def of(cls, component: RowKernel) -> Self:
        """That of a kernel of rows, for all members of a batch."""
        maps = component.input_maps
        shifts = None if maps.all_shifts is None else maps.all_shifts[..., 0].double()
        scales = maps.all_scales[..., 0].double()
        return cls(component.covar_module, component.loadings().double(), scales, shifts, maps.log_ratios is not None)

    def member(self, batch: torch.Size, index: tuple[int, ...]) -> Self:
        """That of a member of the batch."""
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
            lags = lags - lags.detach().clamp(max=0.0)  # rounding of what is equal is no step backwards
        for process in markov_processes(self.kernel, Steps(lags, first)):
            yield process, self.loadings

    @property
    def delays(self) -> Tensor:
        """How much later than its inputs each output sees the processes, in units of the inputs, ``(P,)``."""
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
        components: of the covariance.
        besides: further places, ``(t, 2)``.
        settled: the end of an earlier chain, that this one goes on from.

    Returns:
        Its cells are those of the observations, then those of the further places.
    """
    places = observations.places if besides is None else torch.cat([observations.places, besides])
    outputs, count = len(components[0].loadings), len(observations.residual)
    delays = None if components[0].shifts is None else components[0].delays
    before = None if settled is None else (float(settled.place[0]), int(settled.place[1]))
    line = time_line(places[:, 0], process_numbers(places, outputs), outputs, count, delays, before)
    start = places[line.first, 0].double()
    processes, loadings = zip(*(pair for one in components for pair in one.processes(line, start)), strict=True)
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
    """The filter taken to further observations.

    Args:
        frontier: where it was; None is nowhere, and these are the first observations.
        further: none of them at an input before the latest of the others.
        components: of the covariance.
        latest: the largest input of all.

    Returns:
        Where it is then.
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
    """The values of a member of the batch, which they may do without; ``dims`` are their dimensions behind it."""
    return values.expand(*batch, *values.shape[values.dim() - dims :])[index]
