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

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, inverse_factor
from .gaussians import LowRankGaussian
from .padding import as_matrix, as_vector, mask_gram, mask_tokens

__all__ = [
    "CONDITIONALS",
    "LatentFeatures",
    "SparseTerms",
    "capacitance",
    "direct_terms",
    "latent_terms",
    "posterior",
    "whiten",
]

CONDITIONALS = ("dtc", "sor")


class LatentFeatures(NamedTuple):
    r"""Features of the latent process in the two inducing sets (the same tensor where one set serves both hops).

    Attributes:
        by_query_set: :math:`L_m^{-1}K_{mo}`, ``(*batch, m, No)``.
        by_key_set: :math:`L_\ell^{-1}K_{\ell o}`, ``(*batch, l, No)``.
        padding: ``(*batch, No)`` or None.
    """

    by_query_set: Tensor
    by_key_set: Tensor
    padding: Tensor | None


class SparseTerms(NamedTuple):
    r"""Factors shared by the posterior and the objective.

    Attributes:
        mean: ``(*batch, Nq, s)``.
        features_q: :math:`A_q`, ``(*batch, m, Nq)``, zero at padded tokens.
        features_k: :math:`A_k` in the keys' inducing set, ``(*batch, l, Nk)``, zero at padded tokens.
        inner_root: N with :math:`NN^\top` the covariance of the whitened inducing variables, ``(*batch, m, m)``.
        residual: what the inducing inputs do not explain of each query ("dtc"), zero for "sor", ``(*batch, Nq)``.
        targets: Z, ``(*batch, Nk, s)``: :math:`(Q_k + \sigma^2I)V` (direct), V itself (latent, as CGPT's).
        key_quadratic: :math:`\operatorname{tr} Z^\top(Q_k + \sigma^2I)^{-1}Z`, ``(*batch,)``.
        key_factor: :math:`\operatorname{chol} D_k`, ``(*batch, l, l)``.
        noise: :math:`\sigma^2`.
        conditional: "dtc" or "sor".
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        latent: features of the latent process, None if direct.
    """

    mean: Tensor
    features_q: Tensor
    features_k: Tensor
    inner_root: Tensor
    residual: Tensor
    targets: Tensor
    key_quadratic: Tensor
    key_factor: Tensor
    noise: Tensor | float
    conditional: str
    query_padding: Tensor | None
    key_padding: Tensor | None
    latent: LatentFeatures | None = None


def whiten(K_mm: Tensor) -> Tensor:
    r"""Inverse factor of the inducing covariance, :math:`L^{-1}`, which turns Gram matrices into features.

    Depends on the inducing inputs alone: where they are weights, it can be computed once.

    Args:
        K_mm: ``(*batch, m, m)``.

    Returns:
        Lower triangular, ``(*batch, m, m)``.

    Example:
        >>> whiten(torch.eye(2, dtype=torch.float64) * 4.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """
    return inverse_factor(cholesky(K_mm, name="K_mm (inducing inputs)"))


def capacitance(features: Tensor, noise: Tensor | float) -> Tensor:
    r"""Cholesky factor of :math:`D = I + AA^\top/\sigma^2`, whose eigenvalues are at least one.

    Args:
        features: A, ``(*batch, m, n)``.
        noise: :math:`\sigma^2`.

    Returns:
        Lower triangular, ``(*batch, m, m)``.
    """
    identity = torch.eye(features.shape[-2], dtype=features.dtype, device=features.device)
    return cholesky(identity + features @ features.mT / as_matrix(noise), name="I + AA'/noise", jitter=0.0)


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
    factor = capacitance(features_k, noise)
    gathered = features_k @ values  # (*batch, m, s)
    targets = features_k.mT @ gathered + as_matrix(noise) * values
    return SparseTerms(
        mean=features_q.mT @ gathered,
        features_q=features_q,
        features_k=features_k,
        inner_root=inverse_factor(factor).mT,
        residual=_residual(features_q, prior_variance, conditional, query_padding),
        targets=targets,
        key_quadratic=(values * targets).sum((-2, -1)),
        key_factor=factor,
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
    key_factor = capacitance(features_k, noise)
    inverse_k = inverse_factor(key_factor)
    other = features_o if key_set_features_o is None else mask_gram(key_set_features_o, None, latent_padding)
    latent = LatentFeatures(features_o, other, latent_padding)
    hop, latent_covariance = _hop(
        latent, noise, conditional, latent_variance if key_set_features_o is not None else None
    )
    carried = hop @ inverse_k.mT  # J W_kᵀ, (*batch, m, l)
    gathered = features_k @ values
    whitened = inverse_k @ gathered  # (*batch, l, s)
    scale = 1.0 / as_matrix(noise)
    covariance = latent_covariance + carried @ carried.mT
    squared = (
        values.square().sum((-2, -1), keepdim=True) - scale * whitened.square().sum((-2, -1), keepdim=True)
    ) * scale
    return SparseTerms(
        mean=scale * (features_q.mT @ (carried @ whitened)),
        features_q=features_q,
        features_k=features_k,
        inner_root=cholesky(covariance, name="covariance of the inducing variables", jitter=0.0),
        residual=_residual(features_q, prior_variance, conditional, query_padding),
        targets=values,
        key_quadratic=squared[..., 0, 0],
        key_factor=key_factor,
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
    W_o = inverse_factor(capacitance(A_o, noise))
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
