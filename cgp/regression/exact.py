"""Exact regression with correlated processes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import ProcessRegression
from .covariance import dense_covariance, prior_variance
from .posteriors import ExactCondition, Moments, exact_condition, exact_covariance, exact_evidence, exact_moments

__all__ = ["CorrelatedGPRegression"]


class CorrelatedGPRegression(ProcessRegression):
    r"""Exact regression: P processes, each an affine map and scale of one canonical process.

    .. math::
        y_i = m_{p_i} + z_{p_i}(x_i) + \epsilon_i, \qquad
        \operatorname{Cov}[z_p(x), z_r(x')] = \sigma_p\sigma_r\,\kappa(xW_p^\top + b_p,\; x'W_r^\top + b_r)

    Every row is an input and the number of the process that is observed there, so that processes may be observed at
    inputs of their own, or not at all; every process can be predicted anywhere from all the rows. Time O(n³), memory
    O(n²), always by Cholesky.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.
        **covariance: for :func:`cgp.regression.correlated_covariance`.

    Note:
        Means, scales and lengthscales start, and have priors, for inputs and outputs of unit variance.

    Source:
        CGPT equations (13)-(16); Rasmussen & Williams (2006), equations (2.25), (2.26), (2.30).

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]], dtype=torch.float64)
        >>> model = CorrelatedGPRegression(x, torch.tensor([1.0, 2.0, 0.3], dtype=torch.float64)).eval()
        >>> model(torch.tensor([[0.7, 1.0]], dtype=torch.float64)).mean.shape
        torch.Size([1])
    """

    def condition(self) -> ExactCondition:
        """Factor the observations, O(n³).

        Returns:
            To be handed to :meth:`moments` and :meth:`posterior`.
        """
        x = self.train_inputs[0]
        return exact_condition(dense_covariance(self.sum_kernel, x), self.noise(), self.residual())

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats.

        Returns:
            ``(*batch,)``.
        """
        covariance = dense_covariance(self.sum_kernel, self.train_inputs[0])
        return exact_evidence(covariance, self.noise(), self.residual())

    def _moments(self, x: Tensor, condition: Any) -> Moments:
        cross = dense_covariance(self.sum_kernel, self.train_inputs[0], x)
        return exact_moments(condition, cross, prior_variance(self.sum_kernel, x))

    def _joint(self, x: Tensor, condition: Any) -> tuple[Tensor, Tensor]:
        cross = dense_covariance(self.sum_kernel, self.train_inputs[0], x)
        covariance = exact_covariance(condition, cross, dense_covariance(self.sum_kernel, x))
        return exact_moments(condition, cross, prior_variance(self.sum_kernel, x)).mean, covariance
