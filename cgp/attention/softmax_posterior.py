"""The Gaussian-process posterior around softmax attention: its scales, one pair a head."""

from __future__ import annotations

import math

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from torch import Tensor, nn

from cgp.functional import softmax
from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian
from cgp.functional.padding import mask_gram, mask_tokens
from cgp.functional.softmax import ScaledPoints

from .base import Tokens

__all__ = ["STATISTICS", "SoftmaxPosterior"]

STATISTICS = ("sequence", "learned")
_TINY = 1e-12


class SoftmaxPosterior(gpytorch.Module):
    r"""Covariance of heads whose mean is softmax attention.

    .. math:: \tau^2\,b\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]\,b

    Args:
        num_heads: h.
        head_dim: s.
        noise: where :math:`\sigma^2` starts, relative to the keys' scale; learned per head.
        amplitude: where :math:`\tau` starts; learned per head.
        statistics: "sequence" centres the keys on the queries and divides each head by its median standard deviation,
            over the real tokens of the
            sequence, so that τ means the same everywhere; "learned" has a constant per head instead, which neither
            looks ahead (as a causal mask
            demands) nor hides that a whole sequence is unfamiliar.
        min_noise: the floor of :math:`\sigma^2`.

    Raises:
        ValueError: if ``statistics`` is unknown or ``amplitude`` is not positive.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        noise: float = 0.01,
        amplitude: float = 0.1,
        statistics: str = "sequence",
        min_noise: float = 1e-6,
    ) -> None:
        super().__init__()
        if statistics not in STATISTICS:
            raise ValueError(f"statistics: expected one of {STATISTICS}, got {statistics!r}")
        if not amplitude > 0:
            raise ValueError(f"amplitude: expected a positive standard deviation, got {amplitude!r}")
        self.statistics = statistics
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_heads)))
        self.register_constraint("raw_noise", GreaterThan(0.5 * min_noise))
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(torch.full((num_heads,), noise)))
        self.log_amplitude = nn.Parameter(torch.full((num_heads,), math.log(amplitude)))
        self.gauge = nn.Parameter(torch.zeros(num_heads, 1, head_dim)) if statistics == "learned" else None

    @property
    def noise(self) -> Tensor:
        """Variance of the keys relative to their scale, ``(h,)``."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    def points(self, tokens: Tokens) -> ScaledPoints:
        """Queries and keys as scaled points of the canonical process.

        Args:
            tokens: the projected tokens.

        Returns:
            Points of every head.
        """
        return softmax.scaled_points(
            tokens.q,
            tokens.k,
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
            shift=None if self.gauge is None else self.gauge.to(tokens.q.dtype),
            is_causal=tokens.is_causal,
        )

    def exact_marginals(self, tokens: Tokens, mean: Tensor) -> MarginalGaussian:
        """Mean and variance of each token, exactly.

        Args:
            tokens: the projected tokens.
            mean: softmax attention, ``(*batch, h, Nq, s)``.

        Returns:
            The marginals.
        """
        points = self.points(tokens)
        bracket = softmax.exact_marginals(points, noise=self._noise(tokens), is_causal=tokens.is_causal)
        return self._marginals(points, bracket, mean)

    def exact_joint(self, tokens: Tokens, mean: Tensor) -> DenseGaussian:
        """Posterior with its covariance over the queries, exactly.

        Args:
            tokens: the projected tokens.
            mean: softmax attention, ``(*batch, h, Nq, s)``.

        Returns:
            The posterior.
        """
        points = self.points(tokens)
        bracket = softmax.exact_covariance(points, noise=self._noise(tokens))
        scale = self._scale(points, bracket.diagonal(dim1=-2, dim2=-1))
        covariance = scale[..., :, None] * bracket * scale[..., None, :]
        covariance = mask_gram(covariance, points.query_padding, points.query_padding)
        return DenseGaussian(mean, covariance, points.query_padding)

    def sparse_joint(self, tokens: Tokens, mean: Tensor, inducing: Tensor, whitening: Tensor) -> LowRankGaussian:
        """Posterior by one DTC hop, its covariance of low rank plus diagonal.

        Args:
            tokens: the projected tokens.
            mean: softmax attention, ``(*batch, h, Nq, s)``.
            inducing: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.

        Returns:
            The posterior.
        """
        points = self.points(tokens)
        low_rank = softmax.sparse_covariance(points, inducing, whitening, noise=self._noise(tokens))
        scale = self._scale(points, low_rank.root.square().sum(-1) + low_rank.diagonal)
        root = mask_tokens(scale[..., None] * low_rank.root, points.query_padding)
        diagonal = scale.square() * low_rank.diagonal
        return LowRankGaussian(mean, root, diagonal, points.query_padding)

    def sparse_causal_marginals(
        self, tokens: Tokens, mean: Tensor, inducing: Tensor, whitening: Tensor
    ) -> MarginalGaussian:
        """Mean and variance of each token given its prefix, by one DTC hop.

        Args:
            tokens: the projected tokens.
            mean: causal softmax attention, ``(*batch, h, n, s)``.
            inducing: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.

        Returns:
            The marginals.
        """
        points = self.points(tokens)
        bracket = softmax.sparse_causal_marginals(points, inducing, whitening, noise=self._noise(tokens))
        return self._marginals(points, bracket, mean)

    def _noise(self, tokens: Tokens) -> Tensor:
        return self.noise.to(tokens.q.dtype)

    def _marginals(self, points: ScaledPoints, bracket: Tensor, mean: Tensor) -> MarginalGaussian:
        variance = self._scale(points, bracket).square() * bracket
        if points.query_padding is not None:
            variance = variance.masked_fill(points.query_padding, 0.0)
        return MarginalGaussian(mean, variance)

    def _scale(self, points: ScaledPoints, bracket: Tensor) -> Tensor:
        """τ b over the median standard deviation of the head's real tokens (or over one, if statistics are learned)."""
        centre: Tensor | float = 0.0
        if self.statistics == "sequence":
            log_deviation = points.log_scale + 0.5 * bracket.clamp(min=_TINY).log()
            centre = softmax.masked_median(log_deviation, points.query_padding)
        return softmax.bounded_scale(points.log_scale, centre, self.log_amplitude.to(bracket.dtype))
