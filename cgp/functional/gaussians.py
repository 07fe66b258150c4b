r"""Gaussian posteriors over tokens whose covariance is shared by the columns of the mean.

Each of the s columns of ``mean`` (\*batch, n, s) is an independent Gaussian vector over the n tokens with the same
covariance; the three classes differ in what they know of that covariance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, log_determinant, solve_lower
from .draws import marginal_draw, safe_sqrt
from .noise import standard_normal
from .padding import add_noise, as_vector, count_tokens, mask_gram, mask_tokens

__all__ = [
    "SAMPLING",
    "DenseGaussian",
    "LowRankGaussian",
    "MarginalGaussian",
    "check_sampling",
    "factored_log_density",
]

SAMPLING = ("mean", "marginal", "joint")
_LOG_TWO_PI = math.log(2.0 * math.pi)


def check_sampling(sampling: str, allowed: tuple[str, ...] = SAMPLING) -> None:
    """Refuse an unknown way to draw.

    Args:
        sampling: the value to check.
        allowed: the closed set.

    Raises:
        ValueError: if it is not in the set.
    """
    if sampling not in allowed:
        raise ValueError(f"sampling: expected one of {allowed}, got {sampling!r}")


class MarginalGaussian(NamedTuple):
    """Independent marginals: the variance of each token, no covariance between tokens.

    Attributes:
        mean: ``(*batch, n, s)``.
        variances: ``(*batch, n)``, shared by the s columns.
    """

    mean: Tensor
    variances: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``."""
        return self.variances

    def rsample(
        self,
        sampling: str = "marginal",
        sample_shape: torch.Size = torch.Size(),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Reparametrised draw, :math:`\mu + \sqrt{v}\,\epsilon`.

        Args:
            sampling: "mean" or "marginal"; "joint" needs a covariance and is refused.
            sample_shape: shape of the draws.
            generator: source of randomness; None is torch's global one.

        Returns:
            ``(*sample_shape, *batch, n, s)``.

        Raises:
            ValueError: if ``sampling`` is "joint" or unknown.

        Example:
            >>> MarginalGaussian(torch.zeros(3, 2), torch.ones(3)).rsample(sample_shape=torch.Size([5])).shape
            torch.Size([5, 3, 2])
        """
        check_sampling(sampling, ("mean", "marginal"))
        return _marginal_draw(self.mean, self.variances, sampling, sample_shape, generator)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log-density of independent tokens, :math:`-\tfrac12\sum_{ic}[(y_{ic}-\mu_{ic})^2/v_i + \log 2\pi v_i]`.

        Args:
            value: ``(*batch, n, s)``.

        Returns:
            ``(*batch,)``, in nats, summed over tokens and columns.
        """
        variance = self.variances[..., None]
        return -0.5 * ((value - self.mean).square() / variance + variance.log() + _LOG_TWO_PI).sum((-2, -1))


class DenseGaussian(NamedTuple):
    """A dense covariance over the tokens.

    Attributes:
        mean: ``(*batch, n, s)``.
        covariance: ``(*batch, n, n)``, zero in the rows and columns of padded tokens.
        padding: ``(*batch, n)`` or None.
    """

    mean: Tensor
    covariance: Tensor
    padding: Tensor | None = None

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``; rounding below zero is cut."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0.0)

    def with_noise(self, noise: Tensor | float) -> DenseGaussian:
        """The distribution of the same tokens observed with noise.

        Args:
            noise: the variance that is added, a number or ``(*batch,)``.

        Returns:
            The noisy Gaussian; padded tokens keep zero variance.
        """
        noisy = mask_gram(add_noise(self.covariance, noise), self.padding, self.padding)
        return DenseGaussian(self.mean, noisy, self.padding)

    def rsample(
        self, sampling: str = "joint", sample_shape: torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        r"""Reparametrised draw, :math:`\mu + DL\epsilon` (joint) or :math:`\mu + \sqrt{v}\,\epsilon` (marginal).

        D holds the standard deviations, and L is the factor of the correlations :math:`D^{-1}\Sigma D^{-1}`.

        Args:
            sampling: "mean", "marginal" or "joint".
            sample_shape: shape of the draws.
            generator: source of randomness; None is torch's global one.

        Returns:
            ``(*sample_shape, *batch, n, s)``; padded tokens have their mean.

        Raises:
            ValueError: if ``sampling`` is unknown.

        Example:
            >>> DenseGaussian(torch.zeros(3, 2), torch.eye(3)).rsample("joint").shape
            torch.Size([3, 2])
        """
        check_sampling(sampling)
        if sampling != "joint":
            return _marginal_draw(self.mean, self.variance, sampling, sample_shape, generator)
        # Correlations are factored: jitter is then small beside each token's own variance, whatever the others'.
        scale = safe_sqrt(self.variance)  # (*batch, n)
        divisor = torch.where(scale > 0, scale, 1.0)
        correlation = self.covariance / (divisor[..., :, None] * divisor[..., None, :])
        factor = cholesky(add_noise(correlation, 0.0, self.padding), name="predictive covariance")
        epsilon = standard_normal(self.mean, sample_shape, generator)
        return self.mean + mask_tokens(scale[..., None] * (factor @ epsilon), self.padding)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log-density, :math:`-\tfrac12[\|L^{-1}(y-\mu)\|^2 + s \log|\Sigma| + n s \log 2\pi]` over the real tokens.

        Args:
            value: ``(*batch, n, s)``.

        Returns:
            ``(*batch,)``, in nats, summed over tokens and columns.

        Example:
            >>> DenseGaussian(torch.zeros(1, 1), torch.ones(1, 1)).log_prob(torch.zeros(1, 1))
            tensor(-0.9189)
        """
        factor = cholesky(add_noise(self.covariance, 0.0, self.padding), name="covariance", jitter=0.0)
        difference = mask_tokens(value - self.mean, self.padding)
        return factored_log_density(difference, factor, self.padding)


class LowRankGaussian(NamedTuple):
    r"""A covariance of low rank plus a diagonal, :math:`RR^\top + \operatorname{diag}(D)`.

    Attributes:
        mean: ``(*batch, n, s)``.
        root: R, ``(*batch, n, r)``, zero in the rows of padded tokens.
        diagonal: D, ``(*batch, n)``, zero at padded tokens.
        padding: ``(*batch, n)`` or None.
    """

    mean: Tensor
    root: Tensor
    diagonal: Tensor
    padding: Tensor | None = None

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``."""
        return self.root.square().sum(-1) + self.diagonal

    @property
    def covariance(self) -> Tensor:
        """The dense covariance, ``(*batch, n, n)``: for small n and for tests."""
        return self.root @ self.root.mT + torch.diag_embed(self.diagonal)

    def with_noise(self, noise: Tensor | float) -> LowRankGaussian:
        """The distribution of the same tokens observed with noise.

        Args:
            noise: the variance that is added, a number or ``(*batch,)``.

        Returns:
            The noisy Gaussian; padded tokens keep zero variance.
        """
        diagonal = self.diagonal + as_vector(noise)
        if self.padding is not None:
            diagonal = diagonal.masked_fill(self.padding, 0.0)
        return LowRankGaussian(self.mean, self.root, diagonal, self.padding)

    def rsample(
        self, sampling: str = "joint", sample_shape: torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        r"""Reparametrised draw, :math:`\mu + R\epsilon_r + \sqrt{D}\,\epsilon_n` (joint), never forming n × n.

        Args:
            sampling: "mean", "marginal" or "joint".
            sample_shape: shape of the draws.
            generator: source of randomness; None is torch's global one.

        Returns:
            ``(*sample_shape, *batch, n, s)``.

        Raises:
            ValueError: if ``sampling`` is unknown.

        Example:
            >>> LowRankGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(3)).rsample("joint").shape
            torch.Size([3, 2])
        """
        check_sampling(sampling)
        if sampling != "joint":
            return _marginal_draw(self.mean, self.variance, sampling, sample_shape, generator)
        shape = (*self.mean.shape[:-2], self.root.shape[-1], self.mean.shape[-1])
        low_rank = self.root @ standard_normal(self.mean.new_empty(()).expand(shape), sample_shape, generator)
        independent = safe_sqrt(self.diagonal)[..., None] * standard_normal(self.mean, sample_shape, generator)
        return self.mean + low_rank + independent

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log-density by Woodbury's identity, O(n r²).

        .. math:: \log|\Sigma| = \log|D| + \log|I + R^\top D^{-1} R|, \qquad
            \Sigma^{-1} = D^{-1} - D^{-1}R\,(I + R^\top D^{-1}R)^{-1} R^\top D^{-1}

        Args:
            value: ``(*batch, n, s)``. D must be positive at every real token (see :meth:`with_noise`).

        Returns:
            ``(*batch,)``, in nats, summed over tokens and columns.

        Example:
            >>> LowRankGaussian(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1)).log_prob(torch.zeros(1, 1))
            tensor(-0.9189)
        """
        diagonal = self.diagonal if self.padding is None else self.diagonal.masked_fill(self.padding, 1.0)
        inverse_sd = diagonal.rsqrt()[..., None]
        scaled_root = self.root * inverse_sd  # (*batch, n, r)
        residual = mask_tokens(value - self.mean, self.padding) * inverse_sd  # (*batch, n, s)
        rank, columns = self.root.shape[-1], value.shape[-1]
        identity = torch.eye(rank, dtype=diagonal.dtype, device=diagonal.device)
        factor = cholesky(identity + scaled_root.mT @ scaled_root, name="Woodbury capacitance", jitter=0.0)
        explained = solve_lower(factor, scaled_root.mT @ residual).square().sum((-2, -1))
        log_det = diagonal.log().sum(-1) + log_determinant(factor)
        constant = count_tokens(diagonal, self.padding) * _LOG_TWO_PI
        return -0.5 * (residual.square().sum((-2, -1)) - explained + columns * (log_det + constant))


def factored_log_density(difference: Tensor, factor: Tensor, padding: Tensor | None = None) -> Tensor:
    r"""Log-density of zero-mean columns from a Cholesky factor.

    .. math:: -\tfrac12\big[\|L^{-1}y\|_F^2 + s\log|LL^\top| + n s\log 2\pi\big]

    Args:
        difference: ``(*batch, n, s)``, zero at padded tokens.
        factor: lower factor with unit rows at padded tokens, ``(*batch, n, n)``.
        padding: ``(*batch, n)`` or None.

    Returns:
        ``(*batch,)``, in nats.
    """
    quadratic = solve_lower(factor, difference).square().sum((-2, -1))
    constant = count_tokens(difference[..., 0], padding) * _LOG_TWO_PI
    return -0.5 * (quadratic + difference.shape[-1] * (log_determinant(factor) + constant))


def _marginal_draw(
    mean: Tensor, variance: Tensor, sampling: str, sample_shape: torch.Size, generator: torch.Generator | None
) -> Tensor:
    if sampling == "mean":
        return mean.expand(*sample_shape, *mean.shape)
    return marginal_draw(mean, variance[..., None], standard_normal(mean, sample_shape, generator))
