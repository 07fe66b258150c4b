"""What keeps linear_operator exact: above 800 rows its defaults turn to Lanczos and conjugate gradients."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

__all__ = ["ExactLinearOperator", "check_positive", "safe_sqrt"]


class ExactLinearOperator(LinearOperator):
    """A covariance whose solves, determinants, roots and eigenvalues are exact at every size."""

    def _choose_root_method(self) -> str:
        return "cholesky"

    def evaluate_kernel(self) -> LinearOperator:
        """There is no lazy kernel inside: the operator itself, with the factors that it has already computed."""
        return self

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        r"""Quadratic form of the inverse, :math:`\operatorname{diag}(B^\top A^{-1} B)` or its sum.

        Args:
            inv_quad_rhs: B, ``(*batch, n, k)``.
            reduce_inv_quad: whether to sum over the columns.

        Returns:
            ``(*batch,)``, or ``(*batch, k)``.
        """
        return self.inv_quad_logdet(inv_quad_rhs, logdet=False, reduce_inv_quad=reduce_inv_quad)[0]

    def logdet(self) -> Tensor:
        """Log-determinant, ``(*batch,)``."""
        return self.inv_quad_logdet(None, logdet=True)[1]

    def diagonalization(self, method: str | None = None) -> Any:
        """Eigenvalues and eigenvectors.

        Args:
            method: "symeig" (default) or "lanczos".

        Returns:
            Eigenvalues ``(*batch, n)`` and eigenvectors ``(*batch, n, n)``.
        """
        return super().diagonalization(method or "symeig")


def safe_sqrt(variance: Tensor) -> Tensor:
    """Square root whose gradient is zero, not infinite, at zero variance (padded tokens, interpolated ones).

    Args:
        variance: not negative.

    Returns:
        The standard deviation.
    """
    positive = variance > 0
    return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def check_positive(variance: Tensor) -> None:
    """Refuse the inverse or determinant of a covariance that is singular by construction.

    Args:
        variance: the variances that must be positive.

    Raises:
        ValueError: if one is not.
    """
    wrong = ~(variance > 0)
    if wrong.any():
        raise ValueError(
            f"covariance: a density or a solve needs positive variances, {int(wrong.sum())} of {wrong.numel()} are not "
            "(padded tokens have none): add noise, or use the posterior's own log_prob, which leaves out padding"
        )
