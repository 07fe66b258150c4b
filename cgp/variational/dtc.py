"""The deterministic training conditional as a variational strategy with a closed-form optimal distribution."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.means import Mean, ZeroMean
from torch import Tensor, nn

from cgp.functional.linalg import cholesky, solve_lower
from cgp.functional.sparse_correlated import InducingGaussian, InducingPosterior, SparsePosterior
from cgp.kernels.canonical_kernel import CanonicalKernel, noise_of_rows
from cgp.operators import LowRankPlusDiagonalLinearOperator
from cgp.operators.missing import check_numbers

from .inducing_variables import as_points

__all__ = ["DTCVariationalStrategy"]


class DTCVariationalStrategy(Module):
    r"""Inducing variables whose variational distribution is the optimal one given the data, recomputed, not stored.

    With :math:`A = L^{-1}K_{mX}`, :math:`L = \operatorname{chol}K_{mm}` and :math:`\Lambda = I + AA^\top/\sigma^2`, the
    whitened inducing variables have

    .. math:: q(u) = N(\Lambda^{-1}A(y - \mu)/\sigma^2,\; \Lambda^{-1}), \qquad
        f(x) \mid y \sim N\big(\mu + a^\top \Lambda^{-1}A(y - \mu)/\sigma^2,\; \delta(x) + a^\top \Lambda^{-1}a\big)

    with :math:`\delta` the prior variance that the inducing inputs do not explain, kept as a diagonal: means and
    variances are DTC's. Covariances of different rows are those through the inducing inputs alone, as FITC's: between
    near rows too small where :math:`\delta` is not, as are errors of sums; joint draws are rough there. An
    ``ApproximateGP`` of it trains by ``VariationalELBO`` on the whole data: Titsias' bound, and the logarithms of the
    priors of kernel and likelihood.

    Args:
        covar_module: a kernel.
        inducing_points: the first ones, ``(m, d)``; they are learned. For :class:`~cgp.kernels.CorrelatedKernel` and
            its relatives ``(m, s)`` in the canonical space, where they serve every process.
        train_inputs: X, ``(n, d)``.
        train_targets: y, ``(n,)``.
        likelihood: Gaussian noise, of all observations or one variance per process; not a submodule, so pass its
            parameters to the optimizer.
        mean_module: the prior mean; zero if None.

    Raises:
        ValueError: if the shapes do not fit, a value is not finite, or the likelihood is not Gaussian.

    Note:
        CGPT section 4.2; Quiñonero-Candela & Rasmussen (2005), section 5; Titsias (2009).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch.models import ApproximateGP
        >>> x = torch.linspace(0, 1, 20)[:, None]
        >>> strategy = DTCVariationalStrategy(RBFKernel(), x[::5], x, x[:, 0].sin(), GaussianLikelihood())
        >>> ApproximateGP(strategy)(x).variance.shape
        torch.Size([20])
    """

    train_inputs: Tensor
    train_targets: Tensor

    def __init__(
        self,
        covar_module: Kernel,
        inducing_points: Tensor,
        train_inputs: Tensor,
        train_targets: Tensor,
        likelihood: _GaussianLikelihoodBase,
        mean_module: Mean | None = None,
    ) -> None:
        super().__init__()
        if isinstance(covar_module, CanonicalKernel):
            covar_module.inducing(inducing_points)  # which checks them
        if train_inputs.dim() != 2 or train_targets.shape != train_inputs.shape[:-1] or inducing_points.dim() != 2:
            raise ValueError(
                f"inducing_points, train_inputs, train_targets: expected (m, d), (n, d) and (n,), got "
                f"{tuple(inducing_points.shape)}, {tuple(train_inputs.shape)} and {tuple(train_targets.shape)}"
            )
        width = None if isinstance(covar_module, CanonicalKernel) else train_inputs.shape[-1]
        as_points(inducing_points, "inducing_points", width)
        for name, values in (("train_inputs", train_inputs), ("train_targets", train_targets)):
            check_numbers(values, name)
        noise_of_rows(likelihood, train_inputs)  # which checks it
        self.covar_module = covar_module
        self._likelihood = (likelihood,)  # not a submodule: objectives hold it, too, and would count its priors twice
        self.mean_module = ZeroMean() if mean_module is None else mean_module
        self.inducing_points = nn.Parameter(inducing_points.clone())
        self.register_buffer("train_inputs", train_inputs)
        self.register_buffer("train_targets", train_targets)

    @property
    def likelihood(self) -> _GaussianLikelihoodBase:
        """The likelihood with the observation noise, whose parameters are trained with those of the model."""
        return self._likelihood[0]

    def __call__(self, x: Tensor, prior: bool = False, **kwargs: Any) -> MultivariateNormal:
        """The posterior of the function at ``x`` ``(n', d)``, or its low-rank prior, without the data."""
        x = as_points(x, "x", self.train_inputs.shape[-1])
        factor, mean = self._factor(), self.mean_module(x)
        inducing: InducingGaussian = self._inducing_prior() if prior else self._optimum(factor)
        posterior = SparsePosterior(self._features(factor, x), inducing, self.covar_module(x, diag=True))
        covariance = LowRankPlusDiagonalLinearOperator(posterior.root, posterior.diagonal)
        return MultivariateNormal(mean + posterior.mean[..., 0], covariance)

    def kl_divergence(self) -> Tensor:
        """Divergence of the optimal distribution from the prior, ``()``, in nats."""
        return self._optimum(self._factor()).kl_divergence()

    def _optimum(self, factor: Tensor) -> InducingPosterior:
        noise = noise_of_rows(self.likelihood, self.train_inputs)
        residual = self.train_targets - self.mean_module(self.train_inputs)
        features = self._features(factor, self.train_inputs)
        if torch.promote_types(noise.dtype, features.dtype) != features.dtype:
            raise ValueError(
                f"likelihood: expected {features.dtype}, as the model, got {noise.dtype}: it is no submodule, so "
                f"convert it as well, likelihood.to({features.dtype})"
            )
        return InducingPosterior.of_targets(features, residual[..., None], noise)

    def _inducing_prior(self) -> InducingGaussian:
        points = self.inducing_points
        root = torch.eye(points.shape[-2], dtype=points.dtype, device=points.device)
        return InducingGaussian(torch.zeros_like(points[..., :1]), root=root)

    def _factor(self) -> Tensor:
        return cholesky(self._covariance(None), name="inducing covariance")

    def _features(self, factor: Tensor, x: Tensor) -> Tensor:
        """A, ``(m, n')``."""
        return solve_lower(factor, self._covariance(x))

    def _covariance(self, x: Tensor | None) -> Tensor:
        """Covariance of the inducing variables with the function at ``x``, ``(m, n')``, or with each other."""
        kernel = self.covar_module
        if isinstance(kernel, CanonicalKernel):
            return kernel.gram(kernel.inducing(self.inducing_points), None if x is None else kernel.points(x))
        return kernel(self.inducing_points, x).to_dense()
