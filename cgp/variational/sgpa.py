"""Standard SGPA as a strategy: a sparse variational Gaussian process parametrised by values."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from torch import Tensor, nn

from cgp.functional import sparse_gp
from cgp.functional.sparse_gp import GlobalKeys
from cgp.operators import DenseCovarianceLinearOperator

from .column_normal import column_normal
from .inducing_variables import positive_triangle

__all__ = ["SGPAVariationalStrategy"]


class SGPAVariationalStrategy(gpytorch.Module):
    r"""Sparse variational Gaussian process whose mean is kernel attention to the inducing inputs.

    .. math:: \mu = K_{xz}v, \qquad \Sigma = K_{xx} - T^\top T + T^\top RR^\top T, \qquad T = L^{-1}K_{zx}

    the values v and the whitened triangle R being the variational parameters (:math:`S = LRR^\top L^\top`). For use as
    the ``variational_strategy`` of an ``ApproximateGP``, whose own kernel it replaces. Covariances are exact, in
    training as in eval.

    Args:
        covar_module: the kernel.
        inducing_points: z to start from, ``(m, D)``.
        mean_module: the prior mean; None is zero.
        batch_shape: of independent outputs.

    Raises:
        ValueError: if the inducing points are not a matrix.

    Note:
        Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (ICLR 2023), section 3.1.

    Example:
        >>> strategy = SGPAVariationalStrategy(gpytorch.kernels.RBFKernel(), torch.linspace(0, 1, 4)[:, None])
        >>> strategy(torch.zeros(3, 1)).event_shape, strategy.kl_divergence().shape
        (torch.Size([3]), torch.Size([]))
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
        if inducing_points.dim() != 2:
            raise ValueError(f"inducing_points: expected (m, D), got shape {tuple(inducing_points.shape)}")
        self.covar_module = covar_module
        self.mean_module = ZeroMean() if mean_module is None else mean_module
        self.batch_shape = batch_shape
        self.inducing_points = nn.Parameter(inducing_points.clone())
        shape = (*batch_shape, inducing_points.shape[0])
        self.values = nn.Parameter(inducing_points.new_zeros(shape))
        self.raw_root = nn.Parameter(torch.diag_embed(inducing_points.new_full(shape, 0.54)))  # softplus: near one

    @property
    def root(self) -> Tensor:
        """R, lower triangular with a positive diagonal, ``(*batch_shape, m, m)``."""
        return positive_triangle(self.raw_root)

    def forward(self, x: Tensor, prior: bool = False, **_: Any) -> MultivariateNormal:
        """The distribution of the function at some inputs.

        Args:
            x: ``(N, D)``.
            prior: whether to return the prior.
            **_: ignored, for GPyTorch's signature.

        Returns:
            Batch shape ``batch_shape``, event shape ``(N,)``.
        """
        K_xx = self.covar_module(x).to_dense()
        mean = self.mean_module(x).expand(*self.batch_shape, x.shape[-2])
        if prior:
            covariance = K_xx.expand(*self.batch_shape, *K_xx.shape[-2:])
            return MultivariateNormal(mean, DenseCovarianceLinearOperator(covariance))
        shift, features = self._shift(x)
        posterior = sparse_gp.decoupled_joint((mean + shift)[..., None], features, self.root[..., None, :, :], K_xx)
        return MultivariateNormal(mean + shift, column_normal(posterior).lazy_covariance_matrix[..., 0, :, :])

    def kl_divergence(self) -> Tensor:
        r"""Divergence from the prior, :math:`\tfrac12[\operatorname{tr}RR^\top - m - \log|RR^\top| + v^\top K_{zz}v]`.

        Returns:
            ``batch_shape``, in nats.
        """
        keys = self._keys()
        whitened = self.values @ keys.factor  # (Lᵀ v)ᵀ
        return sparse_gp.whitened_divergence(whitened, self.root)

    def _keys(self) -> GlobalKeys:
        return sparse_gp.global_keys(self.inducing_points, self.covar_module(self.inducing_points).to_dense())

    def _shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the values add to the mean, and the whitened features, both at x."""
        K_zx = self.covar_module(self.inducing_points, x).to_dense()
        return self.values @ K_zx, self._keys().whitening @ K_zx
