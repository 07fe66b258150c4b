r"""Softmax attention as the posterior mean of a correlated Gaussian process, and the covariance that comes with it.

With :math:`q = Qs^{-1/4}`, :math:`k = Ks^{-1/4}`, R the unit squared exponential and the processes scaled by their
inputs,

.. math::
    z_k(x_j) = a_j z_o(k_j),\; a_j = e^{\frac12\|k_j\|^2}, \qquad
    z_q(x_i) = b_i z_o(q_i),\; b_i = 1 \big/ \textstyle\sum_j R(q_i, k_j)\,a_j,

keys observed with noise :math:`\sigma^2a_j^2` and targets :math:`Z = (K_k + \sigma^2A^2)V`, the posterior mean is
:math:`\operatorname{softmax}(QK^\top/\sqrt s)V` exactly, and the covariance

.. math:: \tau^2\, b\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]\,b.

The scale b is kept as a logarithm. Adding a vector to every key leaves softmax as it is but moves the bracket, so the
keys are first shifted to the
centre of the queries (the gauge). No paper has this.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import correlated, sparse_correlated
from .causal import explained_variance, sparse_prefix_posterior, up_to
from .covariances import canonical, squared_exponential
from .padding import as_vector, mask_gram, mask_tokens
from .sparse_hop import unit_variances
from .sparse_terms import SparseTerms, features_of
from .token_statistics import masked_median, token_centre

__all__ = [
    "LOG_SCALE_BOUND",
    "LowRankCovariance",
    "ScaledPoints",
    "bounded_scale",
    "exact_covariance",
    "exact_marginals",
    "log_query_scale",
    "masked_median",
    "scaled_points",
    "sparse_causal_marginals",
    "sparse_covariance",
    "sparse_marginals",
    "token_centre",
]

LOG_SCALE_BOUND = 15.0


class ScaledPoints(NamedTuple):
    r"""Queries and keys as points of the canonical process.

    Attributes:
        q: :math:`Qs^{-1/4}`, ``(*batch, Nq, s)``.
        k: :math:`Ks^{-1/4}` shifted by the gauge, ``(*batch, Nk, s)``.
        log_scale: :math:`\log b`, ``(*batch, Nq)``; 0 for a query with no key.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
    """

    q: Tensor
    k: Tensor
    log_scale: Tensor
    query_padding: Tensor | None = None
    key_padding: Tensor | None = None


class LowRankCovariance(NamedTuple):
    r"""A covariance :math:`RR^\top + \operatorname{diag}(D)`.

    Attributes:
        root: R, ``(*batch, n, r)``.
        diagonal: D, ``(*batch, n)``.
    """

    root: Tensor
    diagonal: Tensor


def scaled_points(
    Q: Tensor,
    K: Tensor,
    *,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
    shift: Tensor | None = None,
    is_causal: bool = False,
    log_normaliser: Tensor | None = None,
) -> ScaledPoints:
    r"""Queries and keys as scaled points of the canonical process, in the fixed gauge.

    Args:
        Q: queries, ``(*batch, Nq, s)``.
        K: keys, ``(*batch, Nk, s)``.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        shift: what is added to the scaled keys, ``(..., 1, s)``; None: the mean of the queries less that of the keys,
            over the real
            tokens (which looks ahead: a causal mask needs a given shift).
        is_causal: whether a query sees no later key.
        log_normaliser: log of softmax's normaliser where attention has computed it,
            :math:`\log\sum_j\exp(Q_i^\top K_j/\sqrt s)`, ``(*batch, Nq)``; None: it is computed.

    Returns:
        The points and their log-scales.

    Raises:
        ValueError: if a causal mask comes without a shift.
    """
    if is_causal and shift is None:
        raise ValueError("shift: expected a given gauge under a causal mask (statistics would look ahead), got None")
    quarter = Q.shape[-1] ** -0.25
    q, k = Q * quarter, K * quarter
    if shift is None:
        shift = token_centre(q, query_padding) - token_centre(k, key_padding)
    k = mask_tokens(k + shift, key_padding)
    if log_normaliser is None:
        log_scale = log_query_scale(q, k, key_padding, is_causal=is_causal)
    else:  # a shift of every key by c adds q·c to every score of a query
        log_scale = (q * (0.5 * q - shift)).sum(-1) - log_normaliser
    return ScaledPoints(q, k, log_scale, query_padding, key_padding)


def log_query_scale(q: Tensor, k: Tensor, padding: Tensor | None = None, *, is_causal: bool = False) -> Tensor:
    r"""Log of the queries' scale, :math:`\log b_i = \tfrac12\|q_i\|^2 - \log\sum_j e^{q_i^\top k_j}`.

    Args:
        q: scaled queries, ``(*batch, Nq, s)``.
        k: scaled keys, ``(*batch, Nk, s)``.
        padding: of the keys, ``(*batch, Nk)`` or None.
        is_causal: whether a query sees no later key.

    Returns:
        ``(*batch, Nq)``; 0 for a query with no key.
    """
    scores = q @ k.mT
    half = 0.5 * q.square().sum(-1)
    if padding is None and not is_causal:
        return half - scores.logsumexp(-1)
    if padding is not None:
        scores = scores.masked_fill(padding[..., None, :], -torch.inf)
    if is_causal:
        scores = scores.masked_fill(~up_to(k.shape[-2], k.device), -torch.inf)
    unseen = (scores == -torch.inf).all(-1, keepdim=True)
    total = scores.masked_fill(unseen, 0.0).logsumexp(-1)
    return torch.where(unseen[..., 0], torch.zeros_like(half), half - total)


def exact_marginals(points: ScaledPoints, *, noise: Tensor | float, is_causal: bool = False) -> Tensor:
    """Diagonal of the bracket, exactly.

    Args:
        points: queries and keys.
        noise: the variance of the keys relative to their scale.
        is_causal: whether a query sees no later key.

    Returns:
        Diagonal of ``R_q − R_qk (R_k + σ²I)⁻¹ R_kq``, ``(*batch, Nq)``, in [0, 1].
    """
    R_qk, R_k = _grams(points)
    if is_causal:
        return (1.0 - explained_variance(R_qk, R_k, noise, points.key_padding)).clamp(min=0.0)
    terms = _exact_terms(points, R_qk, R_k, noise)
    return correlated.marginal_posterior(terms, torch.ones_like(points.log_scale)).variance


def exact_covariance(points: ScaledPoints, *, noise: Tensor | float) -> Tensor:
    """The bracket, exactly.

    Args:
        points: queries and keys.
        noise: the variance of the keys relative to their scale.

    Returns:
        ``R_q − R_qk (R_k + σ²I)⁻¹ R_kq``, ``(*batch, Nq, Nq)``.
    """
    terms = _exact_terms(points, *_grams(points), noise)
    return correlated.joint_posterior(terms, squared_exponential(points.q)).covariance


def sparse_covariance(
    points: ScaledPoints, inducing: Tensor, whitening: Tensor, *, noise: Tensor | float
) -> LowRankCovariance:
    """The bracket by one DTC hop, in O(n m²).

    Args:
        points: queries and keys.
        inducing: inducing inputs in the gauge of the queries, ``(*batch, m, s)``.
        whitening: inverse factor of their covariance, ``(*batch, m, m)``.
        noise: the variance of the keys relative to their scale.

    Returns:
        Root ``(*batch, Nq, m)`` and diagonal ``(*batch, Nq)``.
    """
    posterior = sparse_correlated.posterior(_sparse_terms(points, inducing, whitening, noise))
    return LowRankCovariance(posterior.root, posterior.diagonal)


def sparse_marginals(points: ScaledPoints, inducing: Tensor, whitening: Tensor, *, noise: Tensor | float) -> Tensor:
    """Diagonal of the bracket by one DTC hop.

    Args:
        points: queries and keys.
        inducing: inducing inputs in the gauge of the queries, ``(*batch, m, s)``.
        whitening: inverse factor of their covariance, ``(*batch, m, m)``.
        noise: the variance of the keys relative to their scale.

    Returns:
        ``(*batch, Nq)``.
    """
    A_q, A_k = _features(points, inducing, whitening)
    return unit_variances(A_q, A_k, noise, points.query_padding)


def sparse_causal_marginals(
    points: ScaledPoints, inducing: Tensor, whitening: Tensor, *, noise: Tensor | float
) -> Tensor:
    """Diagonal of the bracket by one causal DTC hop.

    Args:
        points: queries and keys of one causal sequence.
        inducing: inducing inputs, ``(*batch, m, s)``.
        whitening: inverse factor of their covariance, ``(*batch, m, m)``.
        noise: the variance of the keys relative to their scale.

    Returns:
        ``(*batch, n)``.
    """
    A_q, A_k = _features(points, inducing, whitening)
    one, nothing = torch.ones_like(points.log_scale), points.k[..., :1]
    return sparse_prefix_posterior(A_q, A_k, nothing, one, noise=noise, padding=points.key_padding).variance


def bounded_scale(log_scale: Tensor, centre: Tensor | float, log_tau: Tensor | float) -> Tensor:
    r"""Scale of each query relative to a centre, :math:`\tau e^{\log b - c}`, its logarithm kept within ±15.

    Args:
        log_scale: :math:`\log b`, ``(*batch, Nq)``.
        centre: what is subtracted, broadcastable to ``(*batch, Nq)``.
        log_tau: log of the amplitude, a number or ``(h,)``.

    Returns:
        ``(*batch, Nq)``.
    """
    return ((log_scale - centre).clamp(-LOG_SCALE_BOUND, LOG_SCALE_BOUND) + as_vector(log_tau)).exp()


def _features(points: ScaledPoints, inducing: Tensor, whitening: Tensor) -> tuple[Tensor, Tensor]:
    """Whitened features of queries and keys, zero at padded tokens."""
    A_q, A_k = features_of(canonical("rbf"), inducing, whitening, points.q, points.k)
    return mask_gram(A_q, None, points.query_padding), mask_gram(A_k, None, points.key_padding)


def _sparse_terms(points: ScaledPoints, inducing: Tensor, whitening: Tensor, noise: Tensor | float) -> SparseTerms:
    A_q, A_k = _features(points, inducing, whitening)
    return sparse_correlated.direct_terms(
        A_q,
        A_k,
        points.k[..., :1],  # the values do not enter the covariance
        torch.ones_like(points.log_scale),
        noise=noise,
        query_padding=points.query_padding,
        key_padding=points.key_padding,
    )


def _exact_terms(points: ScaledPoints, R_qk: Tensor, R_k: Tensor, noise: Tensor | float) -> correlated.ExactTerms:
    return correlated.direct_terms(
        R_qk,
        R_k,
        points.k[..., :1],  # the values do not enter the covariance
        noise=noise,
        query_padding=points.query_padding,
        key_padding=points.key_padding,
    )


def _grams(points: ScaledPoints) -> tuple[Tensor, Tensor]:
    R_qk = mask_gram(squared_exponential(points.q, points.k), None, points.key_padding)
    R_k = mask_gram(squared_exponential(points.k), points.key_padding, points.key_padding)
    return R_qk, R_k
