r"""Sparse Gaussian process attention whose own keys carry mean and covariance (standard SGPA).

Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (2023). With an amortised covariance S of the inducing
variables,

.. math:: \mu = K_{qk}V, \qquad \Sigma = K_{qq} + K_{qk}(K^{-1}SK^{-1} - K^{-1})K_{kq}

S is either given by Gaussian sites of precision :math:`\Pi`, :math:`S = (K^{-1} + \Pi)^{-1}`, or by a whitened
triangle, :math:`S = LMM^\top L^\top`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, inverse_factor, log_determinant, solve_lower
from .gaussians import DenseGaussian, MarginalGaussian
from .padding import add_noise, count_tokens, mask_gram, mask_tokens
from .sparse_gp import whitened_divergence

__all__ = ["StandardTerms", "site_terms", "standard_joint", "standard_marginals", "triangular_terms"]


class StandardTerms(NamedTuple):
    r"""Factors of the standard form, shared by posterior and divergence.

    Attributes:
        mean: :math:`K_{qk}V`, ``(*batch, Nq, s)``.
        explained: what the keys take from the prior, as a root: ``(*batch, Nk, Nq)``.
        restored: what the amortised covariance gives back, as a root, ``(*batch, Nk, Nq)``; None for sites, where
            both are one.
        divergence: KL from the prior, summed over the columns, ``(*batch,)``, in nats.
        query_padding: ``(*batch, Nq)`` or None.
    """

    mean: Tensor
    explained: Tensor
    restored: Tensor | None
    divergence: Tensor
    query_padding: Tensor | None


def site_terms(
    K_qk: Tensor,
    K_kk: Tensor,
    values: Tensor,
    precision: Tensor,
    *,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> StandardTerms:
    r"""Standard form whose inducing covariance comes from Gaussian sites, :math:`S = (K^{-1} + \Pi)^{-1}`.

    With :math:`B = I + \Pi^{1/2}K\Pi^{1/2}`, the only matrix that is factorised (its eigenvalues are at least one):

    .. math:: \Sigma = K_{qq} - K_{qk}\Pi^{1/2}B^{-1}\Pi^{1/2}K_{kq}, \qquad
        \mathrm{KL} = \tfrac12\big[s(\operatorname{tr}B^{-1} - n + \log|B|) + \operatorname{tr}V^\top KV\big]

    The family holds the exact posterior of any Gaussian likelihood; unlike a triangle it does not know the order of
    the tokens.

    Args:
        K_qk: ``(*batch, Nq, Nk)``.
        K_kk: ``(*batch, Nk, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        precision: the diagonal of :math:`\Pi`, positive, ``(*batch, Nk)``.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        The factors; one n × n Cholesky.
    """
    values = mask_tokens(values, key_padding)
    root = precision.sqrt()
    if key_padding is not None:
        root = root.masked_fill(key_padding, 0.0)
    factor = cholesky(add_noise(root[..., :, None] * K_kk * root[..., None, :], 1.0), name="B (sites)", jitter=0.0)
    inverse = inverse_factor(factor)
    sites = inverse.square().sum((-2, -1)) - K_kk.shape[-1] + log_determinant(factor)
    quadratic = (values * (K_kk @ values)).sum((-2, -1))
    return StandardTerms(
        mean=mask_tokens(K_qk @ values, query_padding),
        explained=mask_gram(inverse @ (root[..., None] * K_qk.mT), None, query_padding),
        restored=None,
        divergence=0.5 * (values.shape[-1] * sites + quadratic),
        query_padding=query_padding,
    )


def triangular_terms(
    K_qk: Tensor,
    K_kk: Tensor,
    values: Tensor,
    triangle: Tensor,
    *,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> StandardTerms:
    r"""Standard form whose inducing covariance is a whitened triangle, :math:`S = LMM^\top L^\top`.

    With :math:`L = \operatorname{chol}K` and :math:`T = L^{-1}K_{kq}`:

    .. math:: \Sigma = K_{qq} - T^\top T + T^\top MM^\top T, \qquad
        \mathrm{KL} = \tfrac12\big[s(\operatorname{tr}MM^\top - n - 2\log|M|) + \operatorname{tr}V^\top KV\big]

    Args:
        K_qk: ``(*batch, Nq, Nk)``.
        K_kk: ``(*batch, Nk, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        triangle: M, lower triangular with a positive diagonal, ``(*batch, Nk, Nk)``.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        The factors; one n × n Cholesky.
    """
    values = mask_tokens(values, key_padding)
    factor = cholesky(_scaled_padding(K_kk, key_padding), name="K (keys)")
    triangle = _unit_padding(triangle, key_padding)
    features = solve_lower(factor, mask_gram(K_qk, query_padding, key_padding).mT)
    width, zero_mean = values.shape[-1], torch.zeros_like(triangle[..., 0])
    quadratic = (values * (K_kk @ values)).sum((-2, -1))
    return StandardTerms(
        mean=mask_tokens(K_qk @ values, query_padding),
        explained=features,
        restored=triangle.mT @ features,
        divergence=width * whitened_divergence(zero_mean, triangle) + 0.5 * quadratic,
        query_padding=query_padding,
    )


def standard_marginals(terms: StandardTerms, prior_variance: Tensor) -> MarginalGaussian:
    """Mean and variance of each query in the standard form.

    Args:
        terms: the factors.
        prior_variance: the diagonal of K_qq, ``(*batch, Nq)``.

    Returns:
        Variances shared by the columns; rounding below zero is cut.
    """
    variance = prior_variance - terms.explained.square().sum(-2)
    if terms.restored is not None:
        variance = variance.clamp(min=0.0) + terms.restored.square().sum(-2)
    variance = variance.clamp(min=0.0)
    if terms.query_padding is not None:
        variance = variance.masked_fill(terms.query_padding, 0.0)
    return MarginalGaussian(terms.mean, variance)


def standard_joint(terms: StandardTerms, K_qq: Tensor) -> DenseGaussian:
    """Posterior with its covariance over the queries in the standard form.

    Args:
        terms: the factors.
        K_qq: ``(*batch, Nq, Nq)``.

    Returns:
        One covariance for all columns.
    """
    covariance = K_qq - terms.explained.mT @ terms.explained
    if terms.restored is not None:
        covariance = covariance + terms.restored.mT @ terms.restored
    covariance = mask_gram(covariance, terms.query_padding, terms.query_padding)
    return DenseGaussian(terms.mean, covariance, terms.query_padding)


def _unit_padding(matrix: Tensor, padding: Tensor | None) -> Tensor:
    """Rows and columns of the identity at padded tokens."""
    return matrix if padding is None else add_noise(mask_gram(matrix, padding, padding), 0.0, padding)


def _scaled_padding(gram: Tensor, padding: Tensor | None) -> Tensor:
    """Padded tokens on their own, at the scale of the real ones, by which the jitter is measured."""
    if padding is None:
        return gram
    diagonal = gram.detach().diagonal(dim1=-2, dim2=-1).masked_fill(padding, 0.0)
    scale = diagonal.sum(-1, keepdim=True) / count_tokens(diagonal, padding).clamp(min=1.0)[..., None]
    stand_in = torch.where(padding, torch.where(scale > 0, scale, 1.0), 0.0)
    return mask_gram(gram, padding, padding) + torch.diag_embed(stand_in)
