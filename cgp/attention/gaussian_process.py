"""What the Gaussian-process blocks share: posterior, draws, variance per token, loss terms."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from cgp.functional.covariances import canonical
from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian
from cgp.operators import multivariate_normal

from .base import Attention
from .inputs import AttentionInputs, full_precision
from .loss_terms import LossTerm

__all__ = ["MIN_NOISE", "GaussianProcessAttention"]

MIN_NOISE = 1e-6


class GaussianProcessAttention(Attention):
    """Base of the blocks whose head outputs are Gaussian-process posteriors.

    A subclass gives the mean alone, the marginals, the joint posterior, and its loss terms; this class draws.

    Args:
        embed_dim: width d of the tokens.
        num_heads: h, which divides d.
        kernel: name of the canonical covariance.
        noise: the observation variance, at least 1e-6; fixed.
        **options: of :class:`~cgp.attention.base.Attention`.

    Raises:
        ValueError: if the kernel is unknown or the noise is below its floor.
    """

    stochastic = True

    @property
    def draws_from_gaussian(self) -> bool:
        """Whether a draw is one of :meth:`gaussian`, which several draws can then share."""
        return type(self).attend is GaussianProcessAttention.attend

    @property
    def draw_shape(self) -> torch.Size:
        """Shape of what draws have in front: ``num_samples`` if that is set and the block draws."""
        return torch.Size() if self.num_samples is None or self.sampling == "mean" else torch.Size([self.num_samples])

    def __init__(
        self, embed_dim: int, num_heads: int, *, kernel: str = "rbf", noise: float = 0.01, **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if not noise >= MIN_NOISE:
            raise ValueError(f"noise: expected a variance of at least {MIN_NOISE:g}, got {noise!r}")
        self.canonical = canonical(kernel)
        self.noise = float(noise)
        self._reset_process_maps(stationary=self.canonical.stationary)

    def attend(self, tokens: AttentionInputs) -> Tensor:
        """The mean of the heads, or a draw of them.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``, with ``num_samples`` draws in front if that is set and the block draws.
        """
        with full_precision(tokens.q.device):
            if self.sampling == "mean" and not self._wants_loss():
                return self.mean(tokens)
            posterior = self.gaussian(tokens)
            if self.sampling == "mean":
                return posterior.mean
            return posterior.rsample(self.sampling, self.draw_shape)

    def posterior(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **masks: Any
    ) -> MultivariateNormal:
        """The predictive distribution of the head outputs, before the output projection.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            key: tokens, ``(*batch, Nk, d)``, or None.
            value: tokens, ``(*batch, Nk, d)``, or None.
            **masks: as for :meth:`forward`.

        Returns:
            Batch shape ``(*batch, h, s)``, event shape ``(Nq,)``; the s channels of a head are independent with one
            covariance (in the decoupled SGPA form each with its own).
        """
        tokens = self.project(query, key, value, **masks)
        with full_precision(tokens.q.device):
            return self._distribution(tokens)

    def token_variance(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **masks: Any
    ) -> Tensor:
        """Predictive variance of each token, shared by the s columns of a head.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            key: tokens, ``(*batch, Nk, d)``, or None.
            value: tokens, ``(*batch, Nk, d)``, or None.
            **masks: as for :meth:`forward`.

        Returns:
            ``(*batch, h, Nq)``, in units of the head outputs squared.
        """
        tokens = self.project(query, key, value, **masks)
        with full_precision(tokens.q.device):
            return self.marginals(tokens).variance

    def mean(self, tokens: AttentionInputs) -> Tensor:
        """Posterior mean alone, without what only the covariance needs.

        Args:
            tokens: the projected tokens.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        raise NotImplementedError

    def marginals(self, tokens: AttentionInputs) -> MarginalGaussian | LowRankGaussian:
        """Posterior with at least its marginals.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)``, variance ``(*batch, h, Nq)``.
        """
        raise NotImplementedError

    def joint(self, tokens: AttentionInputs) -> DenseGaussian | LowRankGaussian:
        """Posterior with the covariance over tokens.

        Args:
            tokens: the projected tokens.

        Returns:
            Mean ``(*batch, h, Nq, s)`` and a covariance over Nq tokens.
        """
        raise NotImplementedError

    def gaussian(self, tokens: AttentionInputs) -> MarginalGaussian | DenseGaussian | LowRankGaussian:
        """The posterior that ``sampling`` needs; registers the loss terms in training.

        Args:
            tokens: the projected tokens.

        Returns:
            Joint if draws are joint, marginals otherwise.
        """
        raise NotImplementedError

    def _distribution(self, tokens: AttentionInputs) -> MultivariateNormal:
        """What :meth:`posterior` returns of projected tokens."""
        return multivariate_normal(self.joint(tokens))

    def _wants_loss(self) -> bool:
        return False

    def _add_loss(self, name: str, value: Tensor, kind: str) -> None:
        """Leave a per-sequence term for the objective: the one thing a forward pass writes."""
        self.update_added_loss_term(name, LossTerm(value, kind))
