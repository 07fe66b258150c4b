r"""Sparse correlated Gaussian process by the deterministic training conditional.

CGPT section 4.2, (30)-(35), appendices C-E. All Gram matrices enter whitened by the inducing inputs,
:math:`A_p = L^{-1}K_{mp}` with
:math:`L = \operatorname{chol}(K_{mm})`, so that
the only matrices that are factorised are :math:`D_p = I + A_pA_p^\top/\sigma^2`, whose eigenvalues are at least one.
Then, with
:math:`J` the hop from the latent process,

* direct (one hop): mean :math:`A_q^\top A_kV`, covariance :math:`D + A_q^\top D_k^{-1}A_q`;
* latent (two hops): mean :math:`\sigma^{-2}A_q^\top J D_k^{-1}A_kV`, covariance :math:`D + A_q^\top MA_q`,

D being the diagonal of the conditional: what the inducing inputs do not explain ("dtc") or the noise ("sor", the
paper's).
Nothing n × n is ever formed: time O(n m (m + s)), memory O(n m).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .gaussians import LowRankGaussian, MarginalGaussian
from .padding import as_matrix, as_vector, mask_gram, mask_tokens
from .products import product, quadratic_forms
from .sparse_terms import LatentFeatures, SparseTerms, capacitance, factored_capacitance, features, features_of, whiten

__all__ = [
    "CONDITIONALS",
    "LatentFeatures",
    "SparseTerms",
    "capacitance",
    "direct_terms",
    "features",
    "features_of",
    "latent_mean",
    "latent_terms",
    "marginal_posterior",
    "posterior",
    "whiten",
]

CONDITIONALS = ("dtc", "sor")


def direct_terms(
    features_q: Tensor,
    features_k: Tensor,
    values: Tensor,
    prior_variance: Tensor,
    *,
    noise: Tensor | float,
    conditional: str = "dtc",
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> SparseTerms:
    r"""Factors of the one-hop coupling: queries and keys share one inducing set.

    Mean :math:`A_q^\top(A_kV)`, attention of rank m.

    Args:
        features_q: :math:`L^{-1}K_{mq}`, ``(*batch, m, Nq)``.
        features_k: :math:`L^{-1}K_{mk}`, ``(*batch, m, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        noise: the observation variance.
        conditional: "dtc" or "sor".
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        The factors; one m × m Cholesky.

    Raises:
        ValueError: if the conditional is unknown.

    Example:
        >>> A = torch.ones(1, 1)
        >>> posterior(direct_terms(A, A, A, torch.ones(1), noise=1.0)).variance
        tensor([0.5000])
    """
    _check_conditional(conditional)
    features_q, features_k = mask_gram(features_q, None, query_padding), mask_gram(features_k, None, key_padding)
    values = mask_tokens(values, key_padding)
    key_factored = factored_capacitance(features_k, noise)
    gathered = product(features_k, values)  # (*batch, m, s)
    return SparseTerms(
        mean=features_q.mT @ gathered,
        features_q=features_q,
        features_k=features_k,
        inner_covariance=key_factored.inverse.mT @ key_factored.inverse,
        residual=_residual(features_q, prior_variance, conditional, query_padding),
        values=values,
        gathered=gathered,
        key_factored=key_factored,
        noise=noise,
        conditional=conditional,
        query_padding=query_padding,
        key_padding=key_padding,
    )


def latent_terms(
    features_q: Tensor,
    features_o: Tensor,
    features_k: Tensor,
    values: Tensor,
    prior_variance: Tensor,
    *,
    noise: Tensor | float,
    conditional: str = "dtc",
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
    latent_padding: Tensor | None = None,
    key_set_features_o: Tensor | None = None,
    latent_variance: Tensor | None = None,
) -> SparseTerms:
    r"""Factors of the two-hop coupling (CGPT (33)-(35), appendix D with the outer products of means cancelled).

    .. math::
        \bar V = \sigma^{-2} A_q^\top J D_k^{-1} A_k V, \qquad J = \sigma^{-2} D_o^{-1} A_o A_o'^\top, \qquad
        M = D_o^{-1} + \sigma^{-4} D_o^{-1} A_o \Delta A_o^\top D_o^{-1} + J D_k^{-1} J^\top

    With one inducing set for both hops (the default) :math:`J = I - D_o^{-1}` and :math:`\Delta = \sigma^2 I`, so the
    variance returns to the
    prior exactly for far queries and for far keys. With two sets and "dtc",
    :math:`\Delta = \sigma^2I + \operatorname{diag}(K_o - Q_o)` and the
    variance at far keys is understated.

    Args:
        features_q: :math:`L^{-1}K_{mq}`, ``(*batch, m, Nq)``.
        features_o: :math:`L^{-1}K_{mo}`, ``(*batch, m, No)``.
        features_k: of the keys in their inducing set, ``(*batch, l, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.
        noise: the observation variance of both hops.
        conditional: "dtc" or "sor".
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        latent_padding: ``(*batch, No)`` or None.
        key_set_features_o: features of the latent inputs in the keys' inducing set, ``(*batch, l, No)``; None: one
            set serves both hops.
        latent_variance: the diagonal of K_o, ``(*batch, No)``; needed with two sets.

    Returns:
        The factors; three m × m Cholesky decompositions.

    Raises:
        ValueError: if the conditional is unknown, or two sets come without ``latent_variance``.
    """
    _check_conditional(conditional)
    features_q, features_o = mask_gram(features_q, None, query_padding), mask_gram(features_o, None, latent_padding)
    features_k, values = mask_gram(features_k, None, key_padding), mask_tokens(values, key_padding)
    if key_set_features_o is not None and latent_variance is None:
        raise ValueError("latent_variance: expected the diagonal of K_o with key_set_features_o, got None")
    key_factored = factored_capacitance(features_k, noise)
    other = features_o if key_set_features_o is None else mask_gram(key_set_features_o, None, latent_padding)
    latent = LatentFeatures(features_o, other, latent_padding)
    hop, latent_covariance = _hop(
        latent, noise, conditional, latent_variance if key_set_features_o is not None else None
    )
    carried = hop @ key_factored.inverse.mT  # J W_kᵀ, (*batch, m, l)
    gathered = product(features_k, values)
    inner_mean = carried @ (key_factored.inverse @ gathered) / as_matrix(noise)  # (*batch, m, s)
    return SparseTerms(
        mean=features_q.mT @ inner_mean,
        features_q=features_q,
        features_k=features_k,
        inner_covariance=latent_covariance + carried @ carried.mT,
        residual=_residual(features_q, prior_variance, conditional, query_padding),
        values=values,
        gathered=gathered,
        key_factored=key_factored,
        noise=noise,
        conditional=conditional,
        query_padding=query_padding,
        key_padding=key_padding,
        latent=latent,
    )


def posterior(terms: SparseTerms) -> LowRankGaussian:
    r"""Predictive distribution, :math:`D + A_q^\top NN^\top A_q`.

    Args:
        terms: the factors.

    Returns:
        Mean ``(*batch, Nq, s)``, root ``(*batch, Nq, m)`` and diagonal ``(*batch, Nq)``: the unexplained variance
        ("dtc", noise-free)
        or the noise ("sor", noise included as in the paper).
    """
    root = terms.features_q.mT @ terms.inner_root
    noiseless = LowRankGaussian(terms.mean, root, terms.residual, terms.query_padding)
    return noiseless.with_noise(terms.noise) if terms.conditional == "sor" else noiseless


def marginal_posterior(terms: SparseTerms) -> MarginalGaussian:
    r"""Marginals of the predictive distribution, :math:`v_i = D_{ii} + a_i^\top NN^\top a_i`: no root is formed.

    Args:
        terms: the factors.

    Returns:
        Mean ``(*batch, Nq, s)`` and variances ``(*batch, Nq)``.
    """
    variance = quadratic_forms(terms.features_q, terms.inner_covariance).clamp(min=0.0) + terms.residual
    if terms.conditional == "sor":
        variance = variance + as_vector(terms.noise)
        variance = variance if terms.query_padding is None else variance.masked_fill(terms.query_padding, 0.0)
    return MarginalGaussian(terms.mean, variance)


def latent_mean(
    features_q: Tensor,
    features_o: Tensor,
    features_k: Tensor,
    values: Tensor,
    *,
    noise: Tensor | float,
    key_padding: Tensor | None = None,
    latent_padding: Tensor | None = None,
    key_set_features_o: Tensor | None = None,
) -> Tensor:
    r"""Mean alone of the two-hop coupling, :math:`\sigma^{-2}A_q^\top J D_k^{-1}(A_kV)`, contracted right to left.

    Args:
        features_q: :math:`L^{-1}K_{mq}`, ``(*batch, m, Nq)``.
        features_o: :math:`L^{-1}K_{mo}`, ``(*batch, m, No)``.
        features_k: of the keys in their inducing set, ``(*batch, l, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        noise: the observation variance of both hops.
        key_padding: ``(*batch, Nk)`` or None.
        latent_padding: ``(*batch, No)`` or None.
        key_set_features_o: features of the latent inputs in the keys' inducing set, ``(*batch, l, No)``, or None.

    Returns:
        ``(*batch, Nq, s)``.
    """
    scale = 1.0 / as_matrix(noise)
    features_o = mask_gram(features_o, None, latent_padding)
    features_k, values = mask_gram(features_k, None, key_padding), mask_tokens(values, key_padding)
    inverse_k, inverse_o = (factored_capacitance(x, noise).inverse for x in (features_k, features_o))
    seen = inverse_k.mT @ (inverse_k @ product(features_k, values))  # D_k⁻¹A_kV, (*batch, l, s)
    if key_set_features_o is None:
        return scale * (features_q.mT @ (seen - inverse_o.mT @ (inverse_o @ seen)))  # J = I − D_o⁻¹
    hopped = features_o @ (mask_gram(key_set_features_o, None, latent_padding).mT @ seen)
    return scale**2 * (features_q.mT @ (inverse_o.mT @ (inverse_o @ hopped)))


def _check_conditional(conditional: str) -> None:
    if conditional not in CONDITIONALS:
        raise ValueError(f"conditional: expected one of {CONDITIONALS}, got {conditional!r}")


def _residual(features: Tensor, prior_variance: Tensor, conditional: str, padding: Tensor | None) -> Tensor:
    """diag(K − Q), cut at rounding below zero; nothing for "sor", which has no such term."""
    if conditional == "sor":
        return torch.zeros_like(features[..., 0, :])
    residual = (prior_variance - features.square().sum(-2)).clamp(min=0.0)
    return residual if padding is None else residual.masked_fill(padding, 0.0)


def _hop(
    latent: LatentFeatures, noise: Tensor | float, conditional: str, latent_variance: Tensor | None
) -> tuple[Tensor, Tensor]:
    """J, and the covariance of the inducing variables given an exactly known z_o observed with noise."""
    A_o, other = latent.by_query_set, latent.by_key_set
    W_o = factored_capacitance(A_o, noise).inverse
    inverse = W_o.mT @ W_o  # D_o⁻¹
    identity = torch.eye(inverse.shape[-1], dtype=inverse.dtype, device=inverse.device)
    if latent_variance is None:
        hop = identity - inverse
        return hop, identity - hop @ hop  # 2 D⁻¹ − D⁻²
    gain = inverse @ A_o / as_matrix(noise)
    unexplained = (
        latent_variance - other.square().sum(-2) if conditional == "dtc" else torch.zeros_like(other[..., 0, :])
    )
    delta = unexplained.clamp(min=0.0) + as_vector(noise)
    return gain @ other.mT, inverse + (gain * delta[..., None, :]) @ gain.mT
