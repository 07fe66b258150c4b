"""Exact regression with correlated processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.functional.correlated import ExactPosterior, ObservedKeys

from .covariance import dense_covariance, prior_variance
from .model import Moments, RegressionModel

__all__ = ["CorrelatedGPRegression", "dense_log_evidence"]

_ENTRIES = 2**26  # of the covariance of rows and observations at a time


class CorrelatedGPRegression(RegressionModel):
    r"""Exact regression: P processes, each a weighted sum of mapped copies of one canonical process.

    .. math::
        y_i = m_{p_i} + z_{p_i}(x_i) + \epsilon_i, \qquad
        \operatorname{Cov}[z_p(x), z_r(x')] = a_p^\top a_r\,\kappa(x \odot w_p + b_p,\; x' \odot w_r + b_r)

    Time O(n³), memory O(n²), always by Cholesky. Rows, arguments and what a call gives are those of
    :class:`~cgp.regression.model.RegressionModel`.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: P; None counts them in ``train_inputs``.
        covar_module: what :func:`correlated_covariance` gives for P and d; None is its default, started at the
            correlations of neighbouring observations.
        likelihood: the noise; None is a :class:`ProcessGaussianLikelihood`.
        mean_module: of rows; None is a constant for each process.

    Raises:
        ValueError: if the data are not finite, shapes do not fit, or an argument is out of range.

    Source:
        CGPT equations (13)-(16); Rasmussen & Williams (2006), equations (2.25), (2.26), (2.30).

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]], dtype=torch.float64)
        >>> model = CorrelatedGPRegression(x, torch.tensor([1.0, 2.0, 0.3], dtype=torch.float64)).eval()
        >>> model(torch.tensor([[0.7, 1.0]], dtype=torch.float64)).mean.shape
        torch.Size([1])
    """

    def condition(self) -> ObservedKeys:
        """Factor the observations: what all predictions share, to be handed to them."""
        K = dense_covariance(self.covar_module, self.train_inputs[0])
        keys = ObservedKeys(K, noise=self.noise(), targets=self.residual().unsqueeze(-1))
        _ = keys.factor, keys.whitened_targets  # computed here and now, and kept
        return keys

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, ``(*batch,)``."""
        K = dense_covariance(self.covar_module, self.train_inputs[0])
        return dense_log_evidence(K + torch.diag_embed(self.noise()), self.residual())

    def leave_one_out(self) -> Moments:
        r"""Mean and variance of every observation given all others, the parameters staying as they are.

        .. math:: \mu_{-i} = y_i - \frac{[(K+\Sigma)^{-1}r]_i}{[(K+\Sigma)^{-1}]_{ii}}, \qquad
            v_{-i} = \frac1{[(K+\Sigma)^{-1}]_{ii}}

        Returns:
            ``(*batch, n)`` each, noise included.

        Source:
            Rasmussen & Williams (2006), equation (5.12).
        """
        keys = self.condition()
        weights = torch.linalg.solve_triangular(keys.factor.mT, keys.whitened_targets, upper=True)
        variance = torch.cholesky_inverse(keys.factor).diagonal(dim1=-2, dim2=-1).reciprocal()
        return Moments(self.train_targets - weights.squeeze(-1) * variance, variance)

    def _marginals(self, x: Tensor, condition: ObservedKeys) -> Moments:
        size = max(_ENTRIES // condition.factor[..., 0].numel(), 1)
        parts = [self._posterior(rows, condition) for rows in x.split(size, dim=-2)]
        mean = torch.cat([part.mean.squeeze(-1) for part in parts], dim=-1)
        return Moments(mean, torch.cat([part.variance for part in parts], dim=-1))

    def _joint(self, x: Tensor, condition: ObservedKeys) -> tuple[Tensor, Tensor]:
        posterior = self._posterior(x, condition)
        return posterior.mean.squeeze(-1), posterior.covariance

    def _posterior(self, x: Tensor, condition: ObservedKeys) -> ExactPosterior:
        """The posterior at rows less its mean function, of one column."""
        return ExactPosterior(
            dense_covariance(self.covar_module, x, self.train_inputs[0]),
            condition,
            prior_variance(self.covar_module, x),
            K_q=lambda: dense_covariance(self.covar_module, x),
        )


def dense_log_evidence(covariance: Tensor, residual: Tensor) -> Tensor:
    r"""Log marginal likelihood from :math:`K + \Sigma` and r, with its gradient in closed form.

    .. math:: \frac{\partial}{\partial K} = \tfrac12\big(\alpha\alpha^\top - (K+\Sigma)^{-1}\big), \qquad
        \alpha = (K+\Sigma)^{-1}r

    Differentiating through the factor instead costs several times more.

    Args:
        covariance: of the observations, noise included, ``(*batch, n, n)``.
        residual: the observations less their mean, ``(*batch, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Source:
        Rasmussen & Williams (2006), equation (5.9).
    """
    return _Evidence.apply(covariance, residual)


class _Evidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, covariance: Tensor, residual: Tensor) -> Tensor:
        keys = ObservedKeys(covariance, noise=0.0, targets=residual.unsqueeze(-1))
        ctx.save_for_backward(keys.factor, keys.whitened_targets)
        return keys.log_evidence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        factor, whitened = ctx.saved_tensors
        weights = torch.linalg.solve_triangular(factor.mT, whitened, upper=True)
        slope = weights @ weights.mT - torch.cholesky_inverse(factor)
        return 0.5 * gradient[..., None, None] * slope, -gradient.unsqueeze(-1) * weights.squeeze(-1)
