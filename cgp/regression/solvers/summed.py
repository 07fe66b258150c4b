"""Exact regression of series whose sums are known besides readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.kernels.canonical_kernel import noise_of_rows
from cgp.regression.series_space import Series, member_of
from cgp.regression.sums import Sums
from cgp.statespace.accumulators import posterior_given_sums
from cgp.statespace.expansions import Expansion
from cgp.statespace.functionals import FunctionalPosterior, Functionals, Response, total_log_evidence
from cgp.statespace.totals import Terms

from .choice import Cost, Problem
from .model import Moments, RegressionModel, first_member, flat_members
from .series import SeriesCorrelatedGPRegression

__all__ = ["SummedReadings", "SummedSeriesRegression"]


class _Condition:
    """The computations on readings and sums that predictions share, for each member of a batch; evaluated lazily."""

    def __init__(self, model: SummedSeriesRegression) -> None:
        self._model = model

    @lazy
    def members(self) -> list[tuple[Series, FunctionalPosterior]]:
        """The whole chain of each member, and its posterior."""
        with torch.no_grad():
            return [
                (series, posterior_given_sums(*series.table, sums)) for series, sums in self._model.summed_members()
            ]


class SummedReadings(NamedTuple):
    """Readings at rows, given readings and sums.

    Attributes:
        posterior: of the cells of a series.
        cells: of the rows, ``(t,)``.
        numbers: of the readings of sums, -1 for others, ``(t,)``.
        mean: of the prior, ``(t,)``.
        fresh: variance of the noise of those that no sum has, ``(t,)``.
    """

    posterior: FunctionalPosterior
    cells: Tensor
    numbers: Tensor
    mean: Tensor
    fresh: Tensor

    def moments(self) -> Moments:
        """Means and variances, ``(t,)`` each."""
        mean, variance = self.posterior.marginals(self.cells, self.numbers)
        return Moments(mean.to(self.mean) + self.mean, variance.to(self.mean) + self.fresh)

    def response(self) -> Response:
        """How the means follow the sums."""
        return self.posterior.response(self.cells, self.numbers)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Joint draws, ``(count, t)``."""
        draws = self.mean + self.posterior.draw(count, self.cells, self.numbers, generator).to(self.mean)
        return draws + self.fresh.sqrt() * torch.randn(draws.shape, generator=generator, dtype=torch.float64).to(draws)


