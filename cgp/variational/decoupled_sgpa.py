"""Decoupled SGPA as a strategy: one inducing set for the mean, a smaller one for the covariance."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.functional import sparse_gp

from .sgpa import SGPAVariationalStrategy

__all__ = ["DecoupledSGPAVariationalStrategy"]


class DecoupledSGPAVariationalStrategy(SGPAVariationalStrategy):
    r"""Sparse variational Gaussian process with inducing inputs of its own for the mean.

    .. math:: \mu = (K_{x\gamma} - T_x^\top T_\gamma)v_\gamma + K_{x\beta}v_\beta, \qquad
        \Sigma = K_{xx} - T_x^\top T_x + T_x^\top RR^\top T_x, \qquad T_\cdot = L_\beta^{-1}K_{\beta\cdot}

    Its divergence is that of this very posterior (GPyTorch's orthogonally decoupled strategy has another).

    Args:
        covar_module: the kernel.
        inducing_points: :math:`\beta` to start from, ``(m, D)``; they carry the covariance.
        mean_inducing_points: :math:`\gamma` to start from, ``(l, D)``; they refine the mean.
        **options: ``mean_module``, ``batch_shape``.

    Raises:
        ValueError: if inducing points are not matrices of one width.

    Note:
        Chen & Li (ICLR 2023), section 3.2; Salimbeni et al., Orthogonally Decoupled Variational Gaussian Processes
        (2018).

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> strategy = DecoupledSGPAVariationalStrategy(RBFKernel(), torch.zeros(1, 1), torch.ones(2, 1))
        >>> strategy(torch.zeros(3, 1)).event_shape
        torch.Size([3])
    """

    def __init__(
        self, covar_module: Kernel, inducing_points: Tensor, mean_inducing_points: Tensor, **options: Any
    ) -> None:
        super().__init__(covar_module, inducing_points, **options)
        if mean_inducing_points.dim() != 2 or mean_inducing_points.shape[-1] != inducing_points.shape[-1]:
            raise ValueError(
                f"mean_inducing_points: expected (l, {inducing_points.shape[-1]}), "
                f"got shape {tuple(mean_inducing_points.shape)}"
            )
        self.mean_inducing_points = nn.Parameter(mean_inducing_points.clone())
        self.mean_values = nn.Parameter(inducing_points.new_zeros(*self.batch_shape, mean_inducing_points.shape[0]))

    def kl_divergence(self) -> Tensor:
        r"""Divergence from the prior: the global variables', and that of the mean's own part.

        .. math:: \tfrac12v_\gamma^\top(K_{\gamma\gamma} - T_\gamma^\top T_\gamma)v_\gamma

        Returns:
            ``batch_shape``, in nats.
        """
        gamma = self.mean_inducing_points
        K_gg = self.covar_module(gamma).to_dense()
        features = self._keys().whitening @ self.covar_module(self.inducing_points, gamma).to_dense()
        own = sparse_gp.orthogonal_divergence(K_gg, features, self.mean_values[..., None])
        return super().kl_divergence() + own

    def _shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        beta, gamma, keys = self.inducing_points, self.mean_inducing_points, self._keys()
        features_x, features_g = (keys.whitening @ self.covar_module(beta, z).to_dense() for z in (x, gamma))
        whitened = (self.values @ keys.factor)[..., None]  # Lᵀ v_β
        K_xg = self.covar_module(x, gamma).to_dense()
        mean = sparse_gp.decoupled_mean(K_xg, features_x, features_g, self.mean_values[..., None], whitened)
        return mean[..., 0], features_x
