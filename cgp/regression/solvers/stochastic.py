"""Stochastic variational regression with correlated processes: minibatches, for any number of rows."""

from __future__ import annotations

from typing import Any, Self

import torch
from gpytorch import Module
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import AdditiveKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

from cgp.functional.sparse_correlated import InducingGaussian, InducingPosterior
from cgp.kernels.canonical_kernel import noise_of_rows

from .sparse import SparseCorrelatedGPRegression

__all__ = ["StochasticCorrelatedGPRegression", "WhitenedInducingValues"]

_INITIAL_SCALE = 0.1


class WhitenedInducingValues(Module):
    r"""A Gaussian over m whitened inducing values, :math:`q(v) = N(m, SS^\top)`, against the prior N(0, I)."""

    def __init__(self, num_inducing: int) -> None:
        super().__init__()
        self.register_parameter("variational_mean", nn.Parameter(torch.zeros(num_inducing)))
        self.register_parameter("raw_root", nn.Parameter(_INITIAL_SCALE * torch.eye(num_inducing)))

    @property
    def root(self) -> Tensor:
        """S, lower triangular, ``(m, m)``."""
        return self.raw_root.tril()

    def set_posterior(self, posterior: InducingPosterior) -> None:
        """Set the Gaussian to a closed-form posterior."""
        with torch.no_grad():
            self.variational_mean.copy_(posterior.location.squeeze(-1))
            self.raw_root.copy_(torch.linalg.cholesky(posterior.covariance))

    def kl_divergence(self) -> Tensor:
        r""":math:`\tfrac12[\operatorname{tr} SS^\top + m^\top m - M] - \log|\det S|` in nats, a scalar."""
        root = self.root
        log_det = root.diagonal().abs().log().sum()
        size = self.variational_mean.shape[-1]
        return 0.5 * (root.square().sum() + self.variational_mean.square().sum() - size) - log_det


class StochasticCorrelatedGPRegression(SparseCorrelatedGPRegression):
    r"""Variational regression through inducing inputs in the canonical space, in minibatches.

    .. math:: q(f_*) = N\big(m_* + A_*^\top m,\; K_{**} - A_*^\top A_* + A_*^\top SS^\top A_*\big)

    The likelihood may be any of GPyTorch's for one output (Bernoulli, Poisson, negative binomial, Student-t, ...).
    Trained by :func:`~cgp.regression.inference.minibatches.fit_minibatches`, or by GPyTorch's
    ``VariationalELBO(model.likelihood, model, num_data)(model(x), y, rows=x)``. In train mode a call returns
    independent marginals at any rows, which the bound needs, in eval mode the joint posterior. Time O(b m²) a step for
    b rows. The arguments are those of :class:`SparseCorrelatedGPRegression`.

    Source:
        Hensman, Fusi & Lawrence (2013), Gaussian processes for big data.

    Example:
        >>> from gpytorch.mlls import VariationalELBO
        >>> x = torch.cat([torch.linspace(0, 1, 20)[:, None], torch.zeros(20, 1)], dim=-1)
        >>> model = StochasticCorrelatedGPRegression(x, x[:, 0].sin(), num_inducing=5)
        >>> VariationalELBO(model.likelihood, model, num_data=20)(model(x[:8]), x[:8, 0].sin(), rows=x[:8]).shape
        torch.Size([])
    """

    name = "stochastic"
    with_inducing = None  # minibatches ask for it

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        num_processes: int | None = None,
        *,
        num_inducing: int = 100,
        covar_module: AdditiveKernel | None = None,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        seed: int = 0,
    ) -> None:
        given: dict[str, Any] = {"num_inducing": num_inducing, "covar_module": covar_module, "mean_module": mean_module}
        super().__init__(train_inputs, train_targets, num_processes, **given, seed=seed)
        if likelihood is not None:
            self.likelihood = likelihood.to(train_inputs.dtype)
        self.variational_strategy = WhitenedInducingValues(num_inducing).to(train_inputs.dtype)

    def __call__(self, *args: Any, **kwargs: Any) -> MultivariateNormal:
        """Independent marginals in train mode, the joint posterior in eval mode."""
        (x,) = args
        return self.forward(x) if self.training else super().__call__(x)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Independent marginals of the posterior at rows ``(b, d + 1)``."""
        moments = self.moments(x)
        return MultivariateNormal(moments.mean, DiagLinearOperator(moments.variance))

    def bound(self, fit: Tensor, num_data: int) -> Tensor:
        """The bound in nats per row, priors included, given the mean expected log-likelihood of some rows."""
        return fit - (self.variational_strategy.kl_divergence() - self.log_prior()) / num_data

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> Self:
        """The model given further observations with Gaussian noise: q is their prior."""
        other = super().get_fantasy_model(inputs, targets)
        with torch.no_grad():
            residual = targets - self.mean_module(inputs)
            factors = self.features.factors(self.covar_module)
            sums = self._sums(inputs, residual, noise_of_rows(self.likelihood, inputs), *factors)
            root = self.variational_strategy.root
            precision = torch.cholesky_inverse(root)
            gram = precision - torch.eye(len(root), dtype=root.dtype, device=root.device) + sums.gram
            known = precision @ self.variational_strategy.variational_mean.unsqueeze(-1)
            other.variational_strategy.set_posterior(InducingPosterior(gram, known + sums.projection))
        return other

    def condition(self) -> InducingGaussian:
        """The variational distribution, which summarises the observations."""
        strategy = self.variational_strategy
        return InducingGaussian(strategy.variational_mean.unsqueeze(-1), root=strategy.root)
