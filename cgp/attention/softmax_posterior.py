"""The Gaussian-process posterior around softmax attention: one set of scales per head, for blocks and for hosts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cgp.attention.formulas.masked_softmax import Visibility, exact_posterior, sparse_posterior
from cgp.attention.formulas.softmax import AroundMean
from cgp.functional.kernels import canonical
from cgp.functional.sparse_correlated import features

from .gaussian_process import MIN_NOISE
from .inputs import AttentionInputs

__all__ = ["SoftmaxPosterior", "SoftmaxScales", "noise_of", "raw_noise"]

_INITIAL_LENGTHSCALE = 3.0


def raw_noise(noise: float, num_heads: int) -> Tensor:
    """A variance of at least 1e-6 as unconstrained numbers, ``(h,)``."""
    return torch.full((num_heads,), math.log(math.expm1(noise - 0.5 * MIN_NOISE)))


def noise_of(raw: Tensor) -> Tensor:
    """Variances, given as unconstrained numbers."""
    return nn.functional.softplus(raw) + 0.5 * MIN_NOISE


class SoftmaxScales(nn.Module):
    r"""Amplitude, noise and lengthscale per head of the covariance around softmax attention.

    .. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}], \qquad R \text{ of } Q\,c\,s^{1/4}/\ell
        \text{ and } K s^{-1/4}/\ell

    where c is the scale of the scores, :math:`s^{-1/2}` unless a host has another; see
    :mod:`cgp.attention.formulas.softmax`, and :mod:`cgp.attention.formulas.masked_softmax` for queries that see
    different keys.
    """

    raw_noise: nn.Parameter
    log_amplitude: nn.Parameter
    log_lengthscale: nn.Parameter

    def register_scales(self, num_heads: int, *, amplitude: float, noise: float, lengthscale: float) -> None:
        """Register the parameters, ``(h,)`` each, with their initial values."""
        self.raw_noise = nn.Parameter(raw_noise(noise, num_heads))
        self.log_amplitude = nn.Parameter(torch.full((num_heads,), math.log(amplitude)))
        self.log_lengthscale = nn.Parameter(torch.full((num_heads,), math.log(lengthscale)))

    @property
    def noise(self) -> Tensor:
        r"""Variance of the keys' noise, :math:`\sigma^2`, ``(h,)``."""
        return noise_of(self.raw_noise)

    def shrunk(self, points: Tensor) -> Tensor:
        """Convert inducing inputs ``(h, m, s)`` from units of :math:`Ks^{-1/4}` to units of the lengthscale."""
        return points * self._inverse_lengthscale(points.dtype)

    def stretched(self, points: Tensor) -> Tensor:
        """Convert inducing inputs ``(h, m, s)`` from units of the lengthscale to units of :math:`Ks^{-1/4}`."""
        return points * self.log_lengthscale.exp()[:, None, None].to(points.dtype)

    def around(
        self,
        mean: Tensor,
        q: Tensor,
        k: Tensor,
        visible: Visibility,
        padding: Tensor | None = None,
        inducing: tuple[Tensor, Tensor] | None = None,
    ) -> AroundMean:
        """The posterior around softmax attention; only marginals unless all queries see the same keys.

        Args:
            mean: softmax attention, ``(*batch, h, Nq, s)``.
            q: queries as points of the kernel, ``(*batch, h, Nq, s)``.
            k: keys, likewise.
            visible: the keys that each query sees.
            padding: padding mask of the queries, or None.
            inducing: inducing inputs in units of the lengthscale, and the inverse Cholesky factor of their covariance;
                None is the exact posterior.

        Returns:
            The mean and its covariance.
        """
        noise, amplitude = self.noise.to(q.dtype), self.log_amplitude.exp()[:, None].to(q.dtype)
        if inducing is None:
            return AroundMean(mean, exact_posterior(q, k, noise, visible, padding), amplitude)
        points, whitening = (x.to(q.dtype) for x in inducing)
        A_q, A_k = features(canonical("rbf"), points, whitening, q, k)
        return AroundMean(mean, sparse_posterior(A_q, A_k, noise, visible, padding), amplitude)

    def _inverse_lengthscale(self, dtype: torch.dtype) -> Tensor:
        return (-self.log_lengthscale).exp()[:, None, None].to(dtype)


class SoftmaxPosterior(SoftmaxScales):
    r"""The posterior around softmax attention of a block, whose keys :math:`(Ks^{-1/4} + c)/\ell` have a learned shift.

    Args:
        num_heads: number of heads h.
        head_dim: width s of a head.
        noise: initial value of :math:`\sigma^2`; learned per head.
        amplitude: initial value of :math:`\tau`; learned per head, as is :math:`\ell`, which starts at 3.

    Raises:
        ValueError: if ``amplitude`` is not positive.
    """

    def __init__(self, num_heads: int, head_dim: int, *, noise: float, amplitude: float) -> None:
        super().__init__()
        if not amplitude > 0:
            raise ValueError(f"amplitude: expected a positive number, got {amplitude!r}")
        self.register_scales(num_heads, amplitude=amplitude, noise=noise, lengthscale=_INITIAL_LENGTHSCALE)
        # Adding a vector to every key does not change softmax, but changes the covariance: the vector is learned.
        self.key_shift = nn.Parameter(torch.zeros(num_heads, 1, head_dim))

    def points(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        """Queries ``(*batch, h, Nq, s)`` and keys ``(*batch, h, Nk, s)`` as points of the kernel."""
        inverse = self._inverse_lengthscale(tokens.q.dtype)
        scale = tokens.q.shape[-1] ** -0.25 * inverse
        return tokens.q * scale, torch.addcmul(self.key_shift.to(tokens.k.dtype) * inverse, tokens.k, scale)

    def around_heads(
        self, mean: Tensor, tokens: AttentionInputs, inducing: tuple[Tensor, Tensor] | None = None
    ) -> AroundMean:
        """:meth:`around` for the tokens of a block."""
        visible = Visibility(tokens.key_padding, offset=0 if tokens.is_causal else None)
        return self.around(mean, *self.points(tokens), visible, tokens.query_padding, inducing)
