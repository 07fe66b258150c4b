"""Kernel-eigen features as a strategy: inducing variables on the singular vectors of an asymmetric kernel."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import AddedLossTerm
from torch import Tensor, nn

from cgp.functional import kernel_eigen
from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.kernel_eigen import BRANCHES, Projections

from .column_normal import column_normal
from .eigen_variables import EigenVariables

__all__ = ["KSVDLoss", "KernelEigenVariationalStrategy"]


class KSVDLoss(AddedLossTerm):
    """The KSVD loss as a term that GPyTorch's objectives add.

    Args:
        value: the weighted loss, a scalar.
    """

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def loss(self) -> Tensor:
        """The scalar.

        Returns:
            ``()``.
        """
        return self.value

    def __deepcopy__(self, memo: dict[int, Any]) -> KSVDLoss:
        """A copy cut from the graph: graphs cannot be copied."""
        return KSVDLoss(self.value.detach().clone())


class KernelEigenVariationalStrategy(gpytorch.Module):
    r"""Sparse variational Gaussian process on the pair of projections of a kernel singular value decomposition.

    .. math:: f = (E + R)\Lambda^{-1}u, \quad u \sim N(m, LL^\top), \qquad E = \varphi_q(x)W_e, \quad
        R = \varphi_k(x)W_r

    of prior :math:`u \sim N(0, \Lambda^2)`, or one branch alone. The KSVD loss, divided by the number of inputs
    squared, is left as an added loss term in training. For use as the ``variational_strategy`` of an
    ``ApproximateGP``.

    Args:
        query_features: :math:`\varphi_q`, a module from ``(N, D)`` to ``(N, F)``.
        key_features: :math:`\varphi_k`, likewise.
        num_features: F.
        rank: r.
        branches: "both", "e" or "r".
        whiten: whether u is parametrised in units of Λ, :math:`u = \Lambda\tilde u`.
        residual: whether to add the diagonal of what the projections do not explain.
        ksvd_weight: weight of the KSVD loss.

    Raises:
        ValueError: if ``branches`` is unknown.

    Note:
        KEP-SVGP (16)-(21).

    Example:
        >>> strategy = KernelEigenVariationalStrategy(nn.Linear(1, 4), nn.Linear(1, 4), num_features=4, rank=2)
        >>> strategy(torch.zeros(3, 1)).event_shape, strategy.kl_divergence().shape
        (torch.Size([3]), torch.Size([]))
    """

    def __init__(
        self,
        query_features: nn.Module,
        key_features: nn.Module,
        *,
        num_features: int,
        rank: int,
        branches: str = "both",
        whiten: bool = True,
        residual: bool = False,
        ksvd_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if branches not in BRANCHES:
            raise ValueError(f"branches: expected one of {BRANCHES}, got {branches!r}")
        self.query_features, self.key_features = query_features, key_features
        self.branches, self.residual, self.ksvd_weight = branches, residual, ksvd_weight
        self.weight_e, self.weight_r = (
            nn.Parameter(nn.init.orthogonal_(torch.empty(num_features, rank))) for _ in range(2)
        )
        self.variables = EigenVariables(rank, 1, whiten=whiten)
        self.register_added_loss_term("ksvd")

    def forward(self, x: Tensor, prior: bool = False, **_: Any) -> MultivariateNormal:
        """The distribution of the function at some inputs.

        Args:
            x: ``(N, D)``.
            prior: whether to return the prior.
            **_: ignored, for GPyTorch's signature.

        Returns:
            Event shape ``(N,)``.
        """
        phi_q, phi_k = self.query_features(x), self.key_features(x)
        e, r = phi_q @ self.weight_e, phi_k @ self.weight_r
        projected = Projections(e, r, (self.weight_e * self.weight_r).sum())
        if self.training:
            loss = kernel_eigen.ksvd_loss(projected, self.variables.singular_values) / x.shape[-2] ** 2
            self.update_added_loss_term("ksvd", KSVDLoss(self.ksvd_weight * loss))
        features = kernel_eigen.merge_branches(e, r, self.branches)
        diagonal = self._residual(phi_q, phi_k, projected)
        mean, root = self.variables.mean, self.variables.root
        if prior:
            mean, root = torch.zeros_like(mean), torch.eye(root.shape[-1]).to(root).expand_as(root)
        posterior = ColumnGaussian(features @ mean.mT, features, root, diagonal[:, None])
        normal = column_normal(posterior)
        return MultivariateNormal(normal.mean[0], normal.lazy_covariance_matrix[0])

    def kl_divergence(self) -> Tensor:
        """Divergence of the inducing variables from their prior.

        Returns:
            ``()``, in nats.
        """
        return self.variables.kl_divergence().sum()

    def _residual(self, phi_q: Tensor, phi_k: Tensor, projected: Projections) -> Tensor:
        if not self.residual:
            return torch.zeros_like(projected.e[:, 0])
        of_e, of_r = kernel_eigen.residual_variances(phi_q, phi_k, projected)
        return {"both": of_e + of_r, "e": of_e, "r": of_r}[self.branches]
