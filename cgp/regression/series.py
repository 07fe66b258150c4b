"""Exact regression of series: one input and Markov kernels, in time that is linear in the number of observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from torch import Tensor

from cgp.functional.markov import MarkovProcess
from cgp.functional.state_space import StateSpace, state_space
from cgp.functional.state_space_evidence import log_evidence
from cgp.functional.state_space_posterior import StateSpacePosterior

from .covariance import Points, RowKernel
from .markov_kernels import Steps, markov_obstacle, markov_processes
from .model import Moments, RegressionModel, flat_members
from .processes import ProcessGaussianLikelihood, process_numbers
from .timeline import TimeLine, time_line

__all__ = ["Series", "SeriesCondition", "SeriesCorrelatedGPRegression", "num_states", "series_obstacle"]

_ENTRIES = 2**25  # of right-hand sides that are solved for at a time


def series_obstacle(covariance: AdditiveKernel) -> str | None:
    """Why a covariance of rows is no state space, or None if it is one."""
    for component in covariance.kernels:
        maps, obstacle = component.input_maps, markov_obstacle(component.covar_module)
        if maps.log_scales.shape[-1] != 1:
            return f"expected one input, got {maps.log_scales.shape[-1]}"
        if obstacle is not None:
            return f"expected a Markov kernel, but {obstacle}"
        if maps.log_ratios is not None and component.loadings.partials is not None:
            return "expected one lengthscale for outputs that are correlated, got one of each output ('affine')"
        if maps.shifts is not None and len(covariance.kernels) > 1:
            return f"expected one component where outputs are shifted, got {len(covariance.kernels)}"
    return None


def num_states(covariance: AdditiveKernel) -> int:
    """States of the whole chain, of a covariance that is a state space."""
    copies, sizes = 0, [0]
    with torch.no_grad():
        for component in covariance.kernels:
            zero = torch.zeros(1, dtype=torch.float64)
            processes = markov_processes(component.covar_module, Steps(zero, zero[0]))
            copies += component.loadings().shape[-1] * len(processes)
            sizes += [process.stationary.shape[-1] for process in processes]
    return copies * max(sizes)


class Series(NamedTuple):
    """A member of a batch as a state space.

    Attributes:
        space: of N rows and P outputs.
        line: where in the rows the observations are, and the places that are asked for besides.
        residual: the observations less their mean, ``(N, P)``.
        noise: their variances, ``(N, P)``.
        observed: ``(N, P)`` booleans.
    """

    space: StateSpace
    line: TimeLine
    residual: Tensor
    noise: Tensor
    observed: Tensor

    def log_evidence(self) -> Tensor:
        """Log-density of the observations in nats, with gradients."""
        return log_evidence(self.space, self.residual, self.noise, self.observed)

    def posterior(self) -> StateSpacePosterior:
        """The outputs at all rows given the observations."""
        return StateSpacePosterior(self.space, self.residual, self.noise, self.observed)


class SeriesCondition:
    """The outputs at the rows of the observations, for each member of a batch, computed when first asked for."""

    def __init__(self, members: list[Series]) -> None:
        self.members = members
        self._moments: dict[int, Moments] = {}

    def moments(self, number: int) -> Moments:
        """Means and variances of a member at its rows, ``(N, P)`` each."""
        if number not in self._moments:
            posterior = self.members[number].posterior()
            self._moments[number] = Moments(posterior.mean, posterior.variance)
        return self._moments[number]


class SeriesCorrelatedGPRegression(RegressionModel):
    r"""Exact regression over one input as a state space, with the numbers of :class:`CorrelatedGPRegression`.

    .. math:: s_{i+1} = A_i s_i + w_i, \qquad y_{ip} = m_p + a_p^\top H s_i + \epsilon_{ip}

    Kernels are Matérn (1/2, 3/2, 5/2), periodic, cosine, linear and constant ones, scaled, their sums and products.
    Structures are "independent", "coregionalised" and "shared" with any number of components, and "shifted" with one.
    Time O(N D² P) for N distinct inputs and D states: copies of the canonical processes times states of a kernel;
    memory O(N D P), with gradients O(N D²). All is computed in float64. The evidence has gradients by all parameters;
    predictions have none.

    Args:
        train_inputs: ``(n, 2)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes, covar_module, likelihood, mean_module: those of :class:`CorrelatedGPRegression`, but that
            ``covar_module`` has no default.

    Raises:
        ValueError: if the data are not finite, shapes do not fit, or the covariance is no state space.

    Source:
        Hartikainen & Särkkä (2010), Kalman filtering and smoothing solutions to temporal Gaussian process regression
        models.

    Example:
        >>> from cgp.regression import correlated_covariance
        >>> x = torch.cat([torch.linspace(0, 9, 20)[:, None], torch.zeros(20, 1)], dim=-1)
        >>> covariance = correlated_covariance(1, 1, kernel="matern32")
        >>> model = SeriesCorrelatedGPRegression(x, x[:, 0].sin(), covar_module=covariance).eval()
        >>> model(x[:3]).mean.shape
        torch.Size([3])
    """

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        covar_module: AdditiveKernel,
        likelihood: ProcessGaussianLikelihood | GaussianLikelihood | None = None,
        mean_module: Mean | None = None,
    ) -> None:
        given: dict[str, Any] = {"covar_module": covar_module, "likelihood": likelihood, "mean_module": mean_module}
        super().__init__(train_inputs, train_targets, num_processes, **given)
        obstacle = series_obstacle(self.covar_module)
        if obstacle is not None:
            raise ValueError(f"covar_module: {obstacle}")

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, ``(*batch,)``."""
        values = torch.stack([member.log_evidence() for member in self.members()])
        return values.reshape(self.batch()).to(self.train_targets)

    @torch.no_grad()
    def condition(self) -> SeriesCondition:
        """Put the observations in order: what all predictions share, to be handed to them."""
        return SeriesCondition(list(self.members()))

    @torch.no_grad()
    def leave_one_out(self) -> Moments:
        r"""Mean and variance of every observation given all others, the parameters staying as they are.

        .. math:: \mu_{-i} = y_i - \frac{[(K+\Sigma)^{-1}r]_i}{[(K+\Sigma)^{-1}]_{ii}}, \qquad
            v_{-i} = \frac1{[(K+\Sigma)^{-1}]_{ii}}

        Returns:
            ``(*batch, n)`` each, noise included.
        """
        weights, variances = [], []
        for member in self.members():
            posterior = member.posterior()
            weights.append(posterior.weights.flatten()[member.line.cells])
            variances.append(posterior.precision.flatten()[member.line.cells].reciprocal())
        variance = self._stacked(variances)
        return Moments(self.train_targets - self._stacked(weights) * variance, variance)

    @torch.no_grad()
    def draw(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Joint draws as :meth:`.RegressionModel.draw`, in time that is linear in the number of rows, too."""
        x, parts = self._expanded(x), []
        means = flat_members(self.mean_module(x), self.batch(x))
        for member, mean, count in zip(self.members(x), means, counts, strict=True):
            if count:
                draws = member.posterior().draw(count, generator).flatten(1)
                parts.append(mean + draws[:, member.line.cells[-x.shape[-2] :]].to(mean))
        return torch.cat(parts)

    def members(self, x: Tensor | None = None) -> Iterator[Series]:
        """The members of the batch as state spaces, with the rows x ``(*batch, t, 2)`` as places besides."""
        batch, sets = self.batch(x), [self.train_inputs[0], *([] if x is None else [x])]
        residual, noise = self.residual(), self.noise()
        components = [_Component.of(component) for component in self.covar_module.kernels]
        for index in np.ndindex(*batch):
            places = torch.cat([_member(rows, 2, batch, index) for rows in sets])
            observations = _member(residual, 1, batch, index), _member(noise, 1, batch, index)
            yield _series(places, observations, [component.member(batch, index) for component in components])

    @torch.no_grad()
    def _marginals(self, x: Tensor, condition: SeriesCondition) -> Moments:
        means, variances = [], []
        for number, member in enumerate(self.members(x)):
            cells = member.line.cells[-x.shape[-2] :]
            if len(member.residual) == len(condition.members[number].residual):  # no row but those of observations
                mean, variance = condition.moments(number)
            else:
                posterior = member.posterior()
                mean, variance = posterior.mean, posterior.variance
            means.append(mean.flatten()[cells])
            variances.append(variance.flatten()[cells])
        return Moments(self._stacked(means, x), self._stacked(variances, x))

    @torch.no_grad()
    def _joint(self, x: Tensor, condition: SeriesCondition) -> tuple[Tensor, Tensor]:
        batch, parts = self.batch(x), []
        sets = [[c.points(some) for c in self.covar_module.kernels] for some in (x, self.train_inputs[0])]
        indices = np.ndindex(*batch)
        for index, member in zip(indices, self.members(), strict=True):
            new, known = (
                [Points(*(_member(field, 2, batch, index) for field in points)) for points in each] for each in sets
            )
            parts.append(self._covariance(member, new, known))
        return self._marginals(x, condition).mean, self._stacked(parts, x)

    def _covariance(self, member: Series, new: list[Points], known: list[Points]) -> Tensor:
        r"""A member's :math:`K_q - K_{qo}(K_o + \Sigma)^{-1}K_{oq}`."""
        kernels = self.covar_module.kernels
        cross: Tensor = sum(one.gram(a, b).double() for one, a, b in zip(kernels, known, new, strict=True))
        covariance: Tensor = sum(one.gram(a).double() for one, a in zip(kernels, new, strict=True))
        posterior, explained = member.posterior(), []
        for columns in cross.split(max(_ENTRIES // member.residual.numel(), 1), dim=-1):
            sides = columns.new_zeros(member.residual.numel(), columns.shape[-1])
            sides[member.line.cells] = columns
            solved = posterior.solve(sides.reshape(*member.residual.shape, -1)).flatten(0, 1)[member.line.cells]
            explained.append(cross.mT @ solved)
        return covariance - torch.cat(explained, dim=-1)

    def _stacked(self, parts: list[Tensor], x: Tensor | None = None) -> Tensor:
        """What the members have, with the shape of the batch and the type of the data."""
        return torch.stack(parts).reshape(*self.batch(x), *parts[0].shape).to(self.train_targets)


class _Component(NamedTuple):
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
    def of(cls, component: RowKernel) -> _Component:
        maps = component.input_maps
        shifts = None if maps.all_shifts is None else maps.all_shifts[..., 0].double()
        scales = maps.all_scales[..., 0].double()
        return cls(component.covar_module, component.loadings().double(), scales, shifts, maps.log_ratios is not None)

    def member(self, batch: torch.Size, index: tuple[int, ...]) -> _Component:
        """That of a member of the batch."""
        shifts = None if self.shifts is None else _member(self.shifts, 1, batch, index)
        scales, loadings = _member(self.scales, 1, batch, index), _member(self.loadings, 2, batch, index)
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


def _series(places: Tensor, observations: tuple[Tensor, Tensor], components: list[_Component]) -> Series:
    """The state space of observations less their mean, and their noise, at the first of the places ``(n, 2)``."""
    outputs, count = len(components[0].loadings), len(observations[0])
    shifts = components[0].shifts
    delays = None if shifts is None else shifts / components[0].scales
    numbers = process_numbers(places, outputs)
    line = time_line(places[:, 0], numbers, outputs, count, delays)
    start = places[line.first, 0].double()
    processes, loadings = zip(*(pair for one in components for pair in one.processes(line, start)), strict=True)
    shape, cells = (len(line.steps), outputs), line.cells[:count]
    empty = torch.zeros(shape, dtype=torch.float64).flatten()
    observed = torch.zeros_like(empty, dtype=torch.bool).index_fill(0, cells, True).reshape(shape)
    residual, noise = (empty.index_put((cells,), values.double()).reshape(shape) for values in observations)
    return Series(state_space(processes, loadings, line.steps), line, residual, noise, observed)


def _member(values: Tensor, dims: int, batch: torch.Size, index: tuple[int, ...]) -> Tensor:
    """The values of a member of the batch, which they may do without; ``dims`` are their dimensions behind it."""
    return values.expand(*batch, *values.shape[values.dim() - dims :])[index]
