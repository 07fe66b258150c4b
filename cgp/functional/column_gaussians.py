r"""Gaussian posteriors over tokens whose columns have covariances of their own.

The columns c of ``mean`` (\*batch, n, s) are independent Gaussian vectors over the n tokens; they share features and a
residual, and differ in a small root:

.. math:: \Sigma_c = A\,L_cL_c^\top A^\top + \Sigma_{\text{residual}}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .gaussians import Gaussian, safe_sqrt
from .noise import standard_normal
from .products import column_quadratic_forms

__all__ = ["ColumnGaussian"]


@dataclass(eq=False)
class ColumnGaussian(Gaussian):
    r"""One covariance per column: features times the column's own root, plus a residual that all columns share.

    Attributes:
        mean: ``(*batch, n, s)``.
        features: A, ``(*batch, n, m)``, zero at padded tokens.
        roots: :math:`L_c`, lower triangular, ``(*batch, s, m, m)`` or broadcastable.
        diagonal: diagonal of the residual, ``(*batch, n, 1)`` or ``(*batch, n, s)``, zero at padded tokens, or None.
        residual_root: builds the Cholesky factor of a dense residual, ``(*batch, n, n)``; None where it is diagonal.
        loss: builds the term that training adds, ``(*batch,)``; None where there is none.

    Example:
        >>> gaussian = ColumnGaussian(torch.zeros(3, 2), torch.ones(3, 1), torch.ones(2, 1, 1), torch.ones(3, 1))
        >>> gaussian.rsample("joint").shape, gaussian.variances[0]
        (torch.Size([3, 2]), tensor([2., 2.]))
    """

    mean: Tensor
    features: Tensor
    roots: Tensor
    diagonal: Tensor | None = None
    residual_root: Callable[[], Tensor] | None = None
    loss: Callable[[], Tensor] | None = None

    @property
    def variances(self) -> Tensor:
        """Variance of each token and column, ``(*batch, n, s)``."""
        if self.roots.dim() == 4 and self.features.dim() >= 3:  # one set of roots per head, shared by the batch
            explained = column_quadratic_forms(self.features, self.roots @ self.roots.mT).clamp(min=0.0)
        else:
            side_by_side = self.features @ self.roots.transpose(-3, -2).flatten(-2)  # (*batch, n, s m)
            explained = side_by_side.unflatten(-1, self.roots.shape[-3::2]).square().sum(-1)
        return explained if self.diagonal is None else explained + self.diagonal

    @property
    def variance(self) -> Tensor:
        """Variance of each token, averaged over its columns, ``(*batch, n)``."""
        return self.variances.mean(-1)

    @property
    def covariance(self) -> Tensor:
        """Dense covariance of each column, ``(*batch, s, n, n)``."""
        projected = self.features[..., None, :, :] @ self.roots
        covariance = projected @ projected.mT
        if self.residual_root is not None:
            root = self.residual_root()
            return covariance + (root @ root.mT)[..., None, :, :]
        return covariance if self.diagonal is None else covariance + torch.diag_embed(self.diagonal.mT)

    def joint(self) -> Self:  # type: ignore[override]
        """This Gaussian."""
        return self

    def _column_variances(self) -> Tensor:
        return self.variances

    def _joint_draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        r"""Draws :math:`\mu_c + AL_c\epsilon_c + \Sigma_{\text{residual}}^{1/2}\epsilon'_c`."""
        draw = self.mean + self.features @ self.coefficients(sample_shape, generator)
        if self.residual_root is None and self.diagonal is None:
            return draw
        epsilon = standard_normal(self.mean, sample_shape, generator)
        if self.residual_root is not None:
            return draw + self.residual_root() @ epsilon
        assert self.diagonal is not None
        return torch.addcmul(draw, safe_sqrt(self.diagonal), epsilon)

    def coefficients(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        r"""Draws of what the features are multiplied with, :math:`L_c\epsilon_c`, ``(*sample_shape, *batch, m, s)``."""
        batch, (*own, columns, rank, _), like = self.features.shape[:-2], self.roots.shape, self.features.new_empty(())
        if len(own) == 1 and batch:  # one product per head and column for the whole batch
            leading = torch.Size((*sample_shape, *batch[:-1]))
            epsilon = standard_normal(like.expand(*own, columns, rank, leading.numel()), (), generator)
            return (self.roots @ epsilon).movedim(-1, 0).reshape(*leading, *own, columns, rank).mT
        epsilon = standard_normal(like.expand(*batch, columns, rank, 1), sample_shape, generator)
        return (self.roots @ epsilon)[..., 0].mT
