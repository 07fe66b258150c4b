"""Sparse regression with correlated processes, in closed form."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import LowRankRootLinearOperator
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .base import CHUNK, ProcessRegression
from .covariance import dense_covariance, prior_variance
from .inducing import InducingFeatures
from .likelihood import ProcessGaussianLikelihood
from .posteriors import Moments
from .sparse_posteriors import (
    SparseCondition,
    SparseStatistics,
    dtc_log_density,
    sparse_condition,
    sparse_covariance,
    sparse_moments,
    sparse_statistics,
    vfe_bound,
)

__all__ = ["OBJECTIVES", "SparseCorrelatedGPRegression"]

_STORED = 2**25  # entries of A that are kept for the backward pass; beyond, it computes them again
OBJECTIVES = {"dtc": dtc_log_density, "vfe": vfe_bound}


class SparseCorrelatedGPRegression(ProcessRegression):
    r"""Regression through inducing inputs in the canonical space, by the deterministic training conditional.

    .. math:: y \sim N(m, Q_{nn} + \Sigma), \qquad Q_{nn} = A^\top A, \quad A = L^{-1}K_{mn}

    ``"dtc"`` maximises that likelihood in closed form, ``"vfe"`` the variational bound, which takes
    :math:`\tfrac12\sum_i(k_{ii} - q_{ii})/\sigma^2_{p_i}` off and cannot overfit through the inducing inputs. Both
    predict alike: away from the inducing inputs the variance returns to the prior's. Time O(n m²), memory O(n + m²)
    beyond the data: rows are taken in chunks, which the backward pass computes again.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        num_inducing: m, all components together; at most the number of distinct rows.
        objective: "vfe" or "dtc".
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.
        seed: of the clustering that places the first inducing inputs.
        **covariance: for :func:`cgp.regression.correlated_covariance`.

    Raises:
        ValueError: if ``objective`` is unknown, or the data or sizes do not fit.

    Source:
        Quiñonero-Candela & Rasmussen (2005), section 5; Titsias (2009); CGPT equations (30)-(35).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 20)[:, None], torch.zeros(20, 1)], dim=-1)
        >>> model = SparseCorrelatedGPRegression(x, x[:, 0].sin(), num_inducing=5).eval()
        >>> model(x[:3]).mean.shape
        torch.Size([3])
    """

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        num_inducing: int = 100,
        objective: str = "vfe",
        likelihood: ProcessGaussianLikelihood | None = None,
        seed: int = 0,
        **covariance: Any,
    ) -> None:
        if objective not in OBJECTIVES:
            raise ValueError(f"objective: expected one of {tuple(OBJECTIVES)}, got {objective!r}")
        super().__init__(train_inputs, train_targets, num_processes, likelihood=likelihood, **covariance)
        self.objective = objective
        self.features = InducingFeatures(self.sum_kernel, train_inputs, num_inducing, seed=seed)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The low-rank prior at rows, for GPyTorch's ``ExactMarginalLogLikelihood``, whose value is then "dtc"'s.

        Args:
            x: ``(*batch, n, d + 1)``.

        Returns:
            Event shape ``(n,)``.
        """
        root = self.features(self.sum_kernel, x).mT
        return MultivariateNormal(self.mean_module(x), LowRankRootLinearOperator(root))

    def statistics(self) -> SparseStatistics:
        """Sums over the observations, in chunks of rows.

        Returns:
            Their size depends on m alone.
        """
        factors = self.features.factors(self.sum_kernel)
        rows, residual, noise = self.train_inputs[0], self.residual(), self.noise()
        chunks = list(zip(rows.split(CHUNK, -2), residual.split(CHUNK, -1), noise.split(CHUNK, -1), strict=True))
        stored = len(rows) * self.features.num_inducing
        if stored <= _STORED or not torch.is_grad_enabled():
            parts = [self._statistics(*chunk, *factors) for chunk in chunks]
        else:
            parts = [checkpoint(self._statistics, *chunk, *factors, use_reentrant=False) for chunk in chunks]
        return SparseStatistics(*(torch.stack(field).sum(0) for field in zip(*parts, strict=True)))

    def condition(self) -> SparseCondition:
        """Condition the inducing values on the observations, O(n m²).

        Returns:
            To be handed to :meth:`moments` and :meth:`posterior`.
        """
        return sparse_condition(self.statistics())

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood ("dtc") or its bound ("vfe") in nats.

        Returns:
            ``(*batch,)``.
        """
        return OBJECTIVES[self.objective](self.statistics())

    def inducing_inputs(self) -> list[Tensor]:
        """The inducing inputs of every component, in its canonical space.

        Returns:
            One ``(*batch, m_q, s + e)`` a component.
        """
        return self.features.inducing_inputs(self.sum_kernel)

    def _statistics(self, x: Tensor, residual: Tensor, noise: Tensor, *factors: Tensor) -> SparseStatistics:
        crosses = self.features.crosses(self.sum_kernel, x, noise.rsqrt())
        return sparse_statistics(list(factors), crosses, residual, noise, prior_variance(self.sum_kernel, x))

    def _moments(self, x: Tensor, condition: Any) -> Moments:
        return sparse_moments(condition, self.features(self.sum_kernel, x), prior_variance(self.sum_kernel, x))

    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        features = self.features(self.sum_kernel, x)
        mean = sparse_moments(condition, features, prior_variance(self.sum_kernel, x)).mean
        return mean, sparse_covariance(condition, features, dense_covariance(self.sum_kernel, x))
