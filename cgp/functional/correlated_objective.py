"""Regulariser of exact correlated attention: log-densities of outputs and keys (CGPT (26)-(29), (36)-(44))."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, log_determinant, solve_lower
from .correlated import ExactTerms, joint_posterior, prior_covariance
from .factored import whitened
from .gaussians import DenseGaussian, factored_log_density
from .padding import add_noise, as_matrix, count_tokens, mask_gram, mask_tokens

__all__ = ["OBJECTIVES", "log_density"]

OBJECTIVES = ("marginal", "joint", "elbo", "paper_mc")


class _Side(NamedTuple):
    """One process seen from the latent one: its prior, the value to score, and its coupling."""

    K: Tensor
    value: Tensor
    whitened: Tensor
    gain: Tensor
    padding: Tensor | None


def log_density(
    terms: ExactTerms,
    K_q: Tensor,
    objective: str = "marginal",
    generator: torch.Generator | None = None,
    draws: int = 1,
) -> Tensor:
    r"""Log-density of the attention output and the keys' targets under the model, CGPT (26)-(29) (the regulariser).

    With :math:`\nu` the predictive mean and :math:`Z = (K_k + \sigma^2 I)V`, each observed with noise
    :math:`\sigma^2`, which bounds it:

    * "marginal": :math:`\log N(\nu; 0, K_q + \sigma^2 I) + \log N(Z; 0, K_k + \sigma^2 I)`, which is (27) in closed
      form;
    * "joint": the density of (26), :math:`-\tfrac12\log|2\pi(V + \sigma^2 I)| + \log N(Z; 0, K_k + \sigma^2 I)`;
    * "elbo": the paper's Jensen bound (42) in closed form, latent coupling only;
    * "paper_mc": the same by draws of :math:`z_o`, as published.

    Args:
        terms: the factors.
        K_q: ``(*batch, Nq, Nq)``.
        objective: one of :data:`OBJECTIVES`.
        generator: source of randomness for "paper_mc".
        draws: number of draws for "paper_mc".

    Returns:
        ``(*batch,)``, in nats, summed over tokens and columns.

    Raises:
        ValueError: if the objective is unknown, or needs a latent process that the direct coupling does not have.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective: expected one of {OBJECTIVES}, got {objective!r}")
    if objective == "joint":
        return _joint_query_term(terms, K_q) + _key_term(terms)
    if objective == "marginal":
        return _marginal_query_term(terms, K_q) + _marginal_key_term(terms)
    if terms.latent is None:
        raise ValueError(f"objective: {objective!r} needs the latent process; expected coupling='latent', got 'direct'")
    targets = add_noise(terms.K_k, terms.noise) @ terms.values
    sides = (
        _Side(K_q, terms.mean, terms.latent.whitened_q, terms.latent.gain_q, terms.query_padding),
        _Side(terms.K_k, targets, terms.latent.whitened_k, terms.latent.gain_k, terms.key_padding),
    )
    if objective == "elbo":
        return sum((_expected_log_density(terms, side) for side in sides), start=torch.zeros(()).to(K_q))
    return _sampled_log_density(terms, sides, generator, draws)


def _key_term(terms: ExactTerms) -> Tensor:
    """Log N(Z; 0, K_k + noise I): its quadratic form is VᵀZ, no solve."""
    targets = terms.K_k @ terms.values + as_matrix(terms.noise) * terms.values
    quadratic = (terms.values * targets).sum((-2, -1))
    zero = torch.zeros_like(terms.values)
    return _whitened_log_density(zero, terms.key_factor, terms.key_padding) - 0.5 * quadratic


def _marginal_key_term(terms: ExactTerms) -> Tensor:
    if terms.latent is None or terms.latent.covariance == "coherent":
        return _key_term(terms)
    covariance = terms.K_k - as_matrix(terms.noise) * terms.latent.gain_k.mT @ terms.latent.gain_k
    factor = cholesky(add_noise(covariance, terms.noise, terms.key_padding), name="key prior + noise", jitter=0.0)
    return factored_log_density(add_noise(terms.K_k, terms.noise) @ terms.values, factor, terms.key_padding)


def _marginal_query_term(terms: ExactTerms, K_q: Tensor) -> Tensor:
    noisy = add_noise(prior_covariance(K_q, terms), terms.noise, terms.query_padding)
    mean = mask_tokens(terms.mean, terms.query_padding)
    factor, white = whitened(noisy, mean, name="K_q + noise", jitter=0.0)
    return _whitened_log_density(white, factor, terms.query_padding)


def _joint_query_term(terms: ExactTerms, K_q: Tensor) -> Tensor:
    noisy = add_noise(joint_posterior(terms, K_q).covariance, terms.noise, terms.query_padding)
    factor = cholesky(noisy, name="predictive covariance + noise", jitter=0.0)
    return _whitened_log_density(torch.zeros_like(terms.mean), factor, terms.query_padding)


def _whitened_log_density(white: Tensor, factor: Tensor, padding: Tensor | None) -> Tensor:
    """Log-density of zero-mean columns y from L⁻¹y and L."""
    constant = count_tokens(white[..., 0], padding) * math.log(2.0 * math.pi)
    return -0.5 * (white.square().sum((-2, -1)) + white.shape[-1] * (log_determinant(factor) + constant))


def _conditional_factor(terms: ExactTerms, side: _Side) -> Tensor:
    """Cholesky factor of the covariance given z_o, observed with noise: K − K_.o (K_o + noise I)⁻¹ K_o. + noise I."""
    conditional = mask_gram(side.K, side.padding, side.padding) - side.whitened.mT @ side.whitened
    return cholesky(
        add_noise(conditional, terms.noise, side.padding), name="conditional covariance + noise", jitter=0.0
    )


def _expected_log_density(terms: ExactTerms, side: _Side) -> Tensor:
    """E over z_o of log N(y; A z_o, conditional + noise I), in closed form."""
    L = _conditional_factor(terms, side)
    y = mask_tokens(side.value, side.padding)
    spread = solve_lower(L, side.whitened.mT).square().sum((-2, -1))
    repeated = as_matrix(terms.noise) * solve_lower(L, side.gain.mT).square()  # A K_o Aᵀ = WᵀW − noise AᵀA
    return factored_log_density(y, L, side.padding) - 0.5 * y.shape[-1] * (spread - repeated.sum((-2, -1)))


def _sampled_log_density(
    terms: ExactTerms, sides: tuple[_Side, ...], generator: torch.Generator | None, draws: int
) -> Tensor:
    """The same expectation by draws of z_o from its prior, common to queries and keys."""
    assert terms.latent is not None
    K_o, columns = terms.latent.K_o, terms.values.shape[-1]
    prior = DenseGaussian(K_o.new_zeros(()).expand(*K_o.shape[:-1], columns), K_o, terms.latent.padding)
    z_o = prior.rsample("joint", torch.Size([draws]), generator)
    total = torch.zeros(()).to(z_o)
    for side in sides:
        L = _conditional_factor(terms, side)
        difference = mask_tokens(side.value - side.gain.mT @ z_o, side.padding)
        total = total + factored_log_density(difference, L.expand(draws, *L.shape), side.padding).mean(0)
    return total
