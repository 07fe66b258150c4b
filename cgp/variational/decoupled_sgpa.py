"""Decoupled SGPA as a strategy: one inducing set for the mean, a smaller one for the covariance."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor, nn

from cgp.functional import sgpa
from cgp.functional.linalg import solve_lower

from .sgpa import SGPAVariationalStrategy, as_points

__all__ = ["DecoupledSGPAVariationalStrategy"]


class DecoupledSGPAVariationalStrategy(SGPAVariationalStrategy):
    r"""Sparse variational Gaussian process with inducing inputs of its own for the mean.

    .. math:: \mu = (K_{x\gamma} - T_x^\top T_\gamma)v_\gamma + K_{x\beta}v_\beta, \qquad
        \Sigma = K_{xx} - T_x^\top T_x + T_x^\top RR^\top T_x, \qquad T_\cdot = L_\beta^{-1}K_{\beta\cdot}

    Its divergence is that of this very posterior (GPyTorch's orthogonally decoupled strategy has another).

    Args:
        covar_module: the kernel.
        inducing_points: :math:`\beta` to start from, as for the standard strategy; they carry the covariance.
        mean_inducing_points: :math:`\gamma` to start from, ``(*batch, l, D)`` or ``(l,)``; they refine the mean.
        mean_module: the prior mean; None is zero.
        batch_shape: of independent outputs.

    Raises:
        ValueError: if the inducing points differ in width.

    Note:
        Chen & Li (ICLR 2023), section 3.2; Salimbeni et al., Orthogonally Decoupled Variational Gaussian Processes
        (2018).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> strategy = DecoupledSGPAVariationalStrategy(RBFKernel(), torch.zeros(1, 1), torch.ones(2, 1))
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
        gamma, width = as_points(mean_inducing_points), self.inducing_points.shape[-1]
        if gamma.shape[-1] != width:
            raise ValueError(f"mean_inducing_points: expected (*batch, l, {width}), got shape {tuple(gamma.shape)}")
        self.mean_inducing_points = nn.Parameter(gamma.clone())
        self.mean_values = nn.Parameter(gamma.new_zeros(*batch_shape, gamma.shape[-2]))

    def kl_divergence(self) -> Tensor:
        """Divergence from the prior, that of the mean's own inducing inputs included, ``batch_shape``, in nats."""
        values = self.mean_values[..., None]
        attended = self.covar_module(self.mean_inducing_points).to_dense() @ values
        own = sgpa.decoupled_divergence(values, attended, self._gathered(self._factor()))
        return super().kl_divergence() + own

    def _shift(self, x: Tensor, factor: Tensor, K_zx: Tensor, features: Tensor) -> Tensor:
        attended = self._covariance(x, self.mean_inducing_points) @ self.mean_values[..., None]
        gathered, whitened = self._gathered(factor), self._whitened(factor)[..., None]
        return sgpa.decoupled_mean(attended, features, gathered, whitened)[..., 0]

    def _gathered(self, factor: Tensor) -> Tensor:
        r""":math:`T_\gamma v_\gamma`, ``(*batch_shape, m, 1)``."""
        K_bg = self._covariance(self.inducing_points, self.mean_inducing_points)
        return solve_lower(factor, K_bg @ self.mean_values[..., None])
