"""A multivariate normal whose covariance is computed on first use, and whose marginal variances are given."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["LazyMultivariateNormal"]


class LazyMultivariateNormal(MultivariateNormal):
    """GPyTorch's distribution with marginal variances that were computed without the covariance.

    Mean and variance cost nothing; the covariance is computed at the first draw, density or access.

    Args:
        mean: mean, ``(*batch, n)``.
        covariance_matrix: covariance ``(*batch, n, n)``, or a function that computes it.
        validate_args: passed to GPyTorch's distribution.
        variance: diagonal of the covariance, ``(*batch, n)`` or broadcastable; None computes the covariance for it.
        padding: which entries are padding, bool, broadcastable to ``(*batch, n)``: without variance, and left out of
            densities.

    Example:
        >>> from linear_operator.operators import DiagLinearOperator
        >>> variance = torch.ones(5, 3)
        >>> normal = LazyMultivariateNormal(torch.zeros(5, 3), lambda: DiagLinearOperator(variance), variance=variance)
        >>> normal.variance.shape, normal.is_built, normal.rsample().shape, normal.is_built
        (torch.Size([5, 3]), False, torch.Size([5, 3]), True)
    """

    def __init__(
        self,
        mean: Tensor,
        covariance_matrix: Tensor | LinearOperator | Callable[[], LinearOperator],
        validate_args: bool = False,
        *,
        variance: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> None:
        self._marginal, self._operator, self._build, self._padding = variance, None, None, padding
        if isinstance(covariance_matrix, Tensor | LinearOperator):
            super().__init__(mean, covariance_matrix, validate_args)
            return
        self._build, self._with_graph = covariance_matrix, torch.is_grad_enabled()
        self._islazy, self.loc, self._validate_args = True, mean, validate_args
        self._MultivariateNormal__unbroadcasted_scale_tril = None  # as the parent starts
        Distribution.__init__(self, mean.shape[:-1], mean.shape[-1:], validate_args=False)

    @property
    def is_built(self) -> bool:
        """Whether the covariance has been computed."""
        return self._operator is not None

    @property
    def _covar(self) -> LinearOperator:
        if self._operator is None:
            assert self._build is not None
            with torch.set_grad_enabled(self._with_graph):  # the setting at construction
                self._operator = self._build()
        return self._operator

    @_covar.setter
    def _covar(self, covariance: LinearOperator) -> None:
        self._operator = covariance

    @property
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``; at least GPyTorch's ``min_variance``, as in its distribution."""
        if self._marginal is None:
            return super().variance
        smallest = settings.min_variance.value(self._marginal.dtype)
        if bool((self._marginal < smallest).any()):
            warnings.warn(f"variances below {smallest:g} are lifted to it", NumericalWarning, stacklevel=2)
        return self._marginal.clamp(min=smallest).expand(self.loc.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of the entries that are no padding, ``(*batch,)``; ``value`` is ``(*batch, n)``."""
        padding = self._padding
        if padding is None or not bool(padding.any()):
            return super().log_prob(value)
        ones = MultivariateNormal(self.loc, self._covar.add_diagonal(padding.to(self.loc.dtype)))
        density = ones.log_prob(torch.where(padding, self.loc, value))
        count = padding.sum(-1).to(density)
        return density + 0.5 * math.log(2.0 * math.pi) * count  # without ones at their mean

    def expand(self, batch_size: torch.Size) -> LazyMultivariateNormal:
        """The distribution with more dimensions of the batch."""
        new = super().expand(batch_size)
        new._padding = self._padding
        return new

    def __getitem__(self, idx: Any) -> MultivariateNormal:
        """The distribution of some entries, or of some members of the batch."""
        new = super().__getitem__(idx)
        new._padding = None if self._padding is None else self._padding.expand(self.loc.shape)[idx]
        return new
