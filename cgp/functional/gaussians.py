r"""Gaussian posteriors over tokens whose covariance is shared by the columns of the mean.

Each of the s columns of ``mean`` ``(*batch, n, s)`` is an independent Gaussian vector over the n tokens with the same
covariance; the classes differ in the structure of that covariance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from .linalg import cholesky, log_determinant, solve_lower
from .noise import standard_normal
from .padding import add_noise, count_tokens, mask_gram, mask_tokens, mask_variances

__all__ = [
    "SAMPLING",
    "DenseGaussian",
    "Gaussian",
    "LowRankGaussian",
    "MarginalGaussian",
    "check_sampling",
    "lazy",
    "log_normal",
    "safe_sqrt",
]

SAMPLING = ("mean", "marginal", "joint")
T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801
    """:func:`functools.cached_property` without a lock, which compilers cannot trace."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        """Compute the value and set it as an attribute of the instance, which hides this descriptor."""
        value = self.compute(instance)
        setattr(instance, self.name, value)
        return value


def check_sampling(sampling: str, allowed: tuple[str, ...] = SAMPLING) -> None:
    """Raise ValueError for an unknown kind of draw."""
    if sampling not in allowed:
        raise ValueError(f"sampling: expected one of {allowed}, got {sampling!r}")


def safe_sqrt(variance: Tensor) -> Tensor:
    """Square root ``(*batch,)`` of ``variance`` ``(*batch,)``, whose gradient is zero, not infinite, at zero."""
    # Padded and exactly interpolated tokens have zero variance.
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def log_normal(quadratic: Tensor, log_det: Tensor, count: Tensor | int, columns: int) -> Tensor:
    r"""Log-density of zero-mean columns, :math:`-\tfrac12[\operatorname{tr}Y^\top\Sigma^{-1}Y + s\log|2\pi\Sigma|]`.

    Args:
        quadratic: :math:`\operatorname{tr}Y^\top\Sigma^{-1}Y`, ``(*batch,)``.
        log_det: :math:`\log|\Sigma|`, ``(*batch,)``.
        count: length of a column, a number or ``(*batch,)``.
        columns: number of columns s.

    Returns:
        ``(*batch,)``, in nats.
    """
    return -0.5 * (quadratic + columns * (log_det + count * math.log(2.0 * math.pi)))


class Gaussian:
    """Base of the posteriors: a mean, variances, and draws.

    A subclass defines ``mean`` and ``variance``, and :meth:`joint` if a covariance over tokens is defined.
    """

    sampling: tuple[str, ...] = SAMPLING
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``: shared by the s columns, or their average."""
        raise NotImplementedError

    @property
    def column_variances(self) -> Tensor:
        """Variance of each token and column, ``(*batch, n, s)``, or ``(*batch, n, 1)`` if the columns share it."""
        return self.variance[..., None]

    def joint(self) -> Gaussian:
        """The same posterior with its covariance over tokens: dense, of low rank, or one per column."""
        raise NotImplementedError

    def rsample(
        self,
        sampling: str = "marginal",
        sample_shape: torch.Size = torch.Size(),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Reparametrised draw: independent tokens, :math:`\mu + \sqrt{v}\,\epsilon`, or all tokens together.

        Args:
            sampling: "mean", "marginal" or "joint".
            sample_shape: shape of the draws.
            generator: source of randomness; None is the source of the thread, see :mod:`cgp.functional.noise`.

        Returns:
            ``(*sample_shape, *batch, n, s)``; padded tokens have their mean.

        Raises:
            ValueError: if ``sampling`` is unknown, or "joint" where no covariance is defined.
        """
        check_sampling(sampling, self.sampling)
        if sampling == "mean":
            return self.mean.expand(*sample_shape, *self.mean.shape)
        if sampling == "joint":
            return self._joint_draw(sample_shape, generator)
        epsilon = standard_normal(self.mean, sample_shape, generator)
        return torch.addcmul(self.mean, safe_sqrt(self.column_variances), epsilon)

    def _joint_draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.joint()._joint_draw(sample_shape, generator)


@dataclass(eq=False)
class MarginalGaussian(Gaussian):
    """Independent marginals: the variance of each token, no covariance between tokens.

    Attributes:
        mean: ``(*batch, n, s)``.
        variances: ``(*batch, n)``, shared by the s columns.
    """

    sampling = ("mean", "marginal")
    mean: Tensor
    variances: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``."""
        return self.variances


@dataclass(eq=False)
class DenseGaussian(Gaussian):
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
        """Variance of each token, ``(*batch, n)``, clamped at zero against rounding."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0.0)

    def joint(self) -> DenseGaussian:
        """This Gaussian."""
        return self

    def with_noise(self, noise: Tensor | float) -> DenseGaussian:
        """The distribution of the same tokens observed with noise; padded tokens keep zero variance."""
        noisy = mask_gram(add_noise(self.covariance, noise), self.padding, self.padding)
        return DenseGaussian(self.mean, noisy, self.padding)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log-density, :math:`-\tfrac12[\|L^{-1}(y-\mu)\|^2 + s \log|\Sigma| + n s \log 2\pi]`.

        Args:
            value: y, ``(*batch, n, s)``.

        Returns:
            ``(*batch,)``, in nats.
        """
        factor = cholesky(add_noise(self.covariance, 0.0, self.padding), name="covariance", jitter=0.0)
        white = solve_lower(factor, mask_tokens(value - self.mean, self.padding))
        count = count_tokens(white[..., 0], self.padding)
        return log_normal(white.square().sum((-2, -1)), log_determinant(factor), count, value.shape[-1])

    def _joint_draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        # Factorise the correlations: jitter is then small relative to the variance of every token.
        scale = safe_sqrt(self.variance)  # (*batch, n)
        divisor = torch.where(scale > 0, scale, 1.0)
        correlation = self.covariance / (divisor[..., :, None] * divisor[..., None, :])
        factor = cholesky(add_noise(correlation, 0.0, self.padding), name="predictive covariance")
        epsilon = standard_normal(self.mean, sample_shape, generator)
        return self.mean + mask_tokens(scale[..., None] * (factor @ epsilon), self.padding)


@dataclass(eq=False)
class LowRankGaussian(Gaussian):
    r"""A covariance of low rank plus a diagonal, :math:`RR^\top + \operatorname{diag}(D)`, of which no n × n is formed.

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

    def joint(self) -> LowRankGaussian:
        """This Gaussian."""
        return self

    def with_noise(self, noise: Tensor | float) -> LowRankGaussian:
        """The distribution of the same tokens observed with noise; padded tokens keep zero variance."""
        return LowRankGaussian(self.mean, self.root, mask_variances(self.diagonal + noise, self.padding), self.padding)

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log-density by Woodbury's identity, O(n r²); D must be positive at every real token.

        .. math:: \log|\Sigma| = \log|D| + \log|I + R^\top D^{-1} R|, \qquad
            \Sigma^{-1} = D^{-1} - D^{-1}R\,(I + R^\top D^{-1}R)^{-1} R^\top D^{-1}

        Args:
            value: ``(*batch, n, s)``.

        Returns:
            ``(*batch,)``, in nats.
        """
        diagonal = self.diagonal if self.padding is None else self.diagonal.masked_fill(self.padding, 1.0)
        inverse_sd = diagonal.rsqrt()[..., None]
        scaled_root = self.root * inverse_sd  # (*batch, n, r)
        residual = mask_tokens(value - self.mean, self.padding) * inverse_sd  # (*batch, n, s)
        gram = scaled_root.mT @ scaled_root
        factor = cholesky(add_noise(gram, 1.0), name="Woodbury capacitance", jitter=0.0)
        explained = solve_lower(factor, scaled_root.mT @ residual).square().sum((-2, -1))
        log_det = diagonal.log().sum(-1) + log_determinant(factor)
        count = count_tokens(diagonal, self.padding)
        return log_normal(residual.square().sum((-2, -1)) - explained, log_det, count, value.shape[-1])

    def _joint_draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        shape = (*self.mean.shape[:-2], self.root.shape[-1], self.mean.shape[-1])
        low_rank = self.root @ standard_normal(self.mean.new_empty(()).expand(shape), sample_shape, generator)
        independent = safe_sqrt(self.diagonal)[..., None] * standard_normal(self.mean, sample_shape, generator)
        return self.mean + low_rank + independent
