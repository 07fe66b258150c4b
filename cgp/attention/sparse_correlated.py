"""Attention by a sparse correlated Gaussian process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cgp.functional import sparse_correlated
from cgp.functional.gaussians import LowRankGaussian
from cgp.functional.sparse_correlated import SparseTerms, whiten
from cgp.functional.sparse_correlated_objective import log_density

from .base import Tokens
from .correlated import CorrelatedAttention

__all__ = ["SparseCGPAttention"]


class SparseCGPAttention(CorrelatedAttention):
    r"""Attention as the posterior of a correlated Gaussian process seen through m inducing inputs per head.

    With :math:`A_p = L^{-1}K_{mp}`, :math:`L = \operatorname{chol}(K_{mm})`, :math:`D_p = I + A_pA_p^\top/\sigma^2`:

    .. math:: \text{direct:}\quad A_q^\top(A_kV), \;\; D + A_q^\top D_k^{-1}A_q; \qquad
        \text{latent:}\quad \sigma^{-2}A_q^\top(I - D_o^{-1})D_k^{-1}A_kV, \;\; D + A_q^\top MA_q

    Cost: O(n m (m + s)), no n × n matrix.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        num_inducing: m, inducing inputs a head.
        coupling: "direct" or "latent".
        conditional: "dtc" (the variance returns to the prior far from the inducing inputs) or "sor" (the paper's).
        **options: ``kernel``, ``noise``, ``objective``, ``objective_reduction``, ``objective_draws``, ``bias``,
        ``device``, ``dtype``.

    Raises:
        ValueError: if a size is not positive or a string is not of its closed set.

    Example:
        >>> block = SparseCGPAttention(8, 2, num_inducing=4).eval()
        >>> block(torch.zeros(3, 5, 8)).shape, block.posterior(torch.zeros(3, 5, 8)).batch_shape
        (torch.Size([3, 5, 8]), torch.Size([3, 2, 4]))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, num_inducing: int = 16, conditional: str = "dtc", **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if num_inducing < 1:
            raise ValueError(f"num_inducing: expected at least 1, got {num_inducing}")
        if conditional not in sparse_correlated.CONDITIONALS:
            raise ValueError(f"conditional: expected one of {sparse_correlated.CONDITIONALS}, got {conditional!r}")
        self.num_inducing, self.conditional = num_inducing, conditional
        shape = (num_heads, num_inducing, self.head_dim)
        scale = self.head_dim**-0.5 if self.canonical.stationary else 1.0  # as the projected tokens start
        self.inducing_points = nn.Parameter(scale * torch.randn(shape).to(self.in_proj.weight))

    def mean(self, tokens: Tokens) -> Tensor:
        """Posterior mean.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        return self._terms(tokens).mean

    def marginals(self, tokens: Tokens) -> LowRankGaussian:
        """Posterior; its marginals cost no more than its covariance.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, root ``(*batch, h, Nq, m)``, diagonal ``(*batch, h, Nq)``.
        """
        return self.joint(tokens)

    def joint(self, tokens: Tokens) -> LowRankGaussian:
        """Posterior with its covariance of low rank plus diagonal.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, root ``(*batch, h, Nq, m)``, diagonal ``(*batch, h, Nq)``.
        """
        return sparse_correlated.posterior(self._terms(tokens))

    def gaussian(self, tokens: Tokens) -> LowRankGaussian:
        """The posterior; registers the regulariser in training.

        Args:
            tokens: the projected tokens.

        Returns:
            As :meth:`joint`.
        """
        terms = self._terms(tokens)
        if self._wants_loss() and self.objective is not None:
            self._add_log_density(log_density(terms, self.objective, draws=self.objective_draws), tokens)
        return sparse_correlated.posterior(terms)

    def _terms(self, tokens: Tokens) -> SparseTerms:
        points = self.inducing_points.to(tokens.q.dtype)
        whitening = whiten(self.canonical.gram(points))  # (h, m, m)
        features_q, features_k = (whitening @ self.canonical.gram(points, z) for z in (tokens.q, tokens.k))
        common: dict[str, Any] = {
            "noise": self.noise,
            "conditional": self.conditional,
            "query_padding": tokens.query_padding,
            "key_padding": tokens.key_padding,
        }
        prior_variance = self.canonical.diagonal(tokens.q)
        if tokens.o is None:
            return sparse_correlated.direct_terms(features_q, features_k, tokens.v, prior_variance, **common)
        features_o = whitening @ self.canonical.gram(points, tokens.o)
        return sparse_correlated.latent_terms(
            features_q, features_o, features_k, tokens.v, prior_variance, latent_padding=tokens.key_padding, **common
        )
