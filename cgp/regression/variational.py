"""Stochastic variational regression with correlated processes: minibatches, for any number of rows."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import GP
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

from .base import CHUNK
from .checks import check_training_data
from .covariance import correlated_covariance, dense_covariance, prior_variance
from .inducing import InducingFeatures
from .likelihood import ProcessGaussianLikelihood
from .mean import ProcessMean
from .posteriors import Moments

__all__ = ["StochasticCorrelatedGPRegression", "WhitenedInducingValues"]

_INITIAL_SCALE = 0.1


class WhitenedInducingValues(Module):
    r"""A Gaussian over whitened inducing values, :math:`q(v) = N(m, SS^\top)`, against the prior N(0, I).

    Args:
        num_inducing: m.

    Example:
        >>> WhitenedInducingValues(2).kl_divergence() > 0
        tensor(True)
    """

    def __init__(self, num_inducing: int) -> None:
        super().__init__()
        self.register_parameter("variational_mean", nn.Parameter(torch.zeros(num_inducing)))
        self.register_parameter("raw_root", nn.Parameter(_INITIAL_SCALE * torch.eye(num_inducing)))

    @property
    def root(self) -> Tensor:
        """S, lower triangular, ``(m, m)``."""
        return self.raw_root.tril()

    def kl_divergence(self) -> Tensor:
        r""":math:`\tfrac12[\operatorname{tr} SS^\top + m^\top m - M] - \log|\det S|`.

        Returns:
            A scalar, in nats.
        """
        root = self.root
        log_det = root.diagonal().abs().log().sum()
        size = self.variational_mean.shape[-1]
        return 0.5 * (root.square().sum() + self.variational_mean.square().sum() - size) - log_det


class StochasticCorrelatedGPRegression(GP):
    r"""Variational regression through inducing inputs in the canonical space, in minibatches.

    .. math:: q(f_*) = N\big(m_* + A_*^\top m,\; K_{**} - A_*^\top A_* + A_*^\top SS^\top A_*\big)

    Trained by GPyTorch's ``VariationalELBO(model.likelihood, model, num_data)(model(x), y, rows=x)``, which adds the
    priors of the parameters, too. In train mode a call gives independent marginals, which is all the bound needs, in
    eval mode the joint posterior. Time O(b m²) a step for b rows.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1: shapes, processes, and the first inducing inputs.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        num_inducing: m, all components together.
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.
        seed: of the clustering that places the first inducing inputs.
        **covariance: for :func:`cgp.regression.correlated_covariance`.

    Source:
        Hensman, Fusi & Lawrence (2013), Gaussian processes for big data.

    Example:
        >>> from gpytorch.mlls import VariationalELBO
        >>> x = torch.cat([torch.linspace(0, 1, 20)[:, None], torch.zeros(20, 1)], dim=-1)
        >>> model = StochasticCorrelatedGPRegression(x, x[:, 0].sin(), num_inducing=5)
        >>> VariationalELBO(model.likelihood, model, num_data=20)(model(x[:8]), x[:8, 0].sin(), rows=x[:8]).shape
        torch.Size([])
    """

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        num_inducing: int = 100,
        likelihood: ProcessGaussianLikelihood | None = None,
        seed: int = 0,
        **covariance: Any,
    ) -> None:
        super().__init__()
        num_processes = check_training_data(train_inputs, train_targets, num_processes)
        self.num_processes = num_processes
        self.train_inputs, self.train_targets = train_inputs, train_targets
        self.likelihood = ProcessGaussianLikelihood(num_processes) if likelihood is None else likelihood
        self.mean_module = ProcessMean(num_processes)
        self.covar_module = correlated_covariance(num_processes, train_inputs.shape[-1] - 1, **covariance)
        self.to(train_inputs.dtype)
        self.features = InducingFeatures(self.covar_module, train_inputs, num_inducing, seed=seed)
        self.variational_strategy = WhitenedInducingValues(num_inducing)
        self.to(train_inputs.dtype)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The posterior of the processes at rows: independent marginals in train mode, the joint in eval mode.

        Args:
            x: ``(b, d + 1)``.

        Returns:
            Event shape ``(b,)``, without noise.
        """
        if self.training:
            moments = self._moments(x)
            return MultivariateNormal(moments.mean, DiagLinearOperator(moments.variance))
        features = self.features(self.covar_module, x)
        rooted = self.variational_strategy.root.mT @ features
        covariance = dense_covariance(self.covar_module, x) - features.mT @ features + rooted.mT @ rooted
        return MultivariateNormal(self._mean(x, features), to_linear_operator(covariance))

    def condition(self) -> None:
        """Nothing: the variational distribution holds what is known of the observations."""

    def moments(self, x: Tensor, condition: None = None, *, noisy: bool = False) -> Moments:
        """Marginal means and variances of the posterior, in chunks of rows.

        Args:
            x: ``(t, d + 1)``.
            condition: always None.
            noisy: whether the variance is that of an observation.

        Returns:
            ``(t,)`` each.
        """
        parts = [self._moments(rows) for rows in x.split(CHUNK, dim=-2)]
        mean, variance = (torch.cat(field, dim=-1) for field in zip(*parts, strict=True))
        return Moments(mean, variance + self.likelihood.noise_of_rows(x) if noisy else variance)

    def posterior(self, x: Tensor, condition: None = None) -> MultivariateNormal:
        """The joint posterior of the processes at rows.

        Args:
            x: ``(t, d + 1)``.
            condition: always None.

        Returns:
            Event shape ``(t,)``, without noise.
        """
        training = self.training
        try:
            return self.eval()(x)
        finally:
            self.train(training)

    def _mean(self, x: Tensor, features: Tensor) -> Tensor:
        return self.mean_module(x) + features.mT @ self.variational_strategy.variational_mean

    def _moments(self, x: Tensor) -> Moments:
        features = self.features(self.covar_module, x)
        informed = (self.variational_strategy.root.mT @ features).square().sum(-2)
        missing = (prior_variance(self.covar_module, x) - features.square().sum(-2)).clamp(min=0.0)
        return Moments(self._mean(x, features), missing + informed)
