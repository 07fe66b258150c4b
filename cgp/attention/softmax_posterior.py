"""The Gaussian-process posterior around softmax attention: its scales, one pair a head."""

from __future__ import annotations

import math

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from torch import Tensor, nn

from cgp.functional import softmax
from cgp.functional.bounded_softmax import bounded_marginals
from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian
from cgp.functional.padding import mask_gram, mask_tokens
from cgp.functional.softmax import ScaledPoints

from .inputs import AttentionInputs
from .softmax import NormalisedHeads

__all__ = ["STATISTICS", "SoftmaxPosterior"]

STATISTICS = ("sequence", "learned", "bounded")
_TINY = 1e-12


class SoftmaxPosterior(gpytorch.Module):
    r"""Covariance of heads whose mean is softmax attention.

    .. math:: \tau^2\,b\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]\,b

    The mean fixes the cross-covariance of queries and keys alone: whatever is positive semi-definite can be the
    covariance given the keys (it is the Schur complement of the prior). "bounded" therefore leaves b, which spans
    many orders of magnitude in trained models, out, and has a lengthscale :math:`\ell` of its own in R.

    Args:
        num_heads: h.
        head_dim: s.
        noise: where :math:`\sigma^2` starts, relative to the keys' scale; learned per head.
        amplitude: where :math:`\tau` starts; learned per head.
        statistics: "sequence" centres the keys on the queries and divides each head by its median standard deviation,
            over the real tokens of the sequence, so that τ means the same everywhere; "learned" has a constant per
            head instead, which neither looks ahead (as a causal mask demands) nor hides that a whole sequence is
            unfamiliar; "bounded" has that constant, no scale b and a lengthscale of its own.
        lengthscale: where :math:`\ell` starts if statistics are "bounded"; learned per head.
        min_noise: the floor of :math:`\sigma^2`.

    Raises:
        ValueError: if ``statistics`` is unknown, or ``amplitude`` or ``lengthscale`` is not positive.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        noise: float = 0.01,
        amplitude: float = 0.1,
        statistics: str = "sequence",
        lengthscale: float = 3.0,
        min_noise: float = 1e-6,
    ) -> None:
        super().__init__()
        if statistics not in STATISTICS:
            raise ValueError(f"statistics: expected one of {STATISTICS}, got {statistics!r}")
        if not amplitude > 0:
            raise ValueError(f"amplitude: expected a positive standard deviation, got {amplitude!r}")
        if not lengthscale > 0:
            raise ValueError(f"lengthscale: expected a positive number, got {lengthscale!r}")
        self.statistics = statistics
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_heads)))
        self.register_constraint("raw_noise", GreaterThan(0.5 * min_noise))
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(torch.full((num_heads,), noise)))
        self.log_amplitude = nn.Parameter(torch.full((num_heads,), math.log(amplitude)))
        self.gauge = nn.Parameter(torch.zeros(num_heads, 1, head_dim)) if statistics != "sequence" else None
        self.log_lengthscale: nn.Parameter | None = None
        if statistics == "bounded":
            self.log_lengthscale = nn.Parameter(torch.full((num_heads,), math.log(lengthscale)))

    @property
    def noise(self) -> Tensor:
        """Variance of the keys relative to their scale, ``(h,)``."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    def scales(self) -> list[nn.Parameter]:
        """What says how large the covariance is, and how far it reaches; the mean depends on none of them.

        Returns:
            Noise, amplitude, and the lengthscale where there is one.
        """
        reach = [] if self.log_lengthscale is None else [self.log_lengthscale]
        return [self.raw_noise, self.log_amplitude, *reach]

    def points(self, tokens: AttentionInputs, log_normaliser: Tensor | None = None) -> ScaledPoints:
        """Queries and keys as scaled points of the canonical process.

        Args:
            tokens: the projected tokens.
            log_normaliser: of softmax attention, ``(*batch, h, Nq)``, where it is known.

        Returns:
            Points of every head.
        """
        if self.log_lengthscale is not None:
            return self._bounded_points(tokens, self.log_lengthscale)
        return softmax.scaled_points(
            tokens.q,
            tokens.k,
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
            shift=None if self.gauge is None else self.gauge.to(tokens.q.dtype),
            is_causal=tokens.is_causal,
            log_normaliser=log_normaliser,
        )

    def shrunk(self, points: Tensor) -> Tensor:
        """Inducing inputs in units of the lengthscale, where :meth:`points` are.

        Args:
            points: ``(h, m, s)``.

        Returns:
            The same unless statistics are "bounded".
        """
        if self.log_lengthscale is None:
            return points
        return points * (-self.log_lengthscale).exp()[:, None, None].to(points.dtype)

    def grown(self, points: Tensor) -> Tensor:
        """Undo :meth:`shrunk`.

        Args:
            points: ``(h, m, s)`` in units of the lengthscale.

        Returns:
            Inducing inputs ``(h, m, s)`` as they are kept.
        """
        if self.log_lengthscale is None:
            return points
        return points * self.log_lengthscale.exp()[:, None, None].to(points.dtype)

    def _bounded_points(self, tokens: AttentionInputs, log_lengthscale: Tensor) -> ScaledPoints:
        """Points in units of the lengthscale, their scale one."""
        assert self.gauge is not None
        inverse = (-log_lengthscale).exp()[:, None, None].to(tokens.q.dtype)
        quarter = tokens.q.shape[-1] ** -0.25
        k = mask_tokens((tokens.k * quarter + self.gauge.to(tokens.k.dtype)) * inverse, tokens.key_padding)
        q = tokens.q * (quarter * inverse)
        return ScaledPoints(q, k, q.new_zeros(()).expand(q.shape[:-1]), tokens.query_padding, tokens.key_padding)

    def exact_marginals(self, tokens: AttentionInputs, mean: Tensor) -> MarginalGaussian:
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

    def exact_joint(self, tokens: AttentionInputs, mean: Tensor) -> DenseGaussian:
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

    def sparse_marginals(
        self, tokens: AttentionInputs, heads: NormalisedHeads, inducing: Tensor, whitening: Tensor
    ) -> MarginalGaussian:
        """Mean and variance of each token by one DTC hop.

        Args:
            tokens: the projected tokens.
            heads: softmax attention.
            inducing: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.

        Returns:
            The marginals.
        """
        if self.log_lengthscale is not None:
            return self._bounded_marginals(tokens, heads.mean, inducing, whitening, self.log_lengthscale)
        points = self.points(tokens, heads.log_normaliser)
        bracket = softmax.sparse_marginals(points, inducing, whitening, noise=self._noise(tokens))
        return self._marginals(points, bracket, heads.mean)

    def _bounded_marginals(
        self, tokens: AttentionInputs, mean: Tensor, inducing: Tensor, whitening: Tensor, log_lengthscale: Tensor
    ) -> MarginalGaussian:
        """The same without scaled copies of the tokens: scale and gauge go into the features."""
        assert self.gauge is not None
        inverse = (-log_lengthscale).exp()[:, None, None].to(tokens.q.dtype)
        shift = self.gauge.to(tokens.q.dtype) * inverse
        bracket = bounded_marginals(
            (tokens.q, tokens.k),
            (inducing, whitening),
            scale=inverse * tokens.q.shape[-1] ** -0.25,
            shift=torch.stack([torch.zeros_like(shift), shift]),
            noise=self._noise(tokens),
            query_padding=tokens.query_padding,
            key_padding=tokens.key_padding,
        )
        amplitude = self.log_amplitude.to(bracket.dtype).exp()[:, None]
        return MarginalGaussian(mean, amplitude.square() * bracket)

    def sparse_joint(
        self, tokens: AttentionInputs, heads: NormalisedHeads, inducing: Tensor, whitening: Tensor
    ) -> LowRankGaussian:
        """Posterior by one DTC hop, its covariance of low rank plus diagonal.

        Args:
            tokens: the projected tokens.
            heads: softmax attention.
            inducing: inducing inputs, ``(h, m, s)``.
            whitening: inverse factor of their covariance, ``(h, m, m)``.

        Returns:
            The posterior.
        """
        points = self.points(tokens, heads.log_normaliser)
        low_rank = softmax.sparse_covariance(points, inducing, whitening, noise=self._noise(tokens))
        scale = self._scale(points, low_rank.root.square().sum(-1) + low_rank.diagonal)
        root = mask_tokens(scale[..., None] * low_rank.root, points.query_padding)
        diagonal = scale.square() * low_rank.diagonal
        return LowRankGaussian(heads.mean, root, diagonal, points.query_padding)

    def sparse_causal_marginals(
        self, tokens: AttentionInputs, mean: Tensor, inducing: Tensor, whitening: Tensor
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

    def _noise(self, tokens: AttentionInputs) -> Tensor:
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
