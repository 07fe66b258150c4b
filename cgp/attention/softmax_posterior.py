"""The Gaussian-process posterior around softmax attention: one set of scales per head."""

from __future__ import annotations

import math
from functools import partial

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from torch import Tensor, nn

from cgp.functional.causal import prefix_posterior, sparse_prefix_posterior
from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.gaussians import Gaussian
from cgp.functional.kernels import canonical, squared_exponential
from cgp.functional.softmax import AroundMean
from cgp.functional.sparse_correlated import SparseCorrelatedPosterior, features

from .gaussian_process import MIN_NOISE
from .inputs import AttentionInputs

__all__ = ["SoftmaxPosterior"]

_INITIAL_LENGTHSCALE = 3.0


class SoftmaxPosterior(gpytorch.Module):
    r"""Covariance around heads whose mean is softmax attention, see :mod:`cgp.functional.softmax`.

    .. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}], \qquad
        q = Qs^{-1/4}/\ell, \quad k = (Ks^{-1/4} + c)/\ell

    Args:
        num_heads: h.
        head_dim: s.
        noise: start of :math:`\sigma^2`; learned per head.
        amplitude: start of :math:`\tau`; learned per head, as :math:`\ell` is, which starts at 3.

    Raises:
        ValueError: if ``amplitude`` is not positive.
    """

    def __init__(self, num_heads: int, head_dim: int, *, noise: float, amplitude: float) -> None:
        super().__init__()
        if not amplitude > 0:
            raise ValueError(f"amplitude: expected a positive number, got {amplitude!r}")
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_heads)))
        self.register_constraint("raw_noise", GreaterThan(0.5 * MIN_NOISE))
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(torch.full((num_heads,), noise)))
        self.log_amplitude = nn.Parameter(torch.full((num_heads,), math.log(amplitude)))
        self.log_lengthscale = nn.Parameter(torch.full((num_heads,), math.log(_INITIAL_LENGTHSCALE)))
        # A vector added to every key leaves softmax as it is, and moves the covariance: it is learned.
        self.key_shift = nn.Parameter(torch.zeros(num_heads, 1, head_dim))

    @property
    def noise(self) -> Tensor:
        r"""Variance of the keys' noise, :math:`\sigma^2`, ``(h,)``."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    def shrunk(self, points: Tensor) -> Tensor:
        """Inducing inputs ``(h, m, s)`` in units of the lengthscale."""
        return points * self._inverse_lengthscale(points.dtype)

    def points(self, tokens: AttentionInputs) -> tuple[Tensor, Tensor]:
        """Queries ``(*batch, h, Nq, s)`` and keys ``(*batch, h, Nk, s)`` as points of the kernel."""
        inverse = self._inverse_lengthscale(tokens.q.dtype)
        scale = tokens.q.shape[-1] ** -0.25 * inverse
        return tokens.q * scale, torch.addcmul(self.key_shift.to(tokens.k.dtype) * inverse, tokens.k, scale)

    def around(
        self, mean: Tensor, tokens: AttentionInputs, inducing: tuple[Tensor, Tensor] | None = None
    ) -> AroundMean:
        """The posterior around softmax attention; marginals under a causal mask.

        Returns:
            The mean and its covariance, through inducing inputs where they are given: in units of the lengthscale, and
            the inverse factor of their covariance.
        """
        q, k = self.points(tokens)
        noise = self.noise.to(q.dtype)[:, None]
        bracket = _exact(q, k, tokens, noise) if inducing is None else _sparse(q, k, tokens, noise, *inducing)
        return AroundMean(mean, bracket, self.log_amplitude.to(q.dtype).exp()[:, None])

    def _inverse_lengthscale(self, dtype: torch.dtype) -> Tensor:
        return (-self.log_lengthscale).exp()[:, None, None].to(dtype)


def _exact(q: Tensor, k: Tensor, tokens: AttentionInputs, noise: Tensor) -> Gaussian:
    R_qk, R_k = squared_exponential(q, k), squared_exponential(k)
    one = q.new_ones(()).expand(q.shape[:-1])
    if tokens.is_causal:
        # The mean is softmax's: one column of values keeps the shapes.
        return prefix_posterior(R_qk, R_k, tokens.v[..., :1], one, noise=noise, padding=tokens.key_padding)
    return ExactPosterior(
        R_qk,
        ObservedKeys(R_k, noise=noise, padding=tokens.key_padding),
        one,
        K_q=partial(squared_exponential, q),
        padding=tokens.query_padding,
    )


def _sparse(
    q: Tensor, k: Tensor, tokens: AttentionInputs, noise: Tensor, points: Tensor, whitening: Tensor
) -> Gaussian:
    A_q, A_k = features(canonical("rbf"), points, whitening, q, k)
    one = q.new_ones(()).expand(q.shape[:-1])
    if tokens.is_causal:
        return sparse_prefix_posterior(A_q, A_k, tokens.v[..., :1], one, noise=noise, padding=tokens.key_padding)
    return SparseCorrelatedPosterior(
        A_q, A_k, None, one, noise=noise, query_padding=tokens.query_padding, key_padding=tokens.key_padding
    )
