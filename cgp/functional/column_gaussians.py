r"""Gaussian posteriors over tokens whose columns have covariances of their own.

The columns c of ``mean`` (\*batch, n, s) are independent Gaussian vectors over the n tokens; they share features and a
residual, and differ in a small root:

.. math:: \Sigma_c = A\,L_cL_c^\top A^\top + \Sigma_{\text{residual}}
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .draws import marginal_draw, safe_sqrt
from .gaussians import check_sampling
from .noise import standard_normal
from .products import column_quadratic_forms

__all__ = ["ColumnGaussian", "ColumnMarginals", "MappedMarginals"]


class ColumnMarginals(NamedTuple):
    """Independent marginals: a variance for each token and column.

    Attributes:
        mean: ``(*batch, n, s)``.
        variances: ``(*batch, n, s)``.
    """

    mean: Tensor
    variances: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each token, averaged over its columns, ``(*batch, n)``."""
        return self.variances.mean(-1)

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
            >>> ColumnMarginals(torch.zeros(3, 2), torch.ones(3, 2)).rsample(sample_shape=torch.Size([5])).shape
            torch.Size([5, 3, 2])
        """
        check_sampling(sampling, ("mean", "marginal"))
        if sampling == "mean":
            return self.mean.expand(*sample_shape, *self.mean.shape)
        return marginal_draw(self.mean, self.variances, standard_normal(self.mean, sample_shape, generator))


class MappedMarginals(NamedTuple):
    """Independent outputs and a map from them to the columns of a head.

    Attributes:
        outputs: of J columns, ``(*batch, n, J)``.
        head_map: W, ``(J, s)`` or broadcastable.
    """

    outputs: ColumnMarginals
    head_map: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean of the columns, ``(*batch, n, s)``."""
        return self.outputs.mean @ self.head_map

    def rsample(
        self,
        sampling: str = "marginal",
        sample_shape: torch.Size = torch.Size(),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draws of the outputs, mapped.

        Args:
            sampling: "mean" or "marginal".
            sample_shape: shape of the draws.
            generator: source of randomness; None is torch's global one.

        Returns:
            ``(*sample_shape, *batch, n, s)``.

        Example:
            >>> outputs = ColumnMarginals(torch.ones(3, 2), torch.zeros(3, 2))
            >>> MappedMarginals(outputs, torch.ones(2, 1)).rsample()[0]
            tensor([2.])
        """
        return self.outputs.rsample(sampling, sample_shape, generator) @ self.head_map


class ColumnGaussian(NamedTuple):
    r"""A covariance a column: features times a root of the column's own, plus a residual shared by the columns.

    Attributes:
        mean: ``(*batch, n, s)``.
        features: A, ``(*batch, n, m)``, zero at padded tokens.
        roots: :math:`L_c`, lower triangular, ``(*batch, s, m, m)`` or broadcastable.
        diagonal: diagonal of the residual, ``(*batch, n, s)`` or ``(*batch, n, 1)``, zero at padded tokens.
        residual_root: Cholesky factor of the residual where it is dense, ``(*batch, n, n)``, or None where it is
            diagonal.
    """

    mean: Tensor
    features: Tensor
    roots: Tensor
    diagonal: Tensor
    residual_root: Tensor | None = None

    @property
    def variances(self) -> Tensor:
        """Variance of each token and column, ``(*batch, n, s)``."""
        features, columns, rank = self.features, self.roots.shape[-3], self.roots.shape[-1]
        if self.roots.dim() == 4 and features.dim() >= 3:  # roots that the whole batch shares, a set a head
            explained = column_quadratic_forms(features, self.roots @ self.roots.mT).clamp(min=0.0)
        elif rank <= columns:  # quadratic forms by one product with all products of two features
            products = (features[..., :, None] * features[..., None, :]).flatten(-2)  # (*batch, n, m²)
            explained = (products @ (self.roots @ self.roots.mT).flatten(-2).mT).clamp(min=0.0)
        else:  # all columns' roots side by side
            side_by_side = self.roots.transpose(-3, -2).flatten(-2)  # (*batch, m, s m)
            explained = (features @ side_by_side).unflatten(-1, (columns, rank)).square().sum(-1)
        return explained + self.diagonal

    @property
    def variance(self) -> Tensor:
        """Variance of each token, averaged over its columns, ``(*batch, n)``."""
        return self.variances.mean(-1)

    @property
    def covariance(self) -> Tensor:
        """The dense covariance of each column, ``(*batch, s, n, n)``."""
        projected = self.features[..., None, :, :] @ self.roots
        root = self.residual_root
        residual = torch.diag_embed(self.diagonal.mT) if root is None else (root @ root.mT)[..., None, :, :]
        return projected @ projected.mT + residual

    def rsample(
        self, sampling: str = "joint", sample_shape: torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        r"""Reparametrised draw, :math:`\mu_c + AL_c\epsilon_c + \Sigma_{\text{residual}}^{1/2}\epsilon'_c` (joint).

        Args:
            sampling: "mean", "marginal" or "joint".
            sample_shape: shape of the draws.
            generator: source of randomness; None is torch's global one.

        Returns:
            ``(*sample_shape, *batch, n, s)``.

        Raises:
            ValueError: if ``sampling`` is unknown.

        Example:
            >>> gaussian = ColumnGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(2, 1, 1), torch.ones(3, 1))
            >>> gaussian.rsample("joint").shape
            torch.Size([3, 2])
        """
        check_sampling(sampling)
        if sampling != "joint":
            return ColumnMarginals(self.mean, self.variances).rsample(sampling, sample_shape, generator)
        shape = (*self.mean.shape[:-2], self.mean.shape[-1], self.roots.shape[-1], 1)
        coefficients = self.roots @ standard_normal(self.mean.new_empty(()).expand(shape), sample_shape, generator)
        low_rank = self.features @ coefficients[..., 0].mT  # (*sample_shape, *batch, n, s)
        epsilon = standard_normal(self.mean, sample_shape, generator)
        if self.residual_root is None:
            return self.mean + low_rank + safe_sqrt(self.diagonal) * epsilon
        return self.mean + low_rank + self.residual_root @ epsilon
