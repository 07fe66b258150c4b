"""Low-rank correlated kernels: inducing inputs in the canonical space, one set for all the processes."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models.exact_prediction_strategies import SGPRPredictionStrategy
from linear_operator import LinearOperator
from linear_operator.operators import (
    DiagLinearOperator,
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
)
from torch import Tensor, nn

from cgp.functional.linalg import cholesky, solve_lower

from ._batching import BatchIndexedKernel
from .canonical_kernel import CanonicalKernel, CanonicalPoints, scaled_diagonal, scaled_gram

__all__ = ["CONDITIONALS", "CanonicalInducingKernel"]

CONDITIONALS = ("dtc", "fitc", "sor")


class CanonicalInducingKernel(BatchIndexedKernel):
    r"""A low-rank covariance through inducing values of the canonical process.

    .. math:: Q(x, x') = K_{xm} K_{mm}^{-1} K_{mx'}, \qquad K_{xm} = \sigma(x)\,\kappa(z(x), S)

    One set of m inducing inputs S in the canonical space serves every process. In an ``ExactGP`` the marginal
    likelihood and the prediction cost O(n m²): with ``"sor"`` the covariance is Q throughout; with ``"dtc"`` it is Q
    for the observations and keeps the prior variance at the predictions (their covariance is Q plus the diagonal that
    is missing); with ``"fitc"`` the diagonal is added for the observations, too. As in GPyTorch's
    ``InducingPointKernel``, train and eval mode tell a ``"dtc"`` kernel which of the two it is asked for; unlike
    there, prediction uses the training covariance that was fitted.

    Args:
        kernel: the kernel to approximate, whose parameters are shared.
        inducing_points: S, the first ones, ``(*batch, m, s)``; they are learned.
        conditional: "dtc", "fitc" or "sor".

    Raises:
        ValueError: if ``conditional`` is unknown or the inducing inputs are no matrix.

    Note:
        Quiñonero-Candela & Rasmussen (2005), sections 4-6; CGPT equations (30)-(35).

    Example:
        >>> from cgp.kernels import CorrelatedKernel
        >>> kernel = CanonicalInducingKernel(CorrelatedKernel("rbf", 2, 3).process("key"), torch.randn(4, 3))
        >>> kernel(torch.randn(10, 3)).evaluate_kernel().root.shape
        torch.Size([10, 4])
    """

    def __init__(self, kernel: CanonicalKernel, inducing_points: Tensor, *, conditional: str = "dtc") -> None:
        super().__init__(batch_shape=inducing_points.shape[:-2])
        if conditional not in CONDITIONALS:
            raise ValueError(f"conditional: expected one of {CONDITIONALS}, got {conditional!r}")
        if inducing_points.dim() < 2:
            raise ValueError(f"inducing_points: expected (*batch, m, s), got shape {tuple(inducing_points.shape)}")
        self.kernel = kernel
        self.conditional = conditional
        self.register_parameter("inducing_points", nn.Parameter(inducing_points.clone()))
        if kernel.active_dims is not None:
            self.active_dims = kernel.active_dims

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> LinearOperator | Tensor:
        """The low-rank covariance of ``x1`` with ``x2``, with its diagonal corrected where the conditional asks for it.

        Args:
            x1: ``(*batch, n, d)``.
            x2: ``(*batch, n', d)``.
            diag: only the pairs (i, i).
            **params: ignored.

        Returns:
            ``(*batch, n, n')``, or ``(*batch, n)`` with ``diag``.
        """
        factor = self._factor()
        left = self.kernel.points(x1)
        root = self._root(left, factor)
        if not torch.equal(x1, x2):
            other = self._root(self.kernel.points(x2), factor)
            return (root * other).sum(-1) if diag else MatmulLinearOperator(root, other.mT)
        if not self._keeps_variance():
            return root.square().sum(-1) if diag else LowRankRootLinearOperator(root)
        prior = scaled_diagonal(self.kernel.base_kernel, left)
        if diag:
            return prior
        # The difference is not negative but for rounding, which is what is cut.
        missing = (prior - root.square().sum(-1)).clamp(min=0.0)
        return LowRankRootAddedDiagLinearOperator(LowRankRootLinearOperator(root), DiagLinearOperator(missing))

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """As the kernel that is approximated.

        Args:
            x1: inputs.
            x2: inputs.

        Returns:
            The number of rows for each input.
        """
        return self.kernel.num_outputs_per_input(x1, x2)

    def prediction_strategy(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: GaussianLikelihood,
    ) -> SGPRPredictionStrategy:
        """Prediction by Woodbury's identity.

        Args:
            train_inputs: inputs of the observations.
            train_prior_dist: their prior.
            train_labels: the observations.
            likelihood: their noise.

        Returns:
            GPyTorch's strategy for low-rank kernels, with the covariance of the observations that was fitted.
        """
        if self.conditional != "fitc":
            covariance = _without_diagonal(train_prior_dist.lazy_covariance_matrix.evaluate_kernel())
            train_prior_dist = type(train_prior_dist)(train_prior_dist.mean, covariance)
        return _InducingPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _keeps_variance(self) -> bool:
        return self.conditional == "fitc" or (self.conditional == "dtc" and not self.training)

    def _factor(self) -> Tensor:
        """Cholesky factor of the inducing covariance, ``(*batch, m, m)``."""
        return cholesky(scaled_gram(self.kernel.base_kernel, self._inducing()), name="inducing covariance")

    def _root(self, points: CanonicalPoints, factor: Tensor) -> Tensor:
        r""":math:`K_{xm} L^{-\top}`, ``(*batch, n, m)``."""
        return solve_lower(factor, scaled_gram(self.kernel.base_kernel, self._inducing(), points)).mT

    def _inducing(self) -> CanonicalPoints:
        return CanonicalPoints(self.inducing_points, torch.ones_like(self.inducing_points[..., 0]))


class _InducingPredictionStrategy(SGPRPredictionStrategy):
    """GPyTorch's, with observations and predictions at the same inputs kept apart."""

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: LinearOperator, test_train_covar: LinearOperator
    ) -> tuple[Tensor, LinearOperator]:
        # Predicting at the observed inputs, the kernel sees one set twice; the missing diagonal is not shared by the
        # two.
        cross = _without_diagonal(test_train_covar)
        if isinstance(cross, LowRankRootLinearOperator):
            cross = MatmulLinearOperator(cross.root, cross.root.mT)
        return super().exact_prediction(test_mean, test_test_covar, cross)


def _without_diagonal(covariance: LinearOperator) -> LinearOperator:
    if isinstance(covariance, LowRankRootAddedDiagLinearOperator):
        return covariance._linear_op
    return covariance
