"""Exact regression of series: one input and Markov kernels, in time linear in the number of observations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.kernels.canonical_kernel import CanonicalPoints, noise_of_rows
from cgp.kernels.markov_forms import markov_obstacle, markov_processes
from cgp.regression.observations import Parts
from cgp.regression.series_space import Frontier, Observations, Series, SeriesComponent, advanced, member_of, series_of
from cgp.regression.solvers.model import check_training_data
from cgp.statespace.expansions import Expansion
from cgp.statespace.factors import takes_lanes
from cgp.statespace.kernels import Steps
from cgp.statespace.posterior import StateSpacePosterior

from .choice import Cost, Problem
from .model import Moments, RegressionModel, flat_members

__all__ = ["SeriesCondition", "SeriesCorrelatedGPRegression", "num_states"]

_ENTRIES = 2**25  # of right-hand sides that are solved for at a time


def _has_one_order(covariance: AdditiveKernel) -> bool:
    """Whether the observations have one order in all components: no delays, or the same, which are not learned."""
    shifts = [component.input_maps.shifts for component in covariance.kernels]
    if any(each is None for each in shifts):
        return all(each is None for each in shifts)
    if any(each.requires_grad for each in shifts):
        return False
    first, *others = [SeriesComponent.of(component).delays for component in covariance.kernels]
    return all(torch.allclose(first, each, rtol=1e-9) for each in others)


def num_states(covariance: AdditiveKernel) -> int:
    """Number of states of the chain of a covariance that is a state space."""
    copies, sizes = 0, [0]
    with torch.no_grad():
        for component in covariance.kernels:
            zero = torch.zeros(1, dtype=torch.float64)
            processes = markov_processes(component.covar_module, Steps(zero, zero[0]))
            copies += component.loadings().shape[-1] * len(processes)
            sizes += [process.stationary.shape[-1] for process in processes]
    return copies * max(sizes)


class SeriesCondition:
    """The computations on the observations that predictions share, for each member of a batch; evaluated lazily.

    Args:
        model: model with the observations.
        frontiers: state of each member's filter, if it has processed the observations already.
    """

    def __init__(self, model: SeriesCorrelatedGPRegression, frontiers: list[Frontier] | None = None) -> None:
        self._model, self._frontiers = model, frontiers
        self._moments: dict[int, Moments] = {}

    @lazy
    def members(self) -> list[Series]:
        """The whole chain of each member."""
        with torch.no_grad():
            return list(self._model.members())

    @property
    def frontiers(self) -> list[Frontier]:
        """The states of the filters after all observations."""
        if self._frontiers is None:
            model, (rows,) = self._model, self._model.train_inputs
            known = model.observations(rows, model.train_targets, model.noise())
            parts = zip(known, model.components(), strict=True)
            self._frontiers = [advanced(None, *pair, self.latest) for pair in parts]
        return self._frontiers

    @lazy
    def latest(self) -> float:
        """The largest input."""
        if self._frontiers is not None:
            return self._frontiers[0].latest
        return float(self._model.train_inputs[0][..., 0].max())

    def is_later(self, x: Tensor) -> bool:
        """Whether all rows are at or after the latest observation."""
        return bool((x[..., 0] >= self.latest).all())

    def moments(self, number: int) -> Moments:
        """Means and variances of a member at its rows, ``(N, P)`` each."""
        if number not in self._moments:
            posterior = self.members[number].posterior()
            self._moments[number] = Moments(posterior.mean, posterior.variance)
        return self._moments[number]


class SeriesCorrelatedGPRegression(RegressionModel):
    r"""Exact regression over one input as a state space, with the results of :class:`CorrelatedGPRegression`.

    .. math:: s_{i+1} = A_i s_i + w_i, \qquad y_{ip} = m_p + a_p^\top H s_i + \epsilon_{ip}

    Kernels are Matérn (1/2, 3/2, 5/2), periodic, cosine, linear and constant ones, scaled, their sums and products.
    Structures are "independent", "coregionalised" and "shared" with any number of components, and "shifted" with one or
    the same fixed delays in all. Time O(N D² P) for N distinct inputs and D states: copies of the canonical processes
    times states of a kernel; memory O(N D P), with gradients O(N D²). Rows that are not before the latest observation
    are predicted, and conditioned on (:meth:`extended`), from the last state of the filter, in time independent of the
    number of earlier observations. All computations are in float64. The evidence has gradients with respect to all
    parameters; predictions have none.

    Arguments are those of :class:`CorrelatedGPRegression`, with rows ``(n, 2)`` and a covariance that is a state space.

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

    name = "linear"
    _inputs: Parts
    _targets: Parts

    @classmethod
    def refusal(cls, covariance: AdditiveKernel) -> str | None:
        """Reason why a covariance of rows is no state space, or None if it is one."""
        for component in covariance.kernels:
            maps, obstacle = component.input_maps, markov_obstacle(component.covar_module)
            if maps.log_scales.shape[-1] != 1:
                return f"expected one input, got {maps.log_scales.shape[-1]}"
            if obstacle is not None:
                return f"expected a Markov kernel, but {obstacle}"
            if maps.log_ratios is not None and component.loadings.correlated:
                return "expected one lengthscale for outputs that are correlated, got one of each output ('affine')"
        if len(covariance.kernels) > 1 and not _has_one_order(covariance):
            return f"expected one component where outputs are shifted, or fixed delays, got {len(covariance.kernels)}"
        return None

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Linear in the inputs, or in the observations where outputs are shifted."""
        first = problem.covariance.kernels[0]
        states, outputs = float(num_states(problem.covariance)), first.num_processes
        rows = problem.num_inputs if first.input_maps.shifts is None else problem.num_observations
        readings = max(problem.num_observations, rows)
        if takes_lanes(rows, readings, int(states), keep=True):
            seconds = 4e-3 + 3e-4 * readings**0.5 + readings * (1e-6 + 3.5e-8 * states**2)
            return Cost(seconds, readings * (600.0 + 200.0 * states + 12.0 * states**2))
        seconds = 4e-3 + rows * (1e-4 + 3.5e-6 * states + 1.1e-8 * states**2)
        return Cost(seconds, rows * (2000.0 + 16.0 * states * outputs + 24.0 * states**2))

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, ``(*batch,)``."""
        values = torch.stack([member.log_evidence() for member in self.members()])
        return values.reshape(self.batch()).to(self.train_targets)

    @torch.no_grad()
    def solve(self, columns: Tensor) -> Tensor:
        r""":math:`(K + \Sigma)^{-1}B` for columns B ``(n, S)``, in linear time; not for batches."""
        (member,) = self.members()
        return _solved(member, member.posterior(), columns.double()).to(columns)

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The rows of the observations, ``(*batch, n, 2)``."""
        self._inputs = self._inputs.merged()
        return (self._inputs.whole,)

    @train_inputs.setter
    def train_inputs(self, value: tuple[Tensor]) -> None:
        self._inputs = Parts.of(value[0], dim=-2)

    @property
    def train_targets(self) -> Tensor:
        """The observations, ``(*batch, n)``."""
        self._targets = self._targets.merged()
        return self._targets.whole

    @train_targets.setter
    def train_targets(self, value: Tensor) -> None:
        self._targets = Parts.of(value, dim=-1)

    def condition(self) -> SeriesCondition:
        """The computations on the observations that all predictions share, to be passed to them."""
        return SeriesCondition(self)

    @torch.no_grad()
    def extended(self, inputs: Tensor, targets: Tensor, condition: SeriesCondition | None) -> tuple[Self, Any]:
        """As :meth:`.RegressionModel.extended`; the filter continues from its last state if all rows are later."""
        check_training_data(inputs, targets, self.num_processes)
        if condition is None or not condition.is_later(inputs):
            return super().extended(inputs, targets, condition)
        other, latest = copy.copy(self), float(inputs[:, 0].max())
        other._inputs = self._inputs.appended(inputs.expand(*self._inputs.batch, -1, -1))
        other._targets = self._targets.appended(targets.expand(*self._targets.batch, -1))
        other.further_noise = self._padded_noise(targets)
        further = self.observations(inputs, targets, noise_of_rows(self.likelihood, inputs))
        members = zip(condition.frontiers, further, self.components(), strict=True)
        frontiers = [advanced(*member, latest) for member in members]
        return other, type(condition)(other, frontiers)

    @torch.no_grad()
    def leave_one_out(self) -> Moments:
        """As :meth:`.CorrelatedGPRegression.leave_one_out`, in linear time."""
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
        """Joint draws as in :meth:`.RegressionModel.draw`, in time linear in the number of rows."""
        x, parts = self._expanded(x), []
        condition = self.condition() if condition is None else condition
        means = flat_members(self.mean_module(x), self.batch(x))
        for member, mean, count in zip(self._with_places(x, condition), means, counts, strict=True):
            if count:
                draws = member.posterior().draw(count, generator).flatten(1)
                parts.append(mean + draws[:, member.line.cells[-x.shape[-2] :]].to(mean))
        return torch.cat(parts)

    @torch.no_grad()
    def total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        """As :meth:`.RegressionModel.total_variances`, in time linear in the number of rows."""
        x, parts = self._expanded(x), []
        condition = self.condition() if condition is None else condition
        for member in self._with_places(x, condition):
            terms = member.terms(member.line.cells[-x.shape[-2] :], weights, sums)
            parts.append(member.posterior().total_variances(terms))
        return self._stacked(parts, x)

    @torch.no_grad()
    def expansion_variances(
        self,
        x: Tensor,
        functions: tuple[Tensor, Tensor],
        sums: Tensor,
        condition: Any = None,
        *,
        noisy: bool = False,
    ) -> Tensor:
        """As :meth:`.RegressionModel.expansion_variances`, in linear time where correlations end."""
        condition, parts = self.condition() if condition is None else condition, []
        noise, further = noise_of_rows(self.likelihood, x) * float(noisy), self._further(x, condition)
        members = zip(
            self._with_places(self._expanded(x), condition), flat_members(noise, self.batch()), *functions, strict=True
        )
        for member, variances, coefficients, deviations in members:
            terms = member.terms(member.line.cells[-len(x) :], torch.ones(len(x)), sums)
            expansion = Expansion.of_tensors(coefficients, deviations, variances, further)
            parts.append(member.posterior().expansion_variances(terms, expansion))
        return self._stacked(parts)

    def _further(self, x: Tensor, condition: Any) -> Tensor:
        """What the covariance has besides that of the state space, as products of ``(t, F)``."""
        return x.new_zeros(len(x), 0)

    def members(self, x: Tensor | None = None) -> Iterator[Series]:
        """The members of the batch as state spaces, with the rows x ``(*batch, t, 2)`` as further rows."""
        known = self.observations(self.train_inputs[0], self.train_targets, self.noise(), x)
        batch = self.batch(x)
        for index, observations, components in zip(np.ndindex(*batch), known, self.components(x), strict=True):
            besides = None if x is None else member_of(x, 2, batch, index)
            yield series_of(observations, components, besides)

    def observations(
        self, rows: Tensor, targets: Tensor, noise: Tensor, x: Tensor | None = None
    ) -> Iterator[Observations]:
        """The observations ``(*batch, n)`` at rows ``(*batch, n, 2)``, one member of the batch after the other."""
        batch, residual = self.batch(x), targets - self.mean_module(rows)
        for index in np.ndindex(*batch):
            values = (member_of(value, 1, batch, index) for value in (residual, noise))
            yield Observations(member_of(rows, 2, batch, index), *values)

    def components(self, x: Tensor | None = None) -> Iterator[list[SeriesComponent]]:
        """The components of the covariance, one member of the batch after the other."""
        batch, components = self.batch(x), [SeriesComponent.of(component) for component in self.covar_module.kernels]
        for index in np.ndindex(*batch):
            yield [component.member(batch, index) for component in components]

    def _is_later(self, x: Tensor, condition: SeriesCondition) -> bool:
        """Whether rows can be predicted without the whole chain."""
        return self.batch(x) == self.batch() and condition.is_later(x)

    def _first(self) -> tuple[Tensor, Tensor]:
        return self._inputs.parts[0][..., :1, :], self._targets.parts[0][..., :1]

    def _with_places(self, x: Tensor, condition: SeriesCondition) -> Iterator[Series]:
        """As :meth:`members` with x, without the part of the past that later rows do not need."""
        if not self._is_later(x, condition):
            yield from self.members(x)
            return
        batch = self.batch(x)
        for number, (index, components) in enumerate(zip(np.ndindex(*batch), self.components(x), strict=True)):
            frontier = condition.frontiers[number]
            yield frontier.series(components, member_of(x, 2, batch, index))

    @torch.no_grad()
    def _marginals(self, x: Tensor, condition: SeriesCondition) -> Moments:
        means, variances, few = [], [], self._is_later(x, condition) or self.batch(x) != self.batch()
        for number, member in enumerate(self._with_places(x, condition)):
            cells = member.line.cells[-x.shape[-2] :]
            # only rows of observations
            if not few and len(member.residual) == len(condition.members[number].residual):
                mean, variance = condition.moments(number)
            else:
                posterior = member.posterior()
                mean, variance = posterior.mean, posterior.variance
            means.append(mean.flatten()[cells])
            variances.append(variance.flatten()[cells])
        return Moments(self._stacked(means, x), self._stacked(variances, x))

    @torch.no_grad()
    def _joint(self, x: Tensor, condition: SeriesCondition) -> tuple[Tensor, Tensor]:
        if self._is_later(x, condition):
            return self._marginals(x, condition).mean, self._later_covariance(x, condition)
        batch, parts = self.batch(x), []
        sets = [[c.points(some) for c in self.covar_module.kernels] for some in (x, self.train_inputs[0])]
        indices = np.ndindex(*batch)
        for index, member in zip(indices, self.members(), strict=True):
            new, known = (
                [CanonicalPoints(*(member_of(field, 2, batch, index) for field in points)) for points in each]
                for each in sets
            )
            parts.append(self._covariance(member, new, known))
        return self._marginals(x, condition).mean, self._stacked(parts, x)

    def _later_covariance(self, x: Tensor, condition: SeriesCondition) -> Tensor:
        parts = []
        for member in self._with_places(x, condition):
            cells = member.line.cells[-x.shape[-2] :]
            parts.append(member.posterior().covariance[cells][:, cells])
        return self._stacked(parts, x)

    def _covariance(self, member: Series, new: list[CanonicalPoints], known: list[CanonicalPoints]) -> Tensor:
        r"""A member's :math:`K_q - K_{qo}(K_o + \Sigma)^{-1}K_{oq}`."""
        kernels = self.covar_module.kernels
        cross: Tensor = sum(kernel.gram(a, b).double() for kernel, a, b in zip(kernels, known, new, strict=True))
        covariance: Tensor = sum(kernel.gram(a).double() for kernel, a in zip(kernels, new, strict=True))
        posterior, parts = member.posterior(), cross.split(max(_ENTRIES // member.residual.numel(), 1), dim=-1)
        explained = [cross.mT @ _solved(member, posterior, columns) for columns in parts]
        return covariance - torch.cat(explained, dim=-1)

    def _stacked(self, parts: list[Tensor], x: Tensor | None = None) -> Tensor:
        """The members' tensors, with the shape of the batch and the dtype of the data."""
        return torch.stack(parts).reshape(*self.batch(x), *parts[0].shape).to(self.train_targets)


def _solved(member: Series, posterior: StateSpacePosterior, columns: Tensor) -> Tensor:
    r""":math:`(K + \Sigma)^{-1}B` for columns B ``(n, S)`` of the observations of a member."""
    sides = columns.new_zeros(member.residual.numel(), columns.shape[-1])
    sides[member.line.cells] = columns
    return posterior.solve(sides.reshape(*member.residual.shape, -1)).flatten(0, 1)[member.line.cells]
