"""Attention by a sparse correlated Gaussian process."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from torch import Tensor

from cgp.functional import sparse_correlated
from cgp.functional.causal import causal_product, sparse_prefix_posterior
from cgp.functional.gaussians import LowRankGaussian, MarginalGaussian
from cgp.functional.padding import mask_gram, mask_tokens
from cgp.functional.sparse_correlated import SparseTerms, whiten
from cgp.functional.sparse_correlated_objective import log_density
from cgp.functional.sparse_hop import sparse_hop
from cgp.operators import LazyMultivariateNormal, shared_covariance

from .correlated import CorrelatedAttention
from .inducing import make_inducing
from .inputs import AttentionInputs, full_precision
from .softmax import NormalisedHeads, normalised_heads, softmax_heads

__all__ = ["SparseCGPAttention"]


class SparseCGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of a correlated Gaussian process seen through m inducing inputs per head.

    With :math:`A_p = L^{-1}K_{mp}`, :math:`L = \operatorname{chol}(K_{mm})`, :math:`D_p = I + A_pA_p^\top/\sigma^2`:

    .. math:: \text{direct:}\quad A_q^\top(A_kV), \;\; D + A_q^\top D_k^{-1}A_q; \qquad
        \text{latent:}\quad \sigma^{-2}A_q^\top(I - D_o^{-1})D_k^{-1}A_kV, \;\; D + A_q^\top MA_q

    Cost: O(n m (m + s)), no n × n matrix (with softmax's mean, none beyond softmax's own).

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        num_inducing: m, inducing inputs a head.
        inducing: "learned"; "pooled" from the tokens of any length; or "linear", the papers' map of a fixed number of
            tokens.
        num_tokens: that number, for "linear".
        num_key_inducing: a second learned set for the hop from the keys (latent coupling): the variance at far keys
            is then understated. With None one set serves both hops, and it returns to the prior.
        conditional: "dtc" (the variance returns to the prior far from the inducing inputs) or "sor" (the paper's).
        **options: ``kernel``, ``noise``, ``coupling``, ``mean``, ``objective``, ``objective_reduction``,
            ``objective_draws``, ``amplitude``, ``statistics``,
            ``lengthscale``, ``bias``, ``device``, ``dtype``.

    Raises:
        ValueError: if a size is not positive, a string is not of its closed set, or options exclude each other.

    Example:
        >>> import torch
        >>> block = SparseCGPAttention(8, 2, num_inducing=4).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_inducing: int = 16,
        inducing: str = "learned",
        num_tokens: int | None = None,
        num_key_inducing: int | None = None,
        conditional: str = "dtc",
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if conditional not in sparse_correlated.CONDITIONALS:
            raise ValueError(f"conditional: expected one of {sparse_correlated.CONDITIONALS}, got {conditional!r}")
        self.num_inducing, self.conditional = num_inducing, conditional
        scale = self.head_dim**-0.5 if self.canonical.stationary else 1.0  # as the projected tokens start
        if self.softmax is not None:
            scale = self.head_dim**-0.25
            if inducing != "learned" or conditional != "dtc":
                raise ValueError("inducing, conditional: mean='softmax' needs 'learned' and 'dtc'")
        self.inducing = make_inducing(
            inducing, num_heads, num_inducing, self.head_dim, scale=scale, num_tokens=num_tokens
        ).to(self.in_proj.weight)
        self.takes_causal = self.takes_causal and not self.inducing.depends_on_tokens
        self.key_inducing = None
        if num_key_inducing is not None:
            if self.coupling != "latent":
                raise ValueError("num_key_inducing: a second set needs coupling='latent', got 'direct'")
            self.key_inducing = make_inducing(
                "learned", num_heads, num_key_inducing, self.head_dim, scale=scale, num_tokens=None
            ).to(self.in_proj.weight)

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        if self.softmax is not None:
            return softmax_heads(tokens)
        if tokens.o is not None:
            return self._latent_mean(tokens, tokens.o)
        A_q, A_k = self._features(tokens)
        A_k = mask_gram(A_k, None, tokens.key_padding)
        if tokens.is_causal:
            return mask_tokens(causal_product(A_q, A_k, tokens.v), tokens.query_padding)
        return mask_tokens(A_q.mT @ (A_k @ tokens.v), tokens.query_padding)

    def marginals(self, tokens: AttentionInputs) -> MarginalGaussian:
        """Mean and variance of each token.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, variance ``(*batch, h, Nq)``.
        """
        if self.softmax is not None:
            inducing = self._inducing(tokens.k, None)
            if tokens.is_causal:
                return self.softmax.sparse_causal_marginals(tokens, softmax_heads(tokens), *inducing)
            return self.softmax.sparse_marginals(tokens, self._softmax_heads(tokens), *inducing)
        if not tokens.is_causal:
            return self._by_hop(tokens) if self._hops else sparse_correlated.marginal_posterior(self._terms(tokens))
        A_q, A_k = self._features(tokens)
        return sparse_prefix_posterior(
            A_q,
            A_k,
            tokens.v,
            self.canonical.diagonal(tokens.q),
            noise=self.noise,
            padding=tokens.key_padding,
            conditional=self.conditional,
        )

    def joint(self, tokens: AttentionInputs) -> LowRankGaussian:
        """Posterior with its covariance of low rank plus diagonal.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, root ``(*batch, h, Nq, m)``, diagonal ``(*batch, h, Nq)``.
        """
        self._refuse_joint_if_causal(tokens)
        if self.softmax is not None:
            return self.softmax.sparse_joint(tokens, self._softmax_heads(tokens), *self._inducing(tokens.k, None))
        return sparse_correlated.posterior(self._terms(tokens))

    def gaussian(self, tokens: AttentionInputs) -> LowRankGaussian | MarginalGaussian:
        """The posterior; registers the regulariser in training.

        Args:
            tokens: the projected tokens.

        Returns:
            As :meth:`joint`, or marginals under a causal mask.
        """
        if tokens.is_causal or self.softmax is not None or not self._wants_loss():
            return self.joint(tokens) if self.sampling == "joint" else self.marginals(tokens)
        terms = self._terms(tokens)
        if self.objective is not None:
            self._add_log_density(log_density(terms, self.objective, draws=self.objective_draws), tokens)
        posterior = sparse_correlated.posterior if self.sampling == "joint" else sparse_correlated.marginal_posterior
        return posterior(terms)

    def _distribution(self, tokens: AttentionInputs) -> MultivariateNormal:
        if self.softmax is not None or tokens.is_causal:
            return super()._distribution(tokens)
        terms = self._terms(tokens)
        marginals = sparse_correlated.marginal_posterior(terms)
        variance = marginals.variance[..., None, :]  # of each column the same
        return LazyMultivariateNormal(marginals.mean.mT, partial(_covariance, terms), variance=variance)

    def weight_factors(self) -> dict[str, Tensor]:
        """Inverse factors of the learned inducing sets, which depend on weights alone.

        Returns:
            By name; empty where the inducing inputs depend on the tokens.
        """
        if self.inducing.depends_on_tokens:
            return {}
        points = self._shrunk(cast(Tensor, self.inducing.points))
        factors = {"whitening": whiten(self.canonical.gram(points))}
        if self.key_inducing is not None:
            factors["key_whitening"] = whiten(self.canonical.gram(self.key_inducing.points))
        return factors

    def _inducing(self, z: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inducing inputs and the inverse factor of their covariance."""
        points = self._shrunk(self.inducing(z, padding))
        frozen = self.frozen_factor("whitening")
        return points, whiten(self.canonical.gram(points)) if frozen is None else frozen.to(points.dtype)

    def _softmax_heads(self, tokens: AttentionInputs) -> NormalisedHeads:
        """The mean; with its normaliser where the covariance is scaled by it."""
        is_bounded = self.softmax is not None and self.softmax.log_lengthscale is not None
        return NormalisedHeads(softmax_heads(tokens), None) if is_bounded else normalised_heads(tokens)

    def _shrunk(self, points: Tensor) -> Tensor:
        return points if self.softmax is None else self.softmax.shrunk(points)

    def _features(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        points, whitening = self._inducing(tokens.k, tokens.key_padding)
        of_queries, of_keys = self._whitened(points, whitening, tokens.q, tokens.k)
        return of_queries, of_keys

    def _latent_features(
        self, tokens: AttentionInputs, o: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None]:
        """Features of queries, latent inputs and keys; and of latent inputs in the keys' set where it is another."""
        points, whitening = self._inducing(o, tokens.key_padding)
        if self.key_inducing is None:
            of_queries, of_latent, of_keys = self._whitened(points, whitening, tokens.q, o, tokens.k)
            return (of_queries, of_latent, of_keys), None
        of_queries, of_latent = self._whitened(points, whitening, tokens.q, o)
        others = self.key_inducing(tokens.k, None)
        frozen = self.frozen_factor("key_whitening")
        key_whitening = whiten(self.canonical.gram(others)) if frozen is None else frozen.to(others.dtype)
        of_keys, again = self._whitened(others, key_whitening, tokens.k, o)
        return (of_queries, of_latent, of_keys), again

    def _whitened(self, points: Tensor, whitening: Tensor, *sets: Tensor) -> tuple[Tensor, ...]:
        return sparse_correlated.features_of(self.canonical, points, whitening, *sets)

    @property
    def _hops(self) -> bool:
        """Whether mean and variances come in one step: one inducing set, and the variance returns to the prior."""
        return self.conditional == "dtc" and self.key_inducing is None

    def _by_hop(self, tokens: AttentionInputs) -> MarginalGaussian:
        if tokens.o is None:
            of_queries, of_keys = self._features(tokens)
            of_latent = None
        else:
            (of_queries, of_latent, of_keys), _ = self._latent_features(tokens, tokens.o)
            of_latent = mask_gram(of_latent, None, tokens.key_padding)
        mean, variance = sparse_hop(
            mask_gram(of_queries, None, tokens.query_padding),
            mask_gram(of_keys, None, tokens.key_padding),
            of_latent,
            mask_tokens(tokens.v, tokens.key_padding),
            self.canonical.diagonal(tokens.q),
            self.noise,
        )
        assert mean is not None
        if tokens.query_padding is not None:
            variance = variance.masked_fill(tokens.query_padding, 0.0)
        return MarginalGaussian(mean, variance)

    def _latent_mean(self, tokens: AttentionInputs, o: Tensor) -> Tensor:
        features, other = self._latent_features(tokens, o)
        mean = sparse_correlated.latent_mean(
            *features,
            tokens.v,
            noise=self.noise,
            key_padding=tokens.key_padding,
            latent_padding=tokens.key_padding,
            key_set_features_o=other,
        )
        return mask_tokens(mean, tokens.query_padding)

    def _terms(self, tokens: AttentionInputs) -> SparseTerms:
        common: dict[str, Any] = {
            "noise": self.noise,
            "conditional": self.conditional,
            "query_padding": tokens.query_padding,
            "key_padding": tokens.key_padding,
        }
        prior_variance = self.canonical.diagonal(tokens.q)
        if tokens.o is None:
            return sparse_correlated.direct_terms(*self._features(tokens), tokens.v, prior_variance, **common)
        features, other = self._latent_features(tokens, tokens.o)
        if other is not None:
            common |= {"key_set_features_o": other, "latent_variance": self.canonical.diagonal(tokens.o)}
        common["latent_padding"] = tokens.key_padding
        return sparse_correlated.latent_terms(*features, tokens.v, prior_variance, **common)


def _covariance(terms: SparseTerms) -> LinearOperator:
    with full_precision(terms.mean.device):
        return shared_covariance(sparse_correlated.posterior(terms))
