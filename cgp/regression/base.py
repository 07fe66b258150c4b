"""What exact and sparse regression share: data, mean, covariance, noise, and the way to a prediction."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from torch import Tensor
from torch.distributions import constraints

from .checks import check_training_data
from .covariance import correlated_covariance
from .likelihood import ProcessGaussianLikelihood
from .mean import ProcessMean
from .posteriors import ExactCondition, Moments
from .sparse_posteriors import SparseCondition

__all__ = ["CHUNK", "ProcessRegression"]

CHUNK = 4096


class ProcessRegression(ExactGP):
    """Correlated processes observed in rows that name their process in the last column.

    Subclasses say how the rows are conditioned on. In train mode a call gives the prior at the rows, as GPyTorch's
    ``ExactMarginalLogLikelihood`` wants it; in eval mode the posterior, always by explicit factorisation.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.
        **covariance: for :func:`cgp.regression.correlated_covariance`.

    Raises:
        ValueError: if the data are not finite or their shapes do not fit.
    """

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        likelihood: ProcessGaussianLikelihood | None = None,
        **covariance: Any,
    ) -> None:
        num_processes = check_training_data(train_inputs, train_targets, num_processes)
        super().__init__(
            train_inputs, train_targets, ProcessGaussianLikelihood(num_processes) if likelihood is None else likelihood
        )
        self.num_processes = num_processes
        self.mean_module = ProcessMean(num_processes)
        self.covar_module: Any = correlated_covariance(num_processes, train_inputs.shape[-1] - 1, **covariance)
        self.to(train_inputs.dtype)

    @property
    def sum_kernel(self) -> AdditiveKernel:
        """The prior covariance of the processes, a sum over components."""
        return self.covar_module

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows.

        Args:
            x: ``(*batch, n, d + 1)``.

        Returns:
            Event shape ``(n,)``.
        """
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """The prior in train mode, the posterior in eval mode."""
        if self.training:
            return super().__call__(*args, **kwargs)
        (x,) = args
        return self.posterior(x)

    def condition(self) -> ExactCondition | SparseCondition:
        """Factor the observations: what all predictions share.

        Returns:
            To be handed to :meth:`moments` and :meth:`posterior`.
        """
        raise NotImplementedError

    def log_evidence(self) -> Tensor:
        """The objective in nats: the log marginal likelihood, or the bound to it.

        Returns:
            ``(*batch,)``.
        """
        raise NotImplementedError

    def moments(self, x: Tensor, condition: Any = None, *, noisy: bool = False) -> Moments:
        """Marginal means and variances of the posterior, in chunks of rows.

        Args:
            x: ``(t, d + 1)``.
            condition: what :meth:`condition` gave; None computes it.
            noisy: whether the variance is that of an observation.

        Returns:
            ``(*batch, t)`` each.
        """
        condition = self.condition() if condition is None else condition
        x = self._expanded(x)
        parts = [self._moments(rows, condition) for rows in x.split(CHUNK, dim=-2)]
        mean = torch.cat([part.mean for part in parts], dim=-1) + self.mean_module(x)
        variance = torch.cat([part.variance for part in parts], dim=-1)
        return Moments(mean, variance + self.likelihood.noise_of_rows(x) if noisy else variance)

    def posterior(self, x: Tensor, condition: Any = None) -> MultivariateNormal:
        """The joint posterior of the processes at rows.

        Args:
            x: ``(t, d + 1)``: any process anywhere.
            condition: what :meth:`condition` gave; None computes it.

        Returns:
            Event shape ``(t,)``, without noise: ``likelihood(posterior, x)`` adds it.
        """
        condition = self.condition() if condition is None else condition
        x = self._expanded(x)
        mean, covariance = self._joint(x, condition)
        # A tensor would be factored here and now, and it is singular wherever the data leave no doubt.
        return MultivariateNormal(mean + self.mean_module(x), to_linear_operator(covariance))

    def log_prior(self) -> Tensor:
        """Log-density of the parameters under their priors, in nats.

        Returns:
            A scalar.
        """
        terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.named_priors()]
        return torch.stack(terms).sum()

    def log_volume(self) -> Tensor:
        r"""What turns the density of positive parameters into that of their logarithms, :math:`\sum\log\theta`.

        The most probable parameters depend on the units in which they are measured; a fit measures positive ones by
        their logarithm, in which the log-normal priors are normal and pull nothing to zero.

        Returns:
            A scalar, in nats.
        """
        positive = [
            closure(module).log().sum()
            for _, module, prior, closure, _ in self.named_priors()
            if prior.support is not constraints.real
        ]
        return torch.stack(positive).sum()

    def residual(self) -> Tensor:
        """The observations less their mean.

        Returns:
            ``(*batch, n)``.
        """
        return self.train_targets - self.mean_module(self.train_inputs[0])

    def noise(self) -> Tensor:
        """The noise of each observation.

        Returns:
            ``(*batch, n)``.
        """
        return self.likelihood.noise_of_rows(self.train_inputs[0])

    def _expanded(self, x: Tensor) -> Tensor:
        """Rows with the batch shape of loaded samples."""
        return x.expand(*self.train_inputs[0].shape[:-2], *x.shape[-2:])

    def _moments(self, x: Tensor, condition: Any) -> Moments:
        raise NotImplementedError

    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError
