"""Kernel-eigen features as a strategy: inducing variables on the singular vectors of an asymmetric kernel."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor, nn

from cgp.functional import kep_svgp
from cgp.functional.column_gaussians import ColumnGaussian
from cgp.functional.kep_svgp import BRANCHES

from .inducing_variables import InducingVariables, as_points, single_normal
from .loss_terms import LossTerm

__all__ = ["KernelEigenVariationalStrategy"]


class KernelEigenVariationalStrategy(gpytorch.Module):
    r"""Sparse variational Gaussian process on the pair of projections of a kernel singular value decomposition.

    .. math:: f = (E + R)u, \quad u \sim N(m, LL^\top), \qquad E = \varphi_q(x)W_e, \quad R = \varphi_k(x)W_r

    of prior :math:`u \sim N(0, I)` (in units of the singular values), or only one branch. With ``residual`` independent
    noise is added, of the prior variance that the projections do not explain (of one branch its term, each at least 0),

    .. math:: \operatorname{diag}(\varphi_q\varphi_k^\top\varphi_k\varphi_q^\top - EE^\top)
        + \operatorname{diag}(\varphi_k\varphi_q^\top\varphi_q\varphi_k^\top - RR^\top)

    with the products over the inputs of the call, on which it therefore depends. The KSVD loss, divided by the squared
    number of inputs, is an added loss term in training. For use as the ``variational_strategy`` of an
    ``ApproximateGP``.

    Args:
        query_features: :math:`\varphi_q`, a module from ``(*batch, N, D)`` to ``(*batch, N, F)``.
        key_features: :math:`\varphi_k`, likewise.
        num_features: number F of features.
        rank: rank r.
        branches: "both", "e" or "r".
        residual: whether to add the diagonal of what the projections do not explain.
        ksvd_weight: weight of the KSVD loss.

    Raises:
        ValueError: if ``branches`` is unknown, or there are more singular vectors than features; in a call, if there
            are other than F features.

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
        residual: bool = False,
        ksvd_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if branches not in BRANCHES:
            raise ValueError(f"branches: expected one of {BRANCHES}, got {branches!r}")
        if not 0 < rank <= num_features:
            raise ValueError(f"rank: expected 1 to {num_features}, the number of features, got {rank}")
        self.query_features, self.key_features = query_features, key_features
        self.branches, self.residual, self.ksvd_weight = branches, residual, ksvd_weight
        starts = (nn.init.orthogonal_(torch.empty(num_features, rank)) for _ in range(2))
        self.weight_e, self.weight_r = (nn.Parameter(start) for start in starts)
        self.log_singular_values = nn.Parameter(torch.zeros(rank))
        self.variables = InducingVariables(rank, torch.Size([1]))
        self.register_added_loss_term("ksvd")

    def forward(self, x: Tensor, prior: bool = False, **_: Any) -> MultivariateNormal:
        """The distribution of the function, or its prior, at ``x`` ``(*batch, N, D)``, or ``(N,)`` for D = 1."""
        x = as_points(x, "x")
        phi_q, phi_k = self.query_features(x), self.key_features(x)
        for name, features in (("query_features", phi_q), ("key_features", phi_k)):
            if features.shape[-1] != len(self.weight_e):
                raise ValueError(
                    f"{name}: expected num_features={len(self.weight_e)} features, got shape {tuple(features.shape)}"
                )
        projected = kep_svgp.projections(phi_q, phi_k, self.weight_e, self.weight_r)
        if self.training and self.ksvd_weight > 0:
            loss = kep_svgp.ksvd_loss(projected, self.log_singular_values.exp()).mean() / x.shape[-2] ** 2
            self.update_added_loss_term("ksvd", LossTerm(self.ksvd_weight * loss, "ksvd"))
        features = kep_svgp.merge_branches(projected.e, projected.r, self.branches)
        diagonal = None
        if self.residual:
            diagonal = kep_svgp.merge_branches(*kep_svgp.residual_variances(phi_q, phi_k, projected), self.branches)
        if prior:
            identity = torch.eye(features.shape[-1]).to(features)[None]
            return single_normal(ColumnGaussian(torch.zeros_like(features[..., :1]), features, identity, diagonal))
        mean = features @ self.variables.variational_mean.mT
        return single_normal(ColumnGaussian(mean, features, self.variables.root, diagonal))

    def kl_divergence(self) -> Tensor:
        """Divergence of the inducing variables from their prior, ``()``, in nats."""
        return self.variables.kl_divergence().sum()
