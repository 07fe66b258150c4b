r"""Sparse regression with a Gaussian process, as functions of matrices.

:math:`\Sigma` is the diagonal matrix of the noises, r the observations less their mean. Observations are seen through
features :math:`A = L^{-1}K_{mn}`, :math:`LL^\top = K_{mm}`, so that :math:`Q_{nn} = A^\top A`, and nothing is factored
but :math:`B = I + A\Sigma^{-1}A^\top`, whose eigenvalues are at least one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import cholesky, log_determinant, solve_lower

from .posteriors import Moments
from .whitened import whitened_sums

__all__ = [
    "SparseCondition",
    "SparseStatistics",
    "dtc_log_density",
    "sparse_condition",
    "sparse_covariance",
    "sparse_moments",
    "sparse_statistics",
    "vfe_bound",
]

_LOG_TWO_PI = math.log(2.0 * math.pi)


class SparseStatistics(NamedTuple):
    r"""Sums over the observations, of a size that does not depend on their number.

    Attributes:
        gram: :math:`A\Sigma^{-1}A^\top`, ``(*batch, m, m)``.
        projection: :math:`A\Sigma^{-1}r`, ``(*batch, m)``.
        quadratic: :math:`r^\top\Sigma^{-1}r`, ``(*batch,)``.
        log_noise: :math:`\log|\Sigma|`, ``(*batch,)``.
        unexplained: :math:`\sum_i (k_{ii} - q_{ii})/\sigma_i^2`, ``(*batch,)``.
        total: n, ``(*batch,)``.
    """

    gram: Tensor
    projection: Tensor
    quadratic: Tensor
    log_noise: Tensor
    unexplained: Tensor
    total: Tensor


class SparseCondition(NamedTuple):
    r"""What prediction needs of the observations, of a size that does not depend on their number.

    Attributes:
        factor: :math:`L_B` with :math:`L_BL_B^\top = B`, ``(*batch, m, m)``.
        whitened: :math:`L_B^{-1}A\Sigma^{-1}r`, ``(*batch, m)``.
    """

    factor: Tensor
    whitened: Tensor


def sparse_statistics(
    factors: list[Tensor], crosses: list[Tensor], residual: Tensor, noise: Tensor, prior_variance: Tensor
) -> SparseStatistics:
    r"""Sums over observations; those of two sets of observations add.

    Args:
        factors: L of every component, ``(*batch, m_q, m_q)``.
        crosses: :math:`K_{mn}\Sigma^{-1/2}` of every component, ``(*batch, m_q, n)``.
        residual: r, ``(*batch, n)``.
        noise: ``(*batch, n)``.
        prior_variance: ``(*batch, n)``.

    Returns:
        The sums, O(n m²).
    """
    whitened = residual / noise.sqrt()
    gram, projection = whitened_sums(factors, crosses, whitened)
    return SparseStatistics(
        gram=gram,
        projection=projection,
        quadratic=whitened.square().sum(-1),
        log_noise=noise.log().sum(-1),
        unexplained=(prior_variance / noise).sum(-1) - gram.diagonal(dim1=-2, dim2=-1).sum(-1),
        total=torch.full_like(noise[..., 0], noise.shape[-1]),
    )


def sparse_condition(statistics: SparseStatistics) -> SparseCondition:
    """Factor what the inducing values know of the observations.

    Args:
        statistics: sums over the observations.

    Returns:
        The factor of B, and the observations whitened by it: O(m³).
    """
    gram = statistics.gram
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor = cholesky(identity + gram, name="I + A A'/noise", jitter=0.0)
    return SparseCondition(factor, solve_lower(factor, statistics.projection.unsqueeze(-1)).squeeze(-1))


def dtc_log_density(statistics: SparseStatistics) -> Tensor:
    r"""Log marginal likelihood of the deterministic training conditional, :math:`\log N(r; 0, A^\top A + \Sigma)`.

    .. math:: -\tfrac12\big[r^\top\Sigma^{-1}r - \|L_B^{-1}A\Sigma^{-1}r\|^2 + \log|\Sigma| + \log|B| + n\log 2\pi\big]

    Args:
        statistics: sums over the observations.

    Returns:
        ``(*batch,)``, in nats.

    Source:
        Quiñonero-Candela & Rasmussen (2005), section 5, by Woodbury's identity.
    """
    condition = sparse_condition(statistics)
    quadratic = statistics.quadratic - condition.whitened.square().sum(-1)
    log_det = statistics.log_noise + log_determinant(condition.factor)
    return -0.5 * (quadratic + log_det + statistics.total * _LOG_TWO_PI)


def vfe_bound(statistics: SparseStatistics) -> Tensor:
    r"""Variational bound of the log marginal likelihood: DTC's less :math:`\tfrac12\sum_i (k_{ii}-q_{ii})/\sigma^2_i`.

    Args:
        statistics: sums over the observations.

    Returns:
        ``(*batch,)``, in nats, below the exact log marginal likelihood.

    Source:
        Titsias (2009), equation (9), with a noise for each observation.
    """
    return dtc_log_density(statistics) - 0.5 * statistics.unexplained


def sparse_moments(condition: SparseCondition, features: Tensor, prior_variance: Tensor) -> Moments:
    r"""Marginals of the posterior, less the mean function.

    .. math:: A_*^\top B^{-1}A\Sigma^{-1}r, \qquad k_{**} - \|a_*\|^2 + \|L_B^{-1}a_*\|^2

    Args:
        condition: the factored observations.
        features: :math:`A_* = L^{-1}K_{m*}`, ``(*batch, m, t)``.
        prior_variance: ``(*batch, t)``.

    Returns:
        t means and variances: far from the inducing inputs, the prior's.
    """
    informed = solve_lower(condition.factor, features)
    mean = (informed * condition.whitened.unsqueeze(-1)).sum(-2)
    # Not negative but for rounding, which is what is cut.
    residual = (prior_variance - features.square().sum(-2)).clamp(min=0.0)
    return Moments(mean, residual + informed.square().sum(-2))


def sparse_covariance(condition: SparseCondition, features: Tensor, prior: Tensor) -> Tensor:
    r"""Covariance of the posterior, :math:`K_{**} - A_*^\top A_* + A_*^\top B^{-1}A_*`.

    Args:
        condition: the factored observations.
        features: :math:`A_*`, ``(*batch, m, t)``.
        prior: :math:`K_{**}`, ``(*batch, t, t)``.

    Returns:
        ``(*batch, t, t)``.

    Source:
        Titsias (2009), equation (6); the "dtc" test conditional with its off-diagonals.
    """
    informed = solve_lower(condition.factor, features)
    return prior - features.mT @ features + informed.mT @ informed
