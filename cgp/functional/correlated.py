r"""Exact correlated Gaussian process: posterior and objective (CGPT section 4.1, equations (19)-(29), appendix B).

Gram matrices in, Gaussians out. ``K_q``, ``K_k``, ``K_o`` are the covariances of the query, key and latent process
with themselves,
``K_qk`` and so on across processes; rows and columns of padded tokens are zero (:mod:`cgp.functional.padding`).

Both couplings are Gaussian-process regression under a joint prior of queries and keys with cross-covariance C:

* direct (one hop): :math:`C = K_{qk}`, the exact conditional;
* latent (two hops): :math:`C = K_{qo}(K_o + \sigma^2 I)^{-1}K_{ok}`, the paper's.

With :math:`Z = (K_k + \sigma^2 I)V` the predictive mean is :math:`CV`, and the covariance
:math:`K_q - C(K_k + \sigma^2 I)^{-1}C^\top`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky
from .factored import whitened
from .gaussians import DenseGaussian, MarginalGaussian
from .padding import add_noise, as_matrix, as_vector, mask_gram, mask_tokens
from .products import product

__all__ = [
    "ExactTerms",
    "LatentFactors",
    "direct_terms",
    "joint_posterior",
    "latent_mean",
    "latent_terms",
    "marginal_posterior",
    "prior_covariance",
]


class LatentFactors(NamedTuple):
    r"""What the two-hop coupling knows of the latent process.

    Attributes:
        whitened_q: :math:`L_o^{-1}K_{oq}`, ``(*batch, No, Nq)``.
        whitened_k: :math:`L_o^{-1}K_{ok}`, ``(*batch, No, Nk)``.
        factor: :math:`L_o = \operatorname{chol}(K_o + \sigma^2 I)`, ``(*batch, No, No)``.
        K_o: ``(*batch, No, No)``.
        padding: of the latent tokens, ``(*batch, No)`` or None.
        covariance: "coherent", or "paper" (appendix B), which leaves out :math:`\sigma^2A_qA_q^\top`.
    """

    whitened_q: Tensor
    whitened_k: Tensor
    factor: Tensor
    K_o: Tensor
    padding: Tensor | None
    covariance: str

    @property
    def gain_q(self) -> Tensor:
        r""":math:`A_q^\top = L_o^{-\top}L_o^{-1}K_{oq}`, ``(*batch, No, Nq)``; solved for when it is asked for."""
        return torch.linalg.solve_triangular(self.factor.mT, self.whitened_q, upper=True)

    @property
    def gain_k(self) -> Tensor:
        """Likewise for the keys, ``(*batch, No, Nk)``."""
        return torch.linalg.solve_triangular(self.factor.mT, self.whitened_k, upper=True)


class ExactTerms(NamedTuple):
    r"""Factors shared by the posterior and the objective.

    Attributes:
        mean: :math:`CV`, ``(*batch, Nq, s)``.
        whitened: :math:`L_k^{-1}C^\top`, ``(*batch, Nk, Nq)``.
        values: V with padded tokens zero, ``(*batch, Nk, s)``.
        K_k: ``(*batch, Nk, Nk)``.
        key_factor: :math:`L_k = \operatorname{chol}(K_k + \sigma^2 I)`, ``(*batch, Nk, Nk)``.
        noise: :math:`\sigma^2`.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        latent: the latent process, for the two-hop coupling.
    """

    mean: Tensor
    whitened: Tensor
    values: Tensor
    K_k: Tensor
    key_factor: Tensor
    noise: Tensor | float
    query_padding: Tensor | None = None
    key_padding: Tensor | None = None
    latent: LatentFactors | None = None


def direct_terms(
    K_qk: Tensor,
    K_k: Tensor,
    values: Tensor,
    *,
    noise: Tensor | float,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> ExactTerms:
    r"""Factors of the one-hop coupling, :math:`C = K_{qk}`.

    Args:
        K_qk: ``(*batch, Nq, Nk)``.
        K_k: ``(*batch, Nk, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        noise: the observation variance :math:`\sigma^2`.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.

    Returns:
        The factors; one Cholesky of ``Nk`` rows.

    Example:
        >>> terms = direct_terms(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1), noise=1.0)
        >>> terms.mean, marginal_posterior(terms, torch.ones(1)).variance
        (tensor([[1.]]), tensor([0.5000]))
    """
    K_qk, K_k = mask_gram(K_qk, query_padding, key_padding), mask_gram(K_k, key_padding, key_padding)
    values = mask_tokens(values, key_padding)
    L_k, explained = whitened(add_noise(K_k, noise, key_padding), K_qk.mT, name="K_k + noise", jitter=0.0)
    return ExactTerms(product(K_qk, values), explained, values, K_k, L_k, noise, query_padding, key_padding)


def latent_terms(
    K_qo: Tensor,
    K_o: Tensor,
    K_ko: Tensor,
    K_k: Tensor,
    values: Tensor,
    *,
    noise: Tensor | float,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
    latent_padding: Tensor | None = None,
    covariance: str = "coherent",
) -> ExactTerms:
    r"""Factors of the two-hop coupling, :math:`C = K_{qo}(K_o + \sigma^2 I)^{-1}K_{ok}` (CGPT (21)-(25)).

    Args:
        K_qo: ``(*batch, Nq, No)``.
        K_o: ``(*batch, No, No)``.
        K_ko: ``(*batch, Nk, No)``.
        K_k: ``(*batch, Nk, Nk)``.
        values: V, ``(*batch, Nk, s)``.
        noise: the observation variance of both hops.
        query_padding: ``(*batch, Nq)`` or None.
        key_padding: ``(*batch, Nk)`` or None.
        latent_padding: ``(*batch, No)`` or None.
        covariance: "coherent" (z_o is observed with noise in both hops, as (19) implies) or "paper" (appendix B).

    Returns:
        The factors; two Cholesky decompositions.

    Raises:
        ValueError: if ``covariance`` is not one of the two.
    """
    if covariance not in ("coherent", "paper"):
        raise ValueError(f"covariance: expected 'coherent' or 'paper', got {covariance!r}")
    K_qo, K_ko = mask_gram(K_qo, query_padding, latent_padding), mask_gram(K_ko, key_padding, latent_padding)
    K_o, K_k = mask_gram(K_o, latent_padding, latent_padding), mask_gram(K_k, key_padding, key_padding)
    values = mask_tokens(values, key_padding)
    noisy_o, noisy_k = add_noise(K_o, noise, latent_padding), add_noise(K_k, noise, key_padding)
    both = torch.cat([K_qo.mT, K_ko.mT], -1)
    L_o, whitened_both = whitened(noisy_o, both, name="K_o + noise", jitter=0.0)
    whitened_q, whitened_k = whitened_both.split([K_qo.shape[-2], K_ko.shape[-2]], -1)
    C = whitened_q.mT @ whitened_k
    L_k, explained = whitened(noisy_k, C.mT, name="K_k + noise", jitter=0.0)
    latent = LatentFactors(whitened_q, whitened_k, L_o, K_o, latent_padding, covariance)
    return ExactTerms(product(C, values), explained, values, K_k, L_k, noise, query_padding, key_padding, latent)


def latent_mean(
    K_qo: Tensor,
    K_o: Tensor,
    K_ko: Tensor,
    values: Tensor,
    *,
    noise: Tensor | float,
    key_padding: Tensor | None = None,
    latent_padding: Tensor | None = None,
) -> Tensor:
    r"""Mean alone of the two-hop coupling, contracted right to left (CGPT (25)).

    .. math:: V^+ = K_{qo}\,(K_o + \sigma^2 I)^{-1}\,(K_{ok} V)

    Args:
        K_qo: ``(*batch, Nq, No)``.
        K_o: ``(*batch, No, No)``.
        K_ko: ``(*batch, Nk, No)``.
        values: ``(*batch, Nk, s)``.
        noise: the observation variance.
        key_padding: ``(*batch, Nk)`` or None.
        latent_padding: ``(*batch, No)`` or None.

    Returns:
        ``(*batch, Nq, s)``.
    """
    K_o = mask_gram(K_o, latent_padding, latent_padding)
    L_o = cholesky(add_noise(K_o, noise, latent_padding), name="K_o + noise", jitter=0.0)
    gathered = mask_gram(K_ko, key_padding, latent_padding).mT @ mask_tokens(values, key_padding)
    return mask_gram(K_qo, None, latent_padding) @ torch.cholesky_solve(gathered, L_o)


def marginal_posterior(terms: ExactTerms, prior_variance: Tensor) -> MarginalGaussian:
    r"""Marginals of the predictive distribution, without an n × n covariance of the queries.

    .. math:: v_i = [K_q]_{ii} - \|L_k^{-1}C_i^\top\|^2

    Args:
        terms: the factors.
        prior_variance: the diagonal of K_q, ``(*batch, Nq)``.

    Returns:
        Mean ``(*batch, Nq, s)`` and variances ``(*batch, Nq)``; rounding below zero is cut.
    """
    variance = prior_variance - terms.whitened.square().sum(-2)
    if terms.latent is not None and terms.latent.covariance == "paper":
        variance = variance - as_vector(terms.noise) * terms.latent.gain_q.square().sum(-2)
    variance = variance.clamp(min=0.0)
    if terms.query_padding is not None:
        variance = variance.masked_fill(terms.query_padding, 0.0)
    return MarginalGaussian(terms.mean, variance)


def joint_posterior(terms: ExactTerms, K_q: Tensor) -> DenseGaussian:
    r"""Predictive distribution with its covariance over the queries.

    .. math:: V = K_q - C(K_k + \sigma^2 I)^{-1}C^\top

    and, if the terms are the paper's, :math:`V - \sigma^2 A_qA_q^\top` (appendix B after simplification).

    Args:
        terms: the factors.
        K_q: ``(*batch, Nq, Nq)``.

    Returns:
        Mean ``(*batch, Nq, s)`` and covariance ``(*batch, Nq, Nq)``.
    """
    covariance = prior_covariance(K_q, terms) - terms.whitened.mT @ terms.whitened
    return DenseGaussian(terms.mean, covariance, terms.query_padding)


def prior_covariance(K_q: Tensor, terms: ExactTerms) -> Tensor:
    r"""Prior covariance of the queries under the terms' convention.

    It is K_q, or :math:`K_q - \sigma^2A_qA_q^\top` if the
    paper's.

    Args:
        K_q: ``(*batch, Nq, Nq)``.
        terms: the factors.

    Returns:
        ``(*batch, Nq, Nq)``, zero at padded tokens.
    """
    K_q = mask_gram(K_q, terms.query_padding, terms.query_padding)
    if terms.latent is None or terms.latent.covariance == "coherent":
        return K_q
    return K_q - as_matrix(terms.noise) * terms.latent.gain_q.mT @ terms.latent.gain_q
