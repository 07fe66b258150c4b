"""Exact regression with correlated processes."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel, Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from torch import Tensor

from .checks import check_training_data
from .correlation import start_at_correlation
from .covariance import correlated_covariance, dense_covariance, prior_variance
from .likelihood import ProcessGaussianLikelihood
from .mean import ProcessMean
from .posteriors import ExactPosterior, Moments, exact_evidence

__all__ = ["CHUNK", "CorrelatedGPRegression", "noise_of_rows"]

CHUNK = 4096


class CorrelatedGPRegression(ExactGP):
    r"""Exact regression: P processes, each a weighted sum of mapped copies of one canonical process.

    .. math::
        y_i = m_{p_i} + z_{p_i}(x_i) + \epsilon_i, \qquad
        \operatorname{Cov}[z_p(x), z_r(x')] = a_p^\top a_r\,\kappa(x \odot w_p + b_p,\; x' \odot w_r + b_r)

    Every row is an input and the number of the process that is observed there, so that processes may be observed at
    inputs of their own, or not at all; every process can be predicted anywhere from all the rows. Time O(n³), memory
    O(n²), always by Cholesky. In train mode a call gives the prior at the rows, as GPyTorch's
    ``ExactMarginalLogLikelihood`` wants it; in eval mode the posterior.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        kernel: the canonical covariance, "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel.
        num_components: Q, independent such covariances that are summed.
        structure: how processes are related, "independent", "coregionalised", "scaled" or "shifted"; see
            :func:`cgp.regression.correlated_covariance`.
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.

    Raises:
        ValueError: if the data are not finite, shapes do not fit, or an argument is out of range.

    Note:
        Means, scales and lengthscales start, and have priors, for inputs and outputs of unit variance.

    Source:
        CGPT equations (13)-(16); Rasmussen & Williams (2006), equations (2.25), (2.26), (2.30).

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]], dtype=torch.float64)
        >>> model = CorrelatedGPRegression(x, torch.tensor([1.0, 2.0, 0.3], dtype=torch.float64)).eval()
        >>> model(torch.tensor([[0.7, 1.0]], dtype=torch.float64)).mean.shape
        torch.Size([1])
    """

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        kernel: str | Kernel = "rbf",
        num_components: int = 1,
        structure: str = "shifted",
        likelihood: ProcessGaussianLikelihood | GaussianLikelihood | None = None,
    ) -> None:
        num_processes = check_training_data(train_inputs, train_targets, num_processes)
        likelihood = ProcessGaussianLikelihood(num_processes) if likelihood is None else likelihood
        super().__init__(train_inputs, train_targets, likelihood)
        self.num_processes = num_processes
        self.mean_module = ProcessMean(num_processes)
        self.covar_module: AdditiveKernel = correlated_covariance(
            num_processes, train_inputs.shape[-1] - 1, kernel=kernel, num_components=num_components, structure=structure
        )
        self.to(train_inputs.dtype)
        start_at_correlation(self.covar_module, train_inputs, train_targets)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows ``(*batch, n, d + 1)``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """The prior in train mode, the posterior in eval mode."""
        if self.training:
            return super().__call__(*args, **kwargs)
        (x,) = args
        return self.posterior(x)

    def condition(self) -> Any:
        """Factor the observations: what all predictions share.

        Returns:
            To be handed to :meth:`moments` and :meth:`posterior`.
        """
        return ExactPosterior(self._covariance(), self.noise(), self.residual())

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, or the bound to it, ``(*batch,)``."""
        return exact_evidence(self._covariance(), self.noise(), self.residual())

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
        return Moments(mean, variance + noise_of_rows(self.likelihood, x) if noisy else variance)

    def posterior(self, x: Tensor, condition: Any = None) -> MultivariateNormal:
        """The joint posterior of the processes at rows.

        Args:
            x: ``(*batch, t, d + 1)``: any process anywhere.
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
        """Log-density of the unconstrained parameters under their priors, in nats, a scalar."""
        terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.named_priors()]
        return torch.stack(terms).sum()

    def residual(self) -> Tensor:
        """The observations less their mean, ``(*batch, n)``."""
        return self.train_targets - self.mean_module(self.train_inputs[0])

    def noise(self) -> Tensor:
        """The noise variance of each observation, ``(*batch, n)``."""
        return noise_of_rows(self.likelihood, self.train_inputs[0])

    def _expanded(self, x: Tensor) -> Tensor:
        """Rows with the batch shape of loaded samples."""
        batch = torch.broadcast_shapes(self.train_inputs[0].shape[:-2], x.shape[:-2])
        return x.expand(*batch, *x.shape[-2:])

    def _covariance(self) -> Tensor:
        return dense_covariance(self.covar_module, self.train_inputs[0])

    def _moments(self, x: Tensor, condition: Any) -> Moments:
        cross = dense_covariance(self.covar_module, self.train_inputs[0], x)
        return condition.moments(cross, prior_variance(self.covar_module, x))

    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        cross = dense_covariance(self.covar_module, self.train_inputs[0], x)
        covariance = condition.covariance(cross, dense_covariance(self.covar_module, x))
        return condition.moments(cross, prior_variance(self.covar_module, x)).mean, covariance


def noise_of_rows(likelihood: ProcessGaussianLikelihood | GaussianLikelihood, x: Tensor) -> Tensor:
    """The noise variance of each row, for any Gaussian likelihood of GPyTorch.

    Args:
        likelihood: with a noise for each process, or for all of them.
        x: ``(*batch, n, d + 1)``.

    Returns:
        ``(*batch, n)``.
    """
    return likelihood._shaped_noise_covar(x.shape[:-1], x).diagonal(dim1=-2, dim2=-1)
