"""Series of few rows: how much the loadings of their shared processes may be in error, added to the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from cgp.functional.linalg import cholesky
from cgp.regression.series_space import SeriesComponent

from .model import Moments
from .series import SeriesCorrelatedGPRegression

__all__ = ["UncertainLoadingsRegression"]


class UncertainLoadingsRegression(SeriesCorrelatedGPRegression):
    r"""A series of components with shared processes f, whose loadings are uncertain.

    .. math:: y_{tp} = m_p + (\lambda_p + \delta_p)^\top f_t + u_{tp} + \epsilon_{tp}, \qquad
        \delta_p \sim N(0, V_p), \qquad
        V_p^{-1} = I + \sigma_p^{-2}\sum_{t \in O_p} \hat f_t \hat f_t^\top

    Means are those of :class:`SeriesCorrelatedGPRegression`; variances are larger by :math:`\hat f_t^\top V_p\hat f_t`,
    covariances of two inputs of a process by :math:`\hat f_t^\top V_p\hat f_{t'}`. Where the shared processes are far
    outside the range in which their loadings were learned, as at a few extreme rows, intervals are too narrow by orders
    of magnitude without this. :math:`\hat f` are posterior means, :math:`\sigma_p^2` is the variance of the noise and
    of the process of the output alone, and the prior of a loading is standard normal, as in :class:`.FactorLoadings`.

    Arguments are those of :class:`CorrelatedGPRegression`; components have :class:`.FactorLoadings`.

    Source:
        Attias (2000), A variational Bayesian framework for graphical models, on the posterior of loadings.
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

    @torch.no_grad()
    def learn_uncertainty(self) -> None:
        """Compute the roots of V, ``(P, F, F)``, from the observations, by one smoothing pass over them."""
        (rows,), P = self.train_inputs, self.num_processes
        outputs, factors = rows[:, 1].long(), self._factors(rows, self.condition())
        own = sum(component.loadings()[:, -P:].diagonal().square() for component in self.covar_module.kernels)
        scaled = factors / (self.noise() + own[outputs]).sqrt()[:, None]
        precision = torch.eye(self.num_factors, dtype=scaled.dtype).repeat(P, 1, 1)
        for p in range(P):
            precision[p] += scaled[outputs == p].mT @ scaled[outputs == p]
        root = cholesky(precision, name="precision of the loadings", jitter=0.0)
        eye = torch.eye(self.num_factors, dtype=root.dtype).expand_as(root)
        self.loading_roots = torch.linalg.solve_triangular(root, eye, upper=False).mT

    def components(self, x: Tensor | None = None) -> Iterator[list[SeriesComponent]]:
        """The components of the covariance, with the shared processes as F further outputs, never observed."""
        for components in super().components(x):
            yield _with_factors(components, self.num_processes)

    @torch.no_grad()
    def leave_one_out(self) -> Moments:
        """As :meth:`.SeriesCorrelatedGPRegression.leave_one_out`, with the uncertainty of the loadings."""
        mean, variance = super().leave_one_out()
        effects = self._effects(self.train_inputs[0], self.condition())
        return Moments(mean, variance + effects.square().sum(-1))

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

    @torch.no_grad()
    def _marginals(self, x: Tensor, condition: Any) -> Moments:
        if self.loading_roots is None:
            return super()._marginals(x, condition)
        places, number = self._factor_places(x)
        mean, variance = super()._marginals(torch.cat([x, places]), condition)
        factors = mean[len(x) :].reshape(-1, self.num_factors)[number]
        return Moments(mean[: len(x)], variance[: len(x)] + _scaled(factors, x, self.loading_roots).square().sum(-1))

    @torch.no_grad()
    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        mean, covariance = super()._joint(x, condition)
        effects, outputs = self._effects(x, condition), x[:, 1]
        return mean, covariance + (effects @ effects.mT) * (outputs[:, None] == outputs)

    def _effects(self, x: Tensor, condition: Any) -> Tensor:
        r""":math:`\hat f_t^\top V_p^{1/2}` of rows ``(t, 2)``: ``(t, F)``."""
        if self.loading_roots is None:
            return x.new_zeros(len(x), 1)
        return _scaled(self._factors(x, condition), x, self.loading_roots)

    def _factors(self, x: Tensor, condition: Any) -> Tensor:
        """Posterior means of the shared processes at rows ``(t, 2)``: ``(t, F)``."""
        places, number = self._factor_places(x)
        (member,) = self._with_places(places, condition)  # without variances, which would double the time
        means = member.posterior().mean.flatten()[member.line.cells[-len(places) :]]
        return means.to(x).reshape(-1, self.num_factors)[number]

    def _factor_places(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all shared processes at the distinct inputs of rows, and which of the inputs each row is at."""
        if x.dim() != 2 or self.batch():
            raise ValueError(f"x: expected rows (t, 2) and no batch of parameters, got shape {tuple(x.shape)}")
        inputs, number = x[:, 0].unique(return_inverse=True)
        return torch.cartesian_prod(inputs, self.num_processes + torch.arange(self.num_factors).to(x)), number


def _scaled(factors: Tensor, x: Tensor, roots: Tensor) -> Tensor:
    """Each row of factors ``(t, F)`` times the root ``(F, F)`` of its output."""
    outputs, scaled = x[:, 1].long(), torch.empty_like(factors)
    for p in outputs.unique():
        scaled[outputs == p] = factors[outputs == p] @ roots[p]
    return scaled


def _with_factors(components: list[SeriesComponent], num_processes: int) -> list[SeriesComponent]:
    counts = [component.loadings.shape[-1] - num_processes for component in components]
    extended = []
    for number, (component, count) in enumerate(zip(components, counts, strict=True)):
        further = component.loadings.new_zeros(sum(counts), component.loadings.shape[-1])
        further[sum(counts[:number]) :][:count, :count] = torch.eye(count, dtype=further.dtype)
        scales = component.scales[:1].expand(num_processes + sum(counts))
        extended.append(component._replace(loadings=torch.cat([component.loadings, further]), scales=scales))
    return extended
