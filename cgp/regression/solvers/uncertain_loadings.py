"""Series of few rows: how much the loadings of their shared processes may be in error, added to the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import cholesky
from cgp.regression.covariances.rows import Relations
from cgp.regression.series_space import Series, SeriesComponent, series_of
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.prior import prior_variances
from cgp.statespace.products import covariance_columns

from .model import Moments
from .series import SeriesCondition, SeriesCorrelatedGPRegression

__all__ = ["UncertainLoadingsRegression"]


class UncertainLoadingsRegression(SeriesCorrelatedGPRegression):
    r"""A series of components with shared processes f, whose loadings are uncertain.

    .. math:: y_{tp} = m_p + (\lambda_p + \delta_p)^\top f_t + u_{tp} + \epsilon_{tp}, \qquad
        \delta_p \sim N(0, V_p), \qquad
        V_p = A_p \big(I + \hat F_p^\top W_p (K_p + \Sigma_p) W_p \hat F_p\big) A_p, \qquad
        A_p^{-1} = I + \hat F_p^\top W_p \hat F_p

    V is the covariance of the error of ridge regression on :math:`\hat f`, whose residuals are as correlated in time
    as the output's own process u: where they hardly change, many observations say as little as a few. Means are those
    of :class:`SeriesCorrelatedGPRegression`; variances are larger by :math:`e_t^\top V_p e_t`, covariances of two
    inputs of a process by :math:`e_t^\top V_p e_{t'}`, where

    .. math:: e_t = \hat f_t - \hat F_p^\top (K_p + \Sigma_p)^{-1} k_{pt}

    is what u, of covariance K and k, cannot tell from the output's observations: next to nothing beside one of them.
    From the latest observation on it is :math:`\hat f_t`, which needs no past. Where the shared processes are far
    outside the range in which their loadings were learned, as at a few extreme rows, intervals are too narrow by orders
    of magnitude without this. :math:`\hat f` are posterior means, in the rows of :math:`\hat F_p` at the output's
    observations; :math:`\Sigma_p` has the variances of their noise, and :math:`W_p` the inverse ones of noise and u
    together. The prior of a loading is standard normal, as in :class:`.FactorLoadings`. Where outputs have
    :class:`.Relations`, what these leave of the preceding outputs, :math:`B^{-1}(\hat y - m)` without noise, is in f,
    too.

    Arguments are those of :class:`CorrelatedGPRegression`; components have :class:`.FactorLoadings`.

    Source:
        Liang & Zeger (1986), Longitudinal data analysis using generalized linear models, on the error of estimates that
        count residuals as independent, here with a prior; Rasmussen & Williams (2006), Gaussian Processes for Machine
        Learning, equation 2.42, on weights beside a process.
    """

    name = "linear, uncertain loadings"
    with_inducing = None  # series of many time scales ask for it
    learned_buffers = ("loading_roots",)
    loading_roots: Tensor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("loading_roots", None)

    @property
    def num_factors(self) -> int:
        """Number F of the shared processes of all components."""
        return sum(component.loadings().shape[-1] - self.num_processes for component in self.covar_module.kernels)

    @property
    def num_features(self) -> int:
        """Number of processes whose loadings are uncertain: shared ones, and outputs that others are related to."""
        return self.num_factors + (0 if self._relations is None else self.num_processes)

    @property
    def _relations(self) -> Relations | None:
        return self.covar_module.kernels[0].loadings.relations

    @torch.no_grad()
    def learn_uncertainty(self) -> None:
        """Compute the roots of V, ``(P, F, F)``, from the observations, by a smoothing pass over them."""
        count, factors = self.num_features, self.condition().factors
        # Outputs may be related to preceding ones
        known = [count if self._relations is None else self.num_factors + p for p in range(self.num_processes)]
        roots = torch.stack([(torch.arange(count) < k).to(factors).diag() for k in known])
        for alone in self._alone(factors):
            k = known[alone.output]
            roots[alone.output, :k, :k] = alone.loading_root(k)
        self.loading_roots = roots

    def condition(self) -> FactorsCondition:
        """As :meth:`.SeriesCorrelatedGPRegression.condition`."""
        return FactorsCondition(self)

    def components(self, x: Tensor | None = None) -> Iterator[list[SeriesComponent]]:
        """The components of the covariance, with the shared processes as F further outputs, never observed."""
        for components in super().components(x):
            yield _with_features(components, self.num_processes, self._relations)

    @torch.no_grad()
    def leave_one_out(self) -> Moments:
        """As :meth:`.SeriesCorrelatedGPRegression.leave_one_out`, with the uncertainty of the loadings."""
        mean, variance = super().leave_one_out()
        if self.loading_roots is None:
            return Moments(mean, variance)
        (rows,), factors = self.train_inputs, self.condition().factors
        effects = torch.empty_like(factors)
        for alone in self._alone(factors):
            effects[rows[:, 1] == alone.output] = alone.solved / alone.precision[:, None]
        return Moments(mean, variance + _scaled(effects, rows, self.loading_roots).square().sum(-1))

    @torch.no_grad()
    def draw(
        self, x: Tensor, counts: Sequence[int], condition: Any = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Joint draws as in :meth:`.RegressionModel.draw`."""
        condition = self.condition() if condition is None else condition
        draws, effects = super().draw(x, counts, condition, generator=generator), self._effects(x, condition)
        shape = (len(draws), self.num_processes, effects.shape[-1])
        normal = torch.randn(shape, generator=generator, dtype=torch.float64).to(effects)
        return draws + (normal[:, x[:, 1].long()] * effects).sum(-1)

    @torch.no_grad()
    def total_variances(self, x: Tensor, weights: Tensor, sums: Tensor, condition: Any = None) -> Tensor:
        """As :meth:`.RegressionModel.total_variances`."""
        condition = self.condition() if condition is None else condition
        effects, count = self._effects(x, condition), int(sums.max()) + 1
        totals = effects.new_zeros(count * self.num_processes, effects.shape[-1])
        totals.index_add_(0, sums * self.num_processes + x[:, 1].long(), weights.to(effects)[:, None] * effects)
        return super().total_variances(x, weights, sums, condition) + totals.reshape(count, -1).square().sum(-1)

    def _further(self, x: Tensor, condition: Any) -> Tensor:
        effects = self._effects(x, condition)
        numbers = x[:, 1].unique(return_inverse=True)[1]  # of other outputs they are independent
        blocks = effects.new_zeros(len(x), int(numbers.max()) + 1, effects.shape[-1])
        blocks[torch.arange(len(x)), numbers] = effects
        return blocks.flatten(1)

    @torch.no_grad()
    def _marginals(self, x: Tensor, condition: Any) -> Moments:
        if self.loading_roots is None:
            return super()._marginals(x, condition)
        places, number = self._factor_places(x)
        mean, variance = super()._marginals(torch.cat([x, places]), condition)
        effects = self._unexplained(x, mean[len(x) :].reshape(-1, self.num_features)[number], condition)
        return Moments(mean[: len(x)], variance[: len(x)] + _scaled(effects, x, self.loading_roots).square().sum(-1))

    @torch.no_grad()
    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        mean, covariance = super()._joint(x, condition)
        effects, outputs = self._effects(x, condition), x[:, 1]
        return mean, covariance + (effects @ effects.mT) * (outputs[:, None] == outputs)

    def _effects(self, x: Tensor, condition: Any) -> Tensor:
        r""":math:`e_t^\top V_p^{1/2}` of rows ``(t, 2)``: ``(t, F)``."""
        if self.loading_roots is None:
            return x.new_zeros(len(x), 1)
        return _scaled(self._unexplained(x, self._factors(x, condition), condition), x, self.loading_roots)

    def _unexplained(self, x: Tensor, factors: Tensor, condition: FactorsCondition) -> Tensor:
        """What is left of shared processes ``(t, F)`` at rows ``(t, 2)``: e."""
        between, left = x[:, 0] < condition.latest, factors.clone()
        for alone in self._alone(condition.factors, x[between]) if between.any() else ():
            left[between & (x[:, 1] == alone.output)] -= alone.kriged
        return left

    def _alone(self, factors: Tensor, x: Tensor | None = None) -> Iterator[Alone]:
        """Every observed output by its own processes, those of rows ``(t, 2)`` if they are given."""
        (components,), (rows,) = super().components(), self.train_inputs
        (known,) = self.observations(rows, self.train_targets, self.noise())
        for p in (rows if x is None else x)[:, 1].long().unique().tolist():
            mine, besides = rows[:, 1] == p, None if x is None else _first_output(x[x[:, 1] == p])
            if mine.any():
                seen = known.chosen(mine)
                seen = seen._replace(places=_first_output(seen.places))
                own = [_own(component, p, self.num_processes) for component in components]
                yield Alone(p, series_of(seen, own, besides), factors[mine])

    def _factors(self, x: Tensor, condition: Any) -> Tensor:
        """Posterior means of the shared processes at rows ``(t, 2)``: ``(t, F)``."""
        places, number = self._factor_places(x)
        (member,) = self._with_places(places, condition)  # without variances, which would double the time
        means = member.posterior().mean.flatten()[member.line.cells[-len(places) :]]
        return means.to(x).reshape(-1, self.num_features)[number]

    def _factor_places(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all shared processes at the distinct inputs of rows, and which of the inputs each row is at."""
        if x.dim() != 2 or self.batch():
            raise ValueError(f"x: expected rows (t, 2) and no batch of parameters, got shape {tuple(x.shape)}")
        inputs, number = x[:, 0].unique(return_inverse=True)
        return torch.cartesian_prod(inputs, self.num_processes + torch.arange(self.num_features).to(x)), number


class FactorsCondition(SeriesCondition):
    """The computations on the observations that predictions share, with the shared processes at them."""

    @lazy
    def factors(self) -> Tensor:
        """Posterior means of the shared processes at the observations, ``(n, F)``."""
        (member,) = self.members
        mean = member.posterior().mean
        return mean[member.line.cells // mean.shape[-1], self._model.num_processes :]


class Alone:
    """One output by its own processes, shared ones in the place of its observations.

    Args:
        output: number of the output.
        series: its own processes at its observations, and at further rows.
        factors: shared processes at its observations, ``(n, F)``.
    """

    def __init__(self, output: int, series: Series, factors: Tensor) -> None:
        self.output, self.factors, self._series, self._cells = output, factors, series, series.line.cells
        columns = factors.new_zeros(len(series.line.steps), factors.shape[-1])
        columns[self._cells[: len(factors)]] = factors
        self._columns = columns[:, None]

    @lazy
    def _posterior(self) -> StateSpacePosterior:
        return self._series.posterior()

    def loading_root(self, count: int) -> Tensor:
        """A root of V, of the first processes, which the output may depend on: ``(count, count)``."""
        space, _, noise, _ = self._series.table
        F, eye = self._columns[:, 0, :count], torch.eye(count, dtype=self._columns.dtype)
        weighted = F / (prior_variances(space) + noise)
        errors = covariance_columns(space, weighted[:, None])[:, 0] + noise * weighted
        root = cholesky(eye + F.mT @ weighted, name="precision of the loadings", jitter=0.0)
        spread = cholesky(eye + weighted.mT @ errors, name="covariance of their errors", jitter=0.0)
        return torch.cholesky_solve(spread, root)

    @lazy
    def kriged(self) -> Tensor:
        r""":math:`k^\top (K + \sigma^2 I)^{-1} F` at the further rows, ``(t, F)``."""
        return self._posterior.smooth(self._columns)[:, 0][self._cells[len(self.factors) :]]

    @lazy
    def solved(self) -> Tensor:
        r""":math:`(K + \sigma^2 I)^{-1} F` at the observations, ``(n, F)``."""
        return self._posterior.solve(self._columns)[:, 0][self._cells[: len(self.factors)]]

    @lazy
    def precision(self) -> Tensor:
        r"""The diagonal of :math:`(K + \sigma^2 I)^{-1}`, ``(n,)``."""
        return self._posterior.precision.flatten()[self._cells[: len(self.factors)]]


def _own(component: SeriesComponent, p: int, num_processes: int) -> SeriesComponent:
    """The process of a component that is an output's own."""
    loadings = component.loadings[p, component.loadings.shape[-1] - num_processes + p]
    return component._replace(loadings=loadings.reshape(1, 1), scales=component.scales[:1])


def _first_output(places: Tensor) -> Tensor:
    return torch.stack([places[:, 0], torch.zeros_like(places[:, 0])], dim=-1)


def _scaled(factors: Tensor, x: Tensor, roots: Tensor) -> Tensor:
    """Each row of factors ``(t, F)`` times the root ``(F, F)`` of its output."""
    outputs, scaled = x[:, 1].long(), torch.empty_like(factors)
    for p in outputs.unique():
        scaled[outputs == p] = factors[outputs == p] @ roots[p]
    return scaled


def _with_features(
    components: list[SeriesComponent], num_processes: int, relations: Relations | None
) -> list[SeriesComponent]:
    """Components with shared processes as further outputs, and what relations leave of each output."""
    counts = [component.loadings.shape[-1] - num_processes for component in components]
    left = 0 if relations is None else num_processes
    extended = []
    for number, (component, count) in enumerate(zip(components, counts, strict=True)):
        further = component.loadings.new_zeros(sum(counts) + left, component.loadings.shape[-1])
        further[sum(counts[:number]) :][:count, :count] = torch.eye(count, dtype=further.dtype)
        if relations is not None:
            further[sum(counts) :] = torch.linalg.solve_triangular(relations(), component.loadings, upper=False)
        scales = component.scales[:1].expand(num_processes + len(further))
        extended.append(component._replace(loadings=torch.cat([component.loadings, further]), scales=scales))
    return extended
