"""Regulariser of sparse correlated attention: log-densities in O(n m²) (CGPT (36)-(44), appendix E, corrected)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .cholesky import inverse_factor, log_determinant
from .gaussians import LowRankGaussian
from .padding import as_matrix, count_tokens, mask_tokens
from .sparse_correlated import SparseTerms, capacitance

__all__ = ["log_density"]

_LOG_TWO_PI = math.log(2.0 * math.pi)


def log_density(
    terms: SparseTerms, objective: str = "marginal", generator: torch.Generator | None = None, draws: int = 1
) -> Tensor:
    r"""Log-density of the attention output and the keys' targets under the model, in O(n m²).

    CGPT (36)-(44), with the errors of appendix E mended.

    Queries are scored by :math:`\nu` = the predictive mean with diagonal D + σ² (σ² alone for "sor"), keys by Z with
    σ²:

    * "marginal": :math:`\log N(\nu; 0, Q_q + D + \sigma^2I) + \log N(Z; 0, Q_k + \sigma^2I)`;
    * "joint": :math:`-\tfrac12\log|2\pi(V + \sigma^2I)| + \log N(Z; 0, Q_k + \sigma^2I)`, V the noise-free predictive
      covariance;
    * "elbo": :math:`-\tfrac12\sum_i[\log2\pi\delta_i + (\nu_i^2 + [Q_q]_{ii})/\delta_i]`, δ the diagonal, and
      likewise for the keys;
    * "paper_mc": :math:`\log N(\nu; E[z_q|z_o], \cdot)` and likewise for the keys, averaged over draws of :math:`z_o`.

    Args:
        terms: the factors.
        objective: "marginal", "joint", "elbo" or "paper_mc".
        generator: source of randomness for "paper_mc".
        draws: number of draws for "paper_mc".

    Returns:
        ``(*batch,)``, in nats, summed over tokens and columns.

    Raises:
        ValueError: if the objective is unknown.
    """
    query = _query_side(terms)
    if objective == "marginal":
        return query.log_prob(terms.mean) + _key_term(terms)
    if objective == "joint":
        root = terms.features_q.mT @ terms.inner_root
        predictive = LowRankGaussian(terms.mean, root, query.diagonal, terms.query_padding)
        return predictive.log_prob(terms.mean) + _key_term(terms)
    if objective == "elbo":
        return _expected_log_density(query, terms.mean) + _expected_log_density(_key_side(terms), terms.targets)
    if objective == "paper_mc":
        return _sampled_log_density(terms, generator, draws)
    raise ValueError(f"objective: expected 'marginal', 'joint', 'elbo' or 'paper_mc', got {objective!r}")


def _query_side(terms: SparseTerms) -> LowRankGaussian:
    """Zero-mean prior of the queries observed with noise."""
    prior = LowRankGaussian(torch.zeros_like(terms.mean), terms.features_q.mT, terms.residual, terms.query_padding)
    return prior.with_noise(terms.noise)


def _key_side(terms: SparseTerms) -> LowRankGaussian:
    """Zero-mean prior of the keys' targets observed with noise."""
    nothing = torch.zeros_like(terms.features_k[..., 0, :])
    prior = LowRankGaussian(torch.zeros_like(terms.targets), terms.features_k.mT, nothing, terms.key_padding)
    return prior.with_noise(terms.noise)


def _key_term(terms: SparseTerms) -> Tensor:
    """Log N(Z; 0, Q_k + noise I) from what is already factored."""
    count = count_tokens(terms.features_k[..., 0, :], terms.key_padding)
    log_noise = terms.noise.log() if isinstance(terms.noise, Tensor) else math.log(terms.noise)
    log_det = log_determinant(terms.key_factor) + count * (log_noise + _LOG_TWO_PI)
    return -0.5 * (terms.key_quadratic + terms.targets.shape[-1] * log_det)


def _expected_log_density(side: LowRankGaussian, value: Tensor) -> Tensor:
    """E over u ~ N(0, I) of log N(value; A'u, diag) in closed form."""
    diagonal = side.diagonal if side.padding is None else side.diagonal.masked_fill(side.padding, 1.0)
    columns = value.shape[-1]
    squares = mask_tokens(value, side.padding).square().sum(-1) + columns * side.root.square().sum(-1)
    log_det = diagonal.log().sum(-1) + count_tokens(diagonal, side.padding) * _LOG_TWO_PI
    return -0.5 * ((squares / diagonal).sum(-1) + columns * log_det)


def _sampled_log_density(terms: SparseTerms, generator: torch.Generator | None, draws: int) -> Tensor:
    """Average over draws of the latent process (its inducing variables in the direct form) of both log-densities."""
    sides = (_query_side(terms), terms.mean), (_key_side(terms), terms.targets)
    batch, columns = terms.mean.shape[:-2], terms.mean.shape[-1]
    features = (terms.features_q, terms.features_k) if terms.latent is None else terms.latent[:2]
    draw_shape = (draws, *batch, features[0].shape[-2], columns)
    u = torch.randn(draw_shape, dtype=terms.mean.dtype, device=terms.mean.device, generator=generator)
    if terms.latent is None:
        given = [(side, side.root @ u, torch.zeros_like(side.root)) for side, _ in sides]
    else:
        z_o = _draw_latent(terms, u, generator)
        given = [(s, *_given_latent(s, A_o, z_o, terms.noise)) for (s, _), A_o in zip(sides, features, strict=True)]
    total = torch.zeros(()).to(terms.mean)
    for (side, mean, root), (_, value) in zip(given, sides, strict=True):
        spread = root.expand(draws, *root.shape), side.diagonal.expand(draws, *side.diagonal.shape)
        total = total + LowRankGaussian(mean, *spread, side.padding).log_prob(value).mean(0)
    return total


def _draw_latent(terms: SparseTerms, u: Tensor, generator: torch.Generator | None) -> Tensor:
    """z_o from its DTC prior observed with noise, K_om L⁻ᵀ u + σ ε."""
    assert terms.latent is not None
    explained = terms.latent.by_query_set.mT @ u
    epsilon = torch.randn(explained.shape, dtype=u.dtype, device=u.device, generator=generator)
    scale = as_matrix(terms.noise)
    deviation = scale.sqrt() if isinstance(scale, Tensor) else math.sqrt(scale)
    return mask_tokens(explained + deviation * epsilon, terms.latent.padding)


def _given_latent(side: LowRankGaussian, A_o: Tensor, z_o: Tensor, noise: Tensor | float) -> tuple[Tensor, Tensor]:
    """Mean and root of the side given z_o: A'D_o⁻¹A_o z_o/noise and A'W_o'."""
    W_o = inverse_factor(capacitance(A_o, noise))
    root = side.root @ W_o.mT
    return root @ (W_o @ (A_o @ z_o)) / as_matrix(noise), root