class SummedSeriesRegression(SeriesCorrelatedGPRegression):
    r"""A series given readings y and weighted sums t of its outputs, or of readings that are not known.

    .. math:: y_i = z_{p_i}(x_i) + \epsilon_i, \qquad t_m = \sum_j w_{mj}\,\big(z_{p_j}(x_j) + \epsilon_j\big) + \eta_m

    All results are those of the joint normal vector of y and t, in time linear in the rows for each sum. A reading at
    the place of an unknown one of a sum is that reading: readings and draws of them have the sums.

    Args:
        train_inputs: rows of readings, ``(n, 2)``.
        train_targets: their values, ``(n,)``.
        num_processes: number P of outputs.
        totals: in the units of the values.
        **options: of :class:`.SeriesCorrelatedGPRegression`.
    """

    name = "linear, sums"
    with_inducing = None  # observations with sums ask for it
    totals: Sums

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        totals: Sums,
        **options: Any,
    ) -> None:
        super().__init__(train_inputs, train_targets, num_processes, **options)
        self.totals, self._given = totals, totals.given(train_inputs, train_targets)

    @classmethod
    def beside(cls, model: RegressionModel, totals: Sums) -> Self:
        """A model of a series, of any solver, given sums too; parameters, and samples of them, are shared."""
        other = cls.__new__(cls)
        other.__dict__.update(vars(model))
        rows, targets = first_member(model)
        other.train_inputs, other.train_targets = (rows,), targets
        other.totals, other._given = totals, totals.given(rows, targets)
        return other.eval()

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """That of a series, and of a column for each sum."""
        seconds, memory = super().cost(problem)
        return Cost(seconds * (2.0 + 0.1 * problem.num_sums), memory * (1.0 + 0.1 * problem.num_sums))

    def log_evidence(self) -> Tensor:
        """The log-density of readings and sums in nats, ``(*batch,)``; sums in units of a reading."""
        needs_slopes = torch.is_grad_enabled() and any(each.requires_grad for each in self.parameters())
        values = torch.stack(
            [
                total_log_evidence(*series.table, sums)
                if needs_slopes
                else posterior_given_sums(*series.table, sums).log_evidence
                for series, sums in self.summed_members()
            ]
        )
        return values.reshape(self.batch()).to(self.train_targets)

    def condition(self) -> Any:
        """The computations on readings and sums that all predictions share, to be passed to them."""
        return _Condition(self)

    def extended(self, inputs: Tensor, targets: Tensor, condition: Any) -> tuple[Self, Any]:
        """As :meth:`.RegressionModel.extended`; all rows are processed again."""
        return RegressionModel.extended(self, inputs, targets, condition)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> Self:
        """As :meth:`.RegressionModel.get_fantasy_model`; readings of a sum that were not known are known then."""
        other = super().get_fantasy_model(inputs, targets, **kwargs)
        other._given = self.totals.given(*first_member(other))
        return other

    def summed_members(self, x: Tensor | None = None) -> Iterator[tuple[Series, Functionals]]:
        """The members of the batch as state spaces, with rows x ``(t, 2)`` as further rows, and their sums."""
        given, places = self._given, self._given.places.to(self.train_targets)
        besides = places if x is None else torch.cat([places, x])
        batch, first = self.batch(), self.train_targets.shape[-1]
        means, noise = self.mean_module(places).double(), noise_of_rows(self.likelihood, given.reading_places)
        for index, series in zip(np.ndindex(*batch), self.members(besides), strict=True):
            terms = series.terms(series.line.cells[first : first + len(places)], given.weights, given.sums)
            mean = member_of(means, 1, batch, index)
            values = given.values.index_add(0, given.sums, -given.weights * mean)
            variances = member_of(noise, 1, batch, index).double()
            yield series, Functionals(terms, values, given.noise, given.readings, variances)

    def moments(self, x: Tensor, condition: Any = None, *, noisy: bool = False) -> Moments:
        """As :meth:`.RegressionModel.moments`; with noise, of the readings that the sums have."""
        if not noisy:
            return super().moments(x, condition)
        parts = zip(*(each.moments() for each in self.readings(x, condition)), strict=True)
        return Moments(*(self._stacked([*part]) for part in parts))

    @torch.no_grad()
    def leave_one_out(self) -> Moments:
        """As :meth:`.RegressionModel.leave_one_out`; a sum of which a reading is left out is known with it."""
        count, (at, sums, weights) = self.train_targets.shape[-1], self._given.known
        known = weights.new_zeros(count, len(self._given.values)) if len(at) else None
        if known is not None:
            known = known.index_put((at, sums), weights, accumulate=True)
        errors, variances = [], []
        for series, posterior in self.condition().members:
            order = series.line.cells[:count].argsort()
            effect, precision = posterior.leave_one_out(None if known is None else known[order])
            variance = torch.empty_like(precision).index_copy(0, order, precision.reciprocal())
            variances.append(variance)
            errors.append(torch.empty_like(effect).index_copy(0, order, effect) * variance)
        return Moments(self.train_targets - self._stacked(errors), self._stacked(variances))

    @torch.no_grad()
    def draw(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """As :meth:`.RegressionModel.draw`."""
        means, parts = flat_members(self.mean_module(x), self.batch()), []
        for (posterior, cells), mean, count in zip(self._at(x, condition), means, counts, strict=True):
            if count:
                parts.append(mean + posterior.draw(count, cells, generator=generator).to(mean))
        return torch.cat(parts)

    @torch.no_grad()
    def draw_readings(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """As :meth:`.RegressionModel.draw_readings`, of the readings that the sums have."""
        members = zip(self.readings(x, condition), counts, strict=True)
        return torch.cat([each.draw(count, generator) for each, count in members if count])

    @torch.no_grad()
    def total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        """As :meth:`.RegressionModel.total_variances`."""
        return self._total_variances(x, weights, sums, condition, None)

    @torch.no_grad()
    def reading_total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        """As :meth:`.RegressionModel.reading_total_variances`, of the readings that the sums have: 0 of these sums."""
        readings = self._given.readings_at(x)
        variances = self._total_variances(x, weights, sums, condition, readings)
        fresh = torch.where(readings < 0, weights.square() * noise_of_rows(self.likelihood, x), 0.0)
        return variances + fresh.new_zeros(*fresh.shape[:-1], variances.shape[-1]).index_add(-1, sums, fresh)

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
        """As :meth:`.RegressionModel.expansion_variances`, of the readings that the sums have."""
        readings, parts = self._given.readings_at(x) if noisy else None, []
        noise = noise_of_rows(self.likelihood, x) * (0.0 if readings is None else (readings < 0))
        members = zip(self._at(x, condition), flat_members(noise, self.batch()), *functions, strict=True)
        for (posterior, cells), variances, coefficients, deviations in members:
            terms = Terms(*np.divmod(cells.numpy(), self.num_processes), np.ones(len(x)), sums.numpy())
            expansion = Expansion.of_tensors(coefficients, deviations, variances, x.new_zeros(len(x), 0))
            parts.append(posterior.expansion_variances(cells, terms, expansion, readings))
        return self._stacked(parts)

    @torch.no_grad()
    def joint_readings(self, x: Tensor, condition: Any = None) -> tuple[Tensor, Tensor]:
        """As :meth:`.RegressionModel.joint_readings`, of the readings that the sums have."""
        condition, readings = self.condition() if condition is None else condition, self._given.readings_at(x)
        _, covariance = super()._joint(x, condition)
        explained = [posterior.explained_covariance(cells, readings) for posterior, cells in self._at(x, condition)]
        noise = torch.diag_embed(noise_of_rows(self.likelihood, x))
        return self.moments(x, condition, noisy=True).mean, covariance + noise - self._stacked(explained)

    @torch.no_grad()
    def readings(self, x: Tensor, condition: Any = None) -> Iterator[SummedReadings]:
        """The readings at rows ``(t, 2)``, of each member of the batch."""
        numbers = self._given.readings_at(x)
        means = flat_members(self.mean_module(x), self.batch())
        noise = flat_members(torch.where(numbers < 0, noise_of_rows(self.likelihood, x), 0.0), self.batch())
        for (posterior, cells), mean, fresh in zip(self._at(x, condition), means, noise, strict=True):
            yield SummedReadings(posterior, cells, numbers, mean, fresh)

    @torch.no_grad()
    def _marginals(self, x: Tensor, condition: Any) -> Moments:
        mean, variance = zip(*(posterior.marginals(cells) for posterior, cells in self._at(x, condition)), strict=True)
        return Moments(self._stacked([*mean]), self._stacked([*variance]))

    @torch.no_grad()
    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        mean, covariance = super()._joint(x, condition)
        explained = [posterior.explained_covariance(cells) for posterior, cells in self._at(x, condition)]
        return mean, covariance - self._stacked(explained)

    def _is_later(self, x: Tensor, condition: Any) -> bool:
        return False

    def _at(self, x: Tensor, condition: Any) -> Iterator[tuple[FunctionalPosterior, Tensor]]:
        """The posterior of each member, and its cells of rows x ``(t, 2)``."""
        condition = self.condition() if condition is None else condition
        if x.dim() != 2:
            raise ValueError(f"x: expected rows (t, 2), got shape {tuple(x.shape)}: sums are not for batches of rows")
        for (series, sums), (known, posterior) in zip(self.summed_members(x), condition.members, strict=True):
            is_same = len(series.residual) == len(known.residual)  # only rows of readings and sums
            yield posterior if is_same else posterior_given_sums(*series.table, sums), series.line.cells[-len(x) :]

    def _total_variances(
        self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any, readings: Tensor | None
    ) -> Tensor:
        parts, shape = [], self.num_processes
        for posterior, cells in self._at(x, condition):
            terms = Terms(*np.divmod(cells.numpy(), shape), weights.double().numpy(), sums.numpy())
            parts.append(posterior.total_variances(cells, terms, readings))
        return self._stacked(parts)
