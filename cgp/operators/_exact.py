"""Exact linear operators: above 800 rows linear_operator's defaults use Lanczos and conjugate gradients."""

from __future__ import annotations

from typing import Any

from linear_operator import LinearOperator
from torch import Tensor

__all__ = ["ExactLinearOperator", "check_positive"]


class ExactLinearOperator(LinearOperator):
    """A covariance whose solves, determinants, roots and eigenvalues are exact at every size."""

    def _choose_root_method(self) -> str:
        return "cholesky"

    def evaluate_kernel(self) -> LinearOperator:
        """Return the operator itself, with its cached factors: it contains no lazy kernel."""
        return self

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        r"""Quadratic form of the inverse, :math:`\operatorname{diag}(B^\top A^{-1} B)` or its sum."""
        return self.inv_quad_logdet(inv_quad_rhs, logdet=False, reduce_inv_quad=reduce_inv_quad)[0]

    def logdet(self) -> Tensor:
        """Log-determinant, ``(*batch,)``."""
        return self.inv_quad_logdet(None, logdet=True)[1]

    def diagonalization(self, method: str | None = None) -> Any:
        """Eigenvalues and eigenvectors, by a dense decomposition unless ``method`` names another."""
        return super().diagonalization(method or "symeig")


def check_positive(variance: Tensor) -> None:
    """Raise ValueError before inverting a covariance that is singular because a variance is zero."""
    wrong = ~(variance > 0)
    if wrong.any():
        raise ValueError(
            f"covariance: a density or a solve needs positive variances, {int(wrong.sum())} of {wrong.numel()} are not "
            "(padded tokens have none): add noise, or use the posterior's own log_prob, which leaves out padding"
        )
