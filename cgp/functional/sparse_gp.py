r"""Sparse Gaussian process attention: kernel attention as the mean of a sparse variational Gaussian process.

Chen & Li, Calibrating Transformers via Sparse Gaussian Processes (2023). Queries are inputs, keys inducing inputs,
values variational parameters; one kernel and one map serve queries and keys.

m global keys :math:`\beta` carry the covariance, the tokens' keys :math:`\gamma` the mean. With the
whitened features :math:`T_x = L_\beta^{-1}K_{\beta x}`, :math:`L_\beta = \operatorname{chol}K_{\beta\beta}`, and
the whitened global variables :math:`N(w_c, R_cR_c^\top)`, :math:`w = L_\beta^\top v_\beta`:

.. math:: \mu = K_{q\gamma}V + T_q^\top(w - T_\gamma V), \qquad
    \Sigma_c = K_{qq} - T_q^\top T_q + T_q^\top R_cR_c^\top T_q

The standard form, where the tokens' keys carry both, is in :mod:`~cgp.functional.sparse_gp_standard`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, inverse_factor, log_determinant
from .column_gaussians import ColumnGaussian, ColumnMarginals
from .padding import add_noise, mask_gram, mask_tokens

__all__ = [
    "GlobalKeys",
    "attended_divergence",
    "decoupled_joint",
    "decoupled_marginals",
    "decoupled_mean",
    "global_keys",
    "orthogonal_divergence",
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
    return attended_divergence(values, K_kk @ values, features_k @ values)


def attended_divergence(values: Tensor, attended: Tensor, gathered: Tensor) -> Tensor:
    r"""The same from what the mean has computed already, :math:`\tfrac12[\operatorname{tr}V^\top(KV) - \|TV\|^2]`.

    Args:
        values: V, zero at padded tokens, ``(*batch, Nk, s)``.
        attended: :math:`K_{\gamma\gamma}V`, ``(*batch, Nk, s)``.
        gathered: :math:`T_\gamma V`, ``(*batch, m, s)``.

    Returns:
        ``(*batch,)``, in nats, summed over the columns.

    Example:
        >>> attended_divergence(torch.ones(1, 1), torch.ones(1, 1), torch.full((1, 1), 0.6))
        tensor(0.3200)
    """
    return 0.5 * ((values * attended).sum((-2, -1)) - gathered.square().sum((-2, -1)))


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
