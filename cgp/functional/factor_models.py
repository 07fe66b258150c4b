r"""Factor models of many columns: an analysis in closed form, and evidences whose cost is linear in the columns.

.. math:: y_{tp} = \lambda_p^\top f_t + u_{tp} + \epsilon_{tp}, \qquad \epsilon_{tp} \sim N(0, \sigma_p^2)

Given the factors f the columns are independent, so that a column of T values costs T³ or less whatever the others are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .linalg import cholesky, solve_lower

__all__ = ["FactorAnalysis", "factor_analysis", "factor_log_evidence"]

_FLOOR = 1e-5  # of a noise variance
_WEIGHT, _VARIANCE = 2.0, 0.01  # of the prior of the noise, in values, and its mode
_JITTER = 1e-8


class FactorAnalysis(NamedTuple):
    """Columns as weighted sums of factors, which rows have independently, and noise.

    Attributes:
        loadings: ``(P, R)``, of factors of unit variance.
        noise: variances, ``(P,)``.
    """

    loadings: Tensor
    noise: Tensor

    def scores(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Means ``(N, R)`` and covariances ``(N, R, R)`` of factors given ``values`` ``(N, P)``, NaN where missing."""
        seen, y = _seen(values)
        weighted, rank = self.loadings / self.noise[:, None], self.loadings.shape[-1]
        outer = (weighted.unsqueeze(-1) * self.loadings.unsqueeze(-2)).flatten(1)
        precision = (seen @ outer).unflatten(-1, (rank, rank)) + torch.eye(rank, dtype=y.dtype)
        covariance = torch.cholesky_inverse(cholesky(precision, name="precision of the factors", jitter=0.0))
        return (covariance @ (y @ weighted).unsqueeze(-1)).squeeze(-1), covariance


def factor_analysis(values: Tensor, start: Tensor, num_steps: int = 40) -> FactorAnalysis:
    r"""The most probable loadings and noises of columns with gaps, by EM in closed form.

    .. math:: \lambda_p = \Big(\sum_{t \in O_p}\operatorname E f_tf_t^\top + \sigma_p^2 I\Big)^{-1}
        \sum_{t \in O_p} y_{tp}\operatorname E f_t

    Loadings have a standard normal prior. A step costs O(N P R²).

    Args:
        values: in standardised units, NaN where missing, ``(N, P)``.
        start: loadings to start from, ``(P, R)``.
        num_steps: of EM.

    Returns:
        Loadings and noises.

    Source:
        Rubin & Thayer (1982), EM algorithms for ML factor analysis.

    Example:
        >>> y = torch.tensor([[1.0, 1.1], [-1.0, -0.9], [2.0, torch.nan], [-2.0, -2.1]], dtype=torch.float64)
        >>> factor_analysis(y, torch.ones(2, 1, dtype=torch.float64)).loadings.shape
        torch.Size([2, 1])
    """
    seen, y = _seen(values)
    counts, rank = seen.sum(0), start.shape[-1]
    analysis = FactorAnalysis(start, (1.0 - start.square().sum(-1)).clamp(min=0.05))
    for _ in range(num_steps):
        mean, covariance = analysis.scores(values)
        second = (covariance + mean.unsqueeze(-1) * mean.unsqueeze(-2)).flatten(1)
        moments, cross = (seen.mT @ second).unflatten(-1, (rank, rank)), y.mT @ mean
        ridge = analysis.noise[:, None, None] * torch.eye(rank, dtype=y.dtype)
        loadings = torch.linalg.solve(moments + ridge, cross.unsqueeze(-1)).squeeze(-1)
        explained = 2.0 * (loadings * cross).sum(-1) - torch.einsum("pr,prs,ps->p", loadings, moments, loadings)
        noise = (y.square().sum(0) - explained + _WEIGHT * _VARIANCE) / (counts + _WEIGHT)
        analysis = FactorAnalysis(loadings, noise.clamp(min=_FLOOR))
    return analysis


def factor_log_evidence(
    grams: Tensor, factors: tuple[Tensor, Tensor], own: Tensor, noise: Tensor, values: Tensor
) -> Tensor:
    r"""Log marginal likelihood of columns that share factors and have processes of their own.

    .. math:: D_p = \sum_c \omega_{cp}^2 K_c + \sigma_p^2 I, \quad J = \sum_p \lambda_p\lambda_p^\top \otimes D_p^{-1},
        \quad \log p(y) = \sum_p \log N(y_p; 0, D_p) + \tfrac12 h^\top(K_f^{-1} + J)^{-1}h - \tfrac12\log|I + K_fJ|

    Args:
        grams: K of C components at T inputs, ``(C, T, T)``.
        factors: loadings ``(P, R)``, and the component of each factor, ``(R,)``.
        own: variances of the columns' own processes, ``(C, P)``.
        noise: variances, ``(P,)``.
        values: less their mean, NaN where missing, ``(T, P)``.

    Returns:
        ``()``, in nats, with gradients, in time O(P T³ + P T² R² + T³ R³).

    Raises:
        NotPositiveDefiniteError: if a matrix cannot be factored.

    Source:
        Woodbury's identity; Rasmussen & Williams (2006), equations (A.9) and (A.10).

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> factor_log_evidence(one[None], (one, torch.zeros(1).long()), 0 * one, one[0], 0 * one).item()
        -1.2655121...
    """
    (loadings, kinds), (seen, y) = factors, _seen(values)
    both, y, size = seen.mT.unsqueeze(-1) * seen.mT.unsqueeze(-2), y.mT, len(values)
    columns = torch.einsum("cp,cts->pts", own, grams) + torch.diag_embed(noise[:, None].expand(-1, size))
    root = cholesky(columns * both + torch.diag_embed(1.0 - seen.mT), name="covariance of a column", jitter=0.0)
    inverse = torch.cholesky_inverse(root) * both
    weights = (inverse @ y.unsqueeze(-1)).squeeze(-1)
    constant = 0.5 * math.log(2.0 * math.pi) * seen.sum()
    alone = -0.5 * (y * weights).sum() - root.diagonal(dim1=-2, dim2=-1).log().sum() - constant
    if not len(kinds):
        return alone
    outer = (loadings.unsqueeze(-1) * loadings.unsqueeze(-2)).flatten(1)
    information = (outer.mT @ inverse.flatten(1)).reshape(len(kinds), len(kinds), size, size)
    roots = cholesky(grams + _JITTER * torch.eye(size, dtype=y.dtype), name="covariance of a factor", jitter=0.0)[kinds]
    inner = (roots.mT.unsqueeze(1) @ information @ roots).transpose(1, 2).reshape(len(kinds) * size, -1)
    inner = cholesky(inner + torch.eye(len(inner), dtype=y.dtype), name="information of the factors", jitter=0.0)
    pull = (roots.mT @ (loadings.mT @ weights).unsqueeze(-1)).reshape(-1, 1)
    return alone + 0.5 * solve_lower(inner, pull).square().sum() - inner.diagonal().log().sum()


def _seen(values: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the values there are, as numbers, and these with zeros for the others."""
    seen = ~values.isnan()
    return seen.to(values.dtype), torch.where(seen, values, 0.0)
