r"""Sparse Gaussian process attention: kernel attention as the mean of a sparse variational Gaussian process.

Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (2023). Queries are inputs, keys inducing inputs,
values variational parameters; one kernel and one map serve queries and keys.

* Decoupled: m global keys :math:`\beta` carry the covariance, the tokens' keys :math:`\gamma` the mean. With the
  whitened features :math:`T_x = L_\beta^{-1}K_{\beta x}`, :math:`L_\beta = \operatorname{chol}K_{\beta\beta}`, and
  the whitened global variables :math:`N(w_c, R_cR_c^\top)`, :math:`w = L_\beta^\top v_\beta`:

  .. math:: \mu = K_{q\gamma}V + T_q^\top(w - T_\gamma V), \qquad
      \Sigma_c = K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q

* Standard: the tokens' keys carry both, with an amortised covariance S of the inducing variables,
  :math:`\Sigma = K_{qq} + K_{qk}(K^{-1}SK^{-1} - K^{-1})K_{kq}`. S is either given by Gaussian sites of precision
  :math:`\Pi`, :math:`S = (K^{-1} + \Pi)^{-1}`, or by a whitened triangle, :math:`S = LMM^\top L^\top`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, inverse_factor, log_determinant, solve_lower
from .column_gaussians import ColumnGaussian, ColumnMarginals
from .gaussians import DenseGaussian, MarginalGaussian
from .padding import add_noise, count_tokens, mask_gram, mask_tokens

__all__ = [
    "GlobalKeys",
    "StandardTerms",
    "decoupled_joint",
    "decoupled_marginals",
    "decoupled_mean",
    "global_keys",
    "orthogonal_divergence",
    "site_terms",
    "standard_joint",
    "standard_marginals",
    "triangular_terms",
    "whitened_divergence",
]


class GlobalKeys(NamedTuple):
    r"""What the decoupled form needs of its global keys; it depends on weights alone.

    Attributes:
        points: :math:`\beta`, ``(*batch, m, s)``.
        factor: :math:`L_\beta`, ``(*batch, m, m)``.
        whitening: :math:`L_\beta^{-1}`, ``(*batch, m, m)``.
    """

    points: Tensor
    factor: Tensor
    whitening: Tensor


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


def global_keys(points: Tensor, K_bb: Tensor) -> GlobalKeys:
    r"""Factorise the covariance of the global keys.

    Args:
        points: :math:`\beta`, ``(*batch, m, s)``.
        K_bb: their covariance, ``(*batch, m, m)``.

    Returns:
        The keys with their factor and its inverse; one m × m Cholesky.

    Example:
        >>> global_keys(torch.zeros(2, 1), torch.eye(2, dtype=torch.float64) * 4.0).factor
        tensor([[2.0000, 0.0000],
                [0.0000, 2.0000]], dtype=torch.float64)
    """
    factor = cholesky(K_bb, name="K_bb (global keys)")
    return GlobalKeys(points, factor, inverse_factor(factor))


def decoupled_mean(
    K_qk: Tensor,
    features_q: Tensor,
    features_k: Tensor,
    values: Tensor,
    global_mean: Tensor,
    *,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> Tensor:
    r"""Posterior mean, :math:`K_{q\gamma}V + T_q^\top(w - T_\gamma V)`.

    At the global keys themselves it is :math:`L_\beta w = K_{\beta\beta}v_\beta`, whatever the tokens are.

    Args:
        K_qk: :math:`K_{q\gamma}`, ``(*batch, Nq, Nk)``.
        features_q: :math:`T_q`, ``(*batch, m, Nq)``.
        features_k: :math:`T_\gamma`, ``(*batch, m, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        global_mean: :math:`w = L_\beta^\top v_\beta`, ``(*batch, m, s)``.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        ``(*batch, Nq, s)``.

    Example:
        >>> one = torch.ones(1, 1)
        >>> decoupled_mean(one, one, one, 5.0 * one, 2.0 * one)
        tensor([[2.]])
    """
    values = mask_tokens(values, key_padding)
    mean = K_qk @ values + features_q.mT @ (global_mean - features_k @ values)
    return mask_tokens(mean, query_padding)


def decoupled_marginals(
    mean: Tensor, features_q: Tensor, roots: Tensor, prior_variance: Tensor, query_padding: Tensor | None = None
) -> ColumnMarginals:
    r"""Mean and variances, :math:`k_{ii} - \|T_i\|^2 + \|R_c^\top T_i\|^2`.

    Args:
        mean: ``(*batch, Nq, s)``.
        features_q: :math:`T_q`, ``(*batch, m, Nq)``.
        roots: :math:`R_c`, ``(*batch, s, m, m)`` or broadcastable.
        prior_variance: the diagonal of :math:`K_{qq}`, ``(*batch, Nq)``.
        query_padding: ``(*batch, Nq)`` or None.

    Returns:
        A variance a token and column.

    Example:
        >>> decoupled_marginals(torch.zeros(1, 1), torch.ones(1, 1), torch.full((1, 1, 1), 0.5), torch.ones(1)).variance
        tensor([0.2500])
    """
    posterior = _low_rank(mean, features_q, roots, prior_variance, query_padding)
    return ColumnMarginals(mean, posterior.variances)


def decoupled_joint(
    mean: Tensor, features_q: Tensor, roots: Tensor, K_qq: Tensor, query_padding: Tensor | None = None
) -> ColumnGaussian:
    r"""Posterior over all queries, :math:`\Sigma_c = K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q`.

    One n × n Cholesky, of what the global keys do not explain, serves all columns.

    Args:
        mean: ``(*batch, Nq, s)``.
        features_q: :math:`T_q`, ``(*batch, m, Nq)``.
        roots: :math:`R_c`, ``(*batch, s, m, m)`` or broadcastable.
        K_qq: ``(*batch, Nq, Nq)``.
        query_padding: ``(*batch, Nq)`` or None.

    Returns:
        A covariance a column.
    """
    prior_variance = K_qq.diagonal(dim1=-2, dim2=-1)
    posterior = _low_rank(mean, features_q, roots, prior_variance, query_padding)
    residual = mask_gram(K_qq - features_q.mT @ features_q, query_padding, query_padding)
    return posterior._replace(residual_root=_residual_root(residual, prior_variance, query_padding))


def orthogonal_divergence(
    K_kk: Tensor, features_k: Tensor, values: Tensor, key_padding: Tensor | None = None
) -> Tensor:
    r"""The tokens' own part of the divergence, :math:`\tfrac12\operatorname{tr}V^\top(K_{\gamma\gamma} - T^\top T)V`.

    Args:
        K_kk: ``(*batch, Nk, Nk)``.
        features_k: :math:`T_\gamma`, ``(*batch, m, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        ``(*batch,)``, in nats, summed over the columns.

    Example:
        >>> orthogonal_divergence(torch.ones(1, 1), torch.full((1, 1), 0.6), torch.ones(1, 1))
        tensor(0.3200)
    """
    values = mask_tokens(values, key_padding)
    return 0.5 * ((values * (K_kk @ values)).sum((-2, -1)) - (features_k @ values).square().sum((-2, -1)))


def whitened_divergence(mean: Tensor, root: Tensor) -> Tensor:
    r"""Divergence of whitened variables, :math:`\mathrm{KL}[N(w, RR^\top) \,\|\, N(0, I)]`.

    .. math:: \tfrac12\big[\operatorname{tr}RR^\top + w^\top w - m\big] - \log|R|

    Args:
        mean: w, ``(*batch, m)``.
        root: R, lower triangular with a positive diagonal, ``(*batch, m, m)``.

    Returns:
        ``(*batch,)``, in nats.

    Example:
        >>> whitened_divergence(torch.tensor([2.0]), torch.ones(1, 1))
        tensor(2.)
    """
    squares = root.square().sum((-2, -1)) + mean.square().sum(-1) - mean.shape[-1]
    return 0.5 * (squares - log_determinant(root))


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


def _low_rank(
    mean: Tensor, features_q: Tensor, roots: Tensor, prior_variance: Tensor, padding: Tensor | None
) -> ColumnGaussian:
    """The posterior with the diagonal of its residual, cut at rounding below zero."""
    features_q = mask_gram(features_q, None, padding)
    residual = (prior_variance - features_q.square().sum(-2)).clamp(min=0.0)
    if padding is not None:
        residual = residual.masked_fill(padding, 0.0)
    return ColumnGaussian(mean, features_q.mT, roots, residual[..., None])


def _residual_root(residual: Tensor, prior_variance: Tensor, padding: Tensor | None) -> Tensor:
    """Cholesky factor of what the global keys do not explain; it may vanish, so the prior sets the jitter's scale."""
    rounding = 1e-8 if residual.dtype == torch.float64 else 1e-5
    jitter = rounding * prior_variance.detach().mean(-1)
    return mask_gram(cholesky(add_noise(residual, jitter, padding), name="K_qq - T'T", jitter=0.0), padding, padding)


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
