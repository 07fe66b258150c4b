"""SGPA as strategies: sparse variational Gaussian processes parametrised by values."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from linear_operator.operators import CholLinearOperator, DiagLinearOperator, TriangularLinearOperator
from torch import Tensor, nn

from cgp.functional import sgpa
from cgp.functional.linalg import cholesky, solve_lower
from cgp.operators import DenseCovarianceLinearOperator

from .inducing_variables import as_points, positive_triangle, single_normal

__all__ = ["DecoupledSGPAVariationalStrategy", "SGPAVariationalStrategy"]


class SGPAVariationalStrategy(gpytorch.Module):
    r"""Sparse variational Gaussian process whose mean is kernel attention to the inducing inputs.

    .. math:: \mu = K_{xz}v, \qquad \Sigma = K_{xx} - T^\top T + T^\top RR^\top T, \qquad T = L^{-1}K_{zx}

    the values v and the whitened triangle R being the variational parameters (:math:`S = LRR^\top L^\top`). For use as
    the ``variational_strategy`` of an ``ApproximateGP``, whose own kernel it replaces. With :math:`v = L^{-\top}w` it
    is GPyTorch's whitened ``VariationalStrategy``, and goes into its ``LMCVariationalStrategy`` and
    ``IndependentMultitaskVariationalStrategy``, too. Marginals are computed without the covariance over the inputs.

    Args:
        covar_module: the kernel.
        inducing_points: initial z, ``(*batch, m, D)``, or ``(m,)`` for D = 1.
        mean_module: the prior mean; None is zero.
        batch_shape: batch shape of independent outputs.

    Raises:
        ValueError: if the inducing points are not finite.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023), section 3.1.

    Example:
        >>> strategy = SGPAVariationalStrategy(gpytorch.kernels.RBFKernel(), torch.linspace(0, 1, 4))
        >>> strategy(torch.zeros(2, 3, 1)).batch_shape, strategy.kl_divergence().shape
        (torch.Size([2]), torch.Size([]))
    """

    def __init__(
        self,
        covar_module: Kernel,
        inducing_points: Tensor,
        *,
        mean_module: Mean | None = None,
        batch_shape: torch.Size = torch.Size(),
    ) -> None:
        super().__init__()
        self.covar_module = covar_module
        self.mean_module = ZeroMean() if mean_module is None else mean_module
        self.batch_shape = batch_shape
        self.inducing_points = nn.Parameter(as_points(inducing_points, "inducing_points").clone())
        shape = (*batch_shape, self.inducing_points.shape[-2])
        self.values = nn.Parameter(inducing_points.new_zeros(shape))
        self.raw_root = nn.Parameter(torch.diag_embed(inducing_points.new_full(shape, 0.54)))  # softplus: near one

    @property
    def root(self) -> Tensor:
        """R, lower triangular with a positive diagonal, ``(*batch_shape, m, m)``."""
        return positive_triangle(self.raw_root)

    def forward(self, x: Tensor, prior: bool = False, **_: Any) -> MultivariateNormal:
        """The distribution of the function, or its prior, at ``x`` ``(*batch, N, D)``, or ``(N,)`` for D = 1."""
        x = as_points(x, "x", self.inducing_points.shape[-1])
        if prior:
            covariance = self.covar_module(x).to_dense()
            mean = self.mean_module(x).expand(*self._batch(covariance), -1)
            return MultivariateNormal(mean, DenseCovarianceLinearOperator(covariance.expand(*mean.shape, -1)))
        factor, K_zx = self._factor(), self._covariance(self.inducing_points, x)
        features = solve_lower(factor, K_zx).expand(*self._batch(K_zx), -1, -1)
        mean = self.mean_module(x) + self._shift(x, factor, K_zx, features)
        posterior = sgpa.decoupled_posterior(
            mean.expand(*features.shape[:-2], -1)[..., None],
            features,
            self.root[..., None, :, :],
            self.covar_module(x, diag=True),
            lambda: sgpa.unexplained_root(self.covar_module(x).to_dense(), features),
        )
        return single_normal(posterior)

    def kl_divergence(self) -> Tensor:
        r"""Divergence, :math:`\tfrac12[\operatorname{tr}RR^\top - m - \log|RR^\top| + v^\top K_{zz}v]`."""
        return sgpa.whitened_divergence(self._whitened(self._factor()), self.root)

    @property
    def variational_distribution(self) -> MultivariateNormal:
        r"""The whitened inducing variables, :math:`N(L^\top v, RR^\top)`, for GPyTorch's strategies of tasks."""
        covariance = CholLinearOperator(TriangularLinearOperator(self.root))
        return MultivariateNormal(self._whitened(self._factor()), covariance)

    @property
    def prior_distribution(self) -> MultivariateNormal:
        """The whitened inducing variables of the prior, :math:`N(0, I)`."""
        return MultivariateNormal(torch.zeros_like(self.values), DiagLinearOperator(torch.ones_like(self.values)))

    @property
    def _variational_distribution(self) -> MultivariateNormal:
        return self.variational_distribution  # of which gpytorch.variational.LMCVariationalStrategy reads the shape

    def _shift(self, x: Tensor, factor: Tensor, K_zx: Tensor, features: Tensor) -> Tensor:
        """Contribution of the values to the mean, ``(*batch, N)``."""
        return (self.values[..., None, :] @ K_zx)[..., 0, :]

    def _whitened(self, factor: Tensor) -> Tensor:
        r"""The mean of the whitened variables, :math:`L^\top v`, ``(*batch_shape, m)``."""
        return (self.values[..., None, :] @ factor)[..., 0, :]

    def _factor(self) -> Tensor:
        return cholesky(self.covar_module(self.inducing_points).to_dense(), name="K_zz (inducing inputs)")

    def _covariance(self, z: Tensor, x: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(z.shape[:-2], x.shape[:-2])
        return self.covar_module(*(points.expand(*batch, *points.shape[-2:]) for points in (z, x))).to_dense()

    def _batch(self, covariance: Tensor) -> torch.Size:
        return torch.broadcast_shapes(self.batch_shape, covariance.shape[:-2])


class DecoupledSGPAVariationalStrategy(SGPAVariationalStrategy):
    r"""Sparse variational Gaussian process with further inducing inputs for the mean.

    .. math:: \mu = (K_{x\gamma} - T_x^\top T_\gamma)v_\gamma + K_{x\beta}v_\beta, \qquad
        \Sigma = K_{xx} - T_x^\top T_x + T_x^\top RR^\top T_x, \qquad T_\cdot = L_\beta^{-1}K_{\beta\cdot}

    The divergence is exactly that of this posterior (GPyTorch's orthogonally decoupled strategy has another). No
    distribution of the inducing variables has it, so GPyTorch's strategies of tasks cannot wrap this one.

    Args:
        covar_module: the kernel.
        inducing_points: initial :math:`\beta`, as for the standard strategy; they determine the covariance.
        mean_inducing_points: initial :math:`\gamma`, ``(*batch, l, D)`` or ``(l,)``; they refine the mean.
        mean_module: the prior mean; None is zero.
        batch_shape: batch shape of independent outputs.

    Raises:
        ValueError: if the inducing points differ in width, or are not finite.

    Note:
        Chen & Li (ICLR 2023), section 3.2; Salimbeni et al., Orthogonally Decoupled Variational Gaussian Processes
        (2018).

    Example:
        >>> kernel = gpytorch.kernels.RBFKernel()
        >>> strategy = DecoupledSGPAVariationalStrategy(kernel, torch.zeros(1, 1), torch.ones(2, 1))
        >>> strategy(torch.zeros(3, 1)).event_shape
        torch.Size([3])
    """

    def __init__(
        self,
        covar_module: Kernel,
        inducing_points: Tensor,
        mean_inducing_points: Tensor,
        *,
        mean_module: Mean | None = None,
        batch_shape: torch.Size = torch.Size(),
    ) -> None:
        super().__init__(covar_module, inducing_points, mean_module=mean_module, batch_shape=batch_shape)
        gamma = as_points(mean_inducing_points, "mean_inducing_points", self.inducing_points.shape[-1])
        self.mean_inducing_points = nn.Parameter(gamma.clone())
        self.mean_values = nn.Parameter(gamma.new_zeros(*batch_shape, gamma.shape[-2]))

    def kl_divergence(self) -> Tensor:
        """Divergence from the prior, including the inducing inputs of the mean, ``batch_shape``, in nats."""
        values = self.mean_values[..., None]
        attended = self.covar_module(self.mean_inducing_points).to_dense() @ values
        of_mean = sgpa.decoupled_divergence(values, attended, self._gathered(self._factor()))
        return super().kl_divergence() + of_mean

    @property
    def variational_distribution(self) -> MultivariateNormal:
        """None: NotImplementedError, since its divergence would lack the part of the mean."""
        raise NotImplementedError(
            "base_variational_strategy: expected SGPAVariationalStrategy, got DecoupledSGPAVariationalStrategy, whose "
            "divergence is of more than inducing variables"
        )

    def _shift(self, x: Tensor, factor: Tensor, K_zx: Tensor, features: Tensor) -> Tensor:
        attended = self._covariance(x, self.mean_inducing_points) @ self.mean_values[..., None]
        gathered, whitened = self._gathered(factor), self._whitened(factor)[..., None]
        return sgpa.decoupled_mean(attended, features, gathered, whitened)[..., 0]

    def _gathered(self, factor: Tensor) -> Tensor:
        r""":math:`T_\gamma v_\gamma`, ``(*batch_shape, m, 1)``."""
        K_bg = self._covariance(self.inducing_points, self.mean_inducing_points)
        return solve_lower(factor, K_bg @ self.mean_values[..., None])
