"""Exact regression of many outputs by few processes: the observations at an input enter by weighted sums of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel
from linear_operator import to_dense
from torch import Tensor

from cgp.kernels.base_kernels import base_gram
from cgp.kernels.process_rows import process_numbers, rows_of
from cgp.regression.covariances.rows import has_common_inputs
from cgp.regression.solvers.row_compression import (
    CompressedPosterior,
    CompressedRows,
    compress_rows,
    compressed_log_evidence,
)

from .choice import Cost, Problem, beyond_exact
from .model import Moments, RegressionModel

__all__ = ["CompressedCorrelatedGPRegression"]

_ENTRIES = 2**25  # of right-hand sides that are solved for at a time


class CompressedCorrelatedGPRegression(RegressionModel):
    r"""Exact regression by R processes, with the numbers of :class:`CorrelatedGPRegression` of the same covariance.

    .. math:: y_i = m_{p_i} + \lambda_{p_i}^\top f(x_i) + \epsilon_i, \qquad f_r \sim GP(0, \kappa^{(r)})

    Time O(N³ R³) and memory O(N² R²) for N distinct inputs, whatever the number of outputs is, with any gaps.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes, covar_module, likelihood, mean_module: those of :class:`CorrelatedGPRegression`; the default of
            ``covar_module`` cannot be compressed.

    Raises:
        ValueError: if the data are not finite, shapes do not fit, or outputs have lengthscales or shifts of their own.

    Source:
        Bruinsma et al. (2020), Scalable exact inference in multi-output Gaussian processes.

    Example:
        >>> from cgp.regression import factor_covariance
        >>> inputs = torch.linspace(0, 1, 5, dtype=torch.float64)
        >>> x = torch.cartesian_prod(inputs, torch.arange(8, dtype=torch.float64))
        >>> model = CompressedCorrelatedGPRegression(x, x[:, 0].sin(), covar_module=factor_covariance(8, 1, 2)).eval()
        >>> model(x[:3]).mean.shape
        torch.Size([3])
    """

    name = "compressed"

    @classmethod
    def refusal(cls, covariance: AdditiveKernel) -> str | None:
        """Refuse lengthscales or shifts of outputs' own."""
        common = all(has_common_inputs(component) for component in covariance.kernels)
        return None if common else "expected one set of lengthscales and no shifts for all outputs"

    @classmethod
    def obstacle(cls, problem: Problem) -> str | None:
        """Refuse inducing inputs, too many inputs times processes, and what :meth:`refusal` names."""
        size = problem.num_inputs * _num_latents(problem.covariance)
        return beyond_exact(problem, size, " inputs times processes") or cls.refusal(problem.covariance)

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Cubic in inputs times processes."""
        size = float(problem.num_inputs * _num_latents(problem.covariance))
        entries = 12.0 * size**2 + 4.0 * problem.num_observations
        return Cost(3e-3 + 6.5e-8 * size**2 + 3e-11 * size**3, 8.0 * entries)

    def condition(self) -> CompressedPosterior:
        """The factored information of the observations, shared by all predictions and passed to them."""
        posterior = CompressedPosterior(self._grams(), self._compressed())
        _ = posterior.weights
        return posterior

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, ``(*batch,)``."""
        return compressed_log_evidence(self._grams(), self._compressed())

    def leave_one_out(self) -> Moments:
        r"""Mean and variance of every observation given all others, with fixed parameters.

        .. math:: [(K+\Sigma)^{-1}]_{ii} = \sigma_i^{-2} - \sigma_i^{-4}\operatorname{Var}z_i, \qquad
            [(K+\Sigma)^{-1}r]_i = \sigma_i^{-2}(r_i - \operatorname E z_i)

        Returns:
            ``(*batch, n)`` each, noise included.
        """
        noise, residual = self.noise(), self.residual()
        posterior = self._marginals(self.train_inputs[0], self.condition())
        variance = (noise.reciprocal() - posterior.variance / noise.square()).reciprocal()
        return Moments(self.train_targets - (residual - posterior.mean) / noise * variance, variance)

    def _marginals(self, x: Tensor, condition: CompressedPosterior) -> Moments:
        inputs, place = _distinct(x)
        loadings, means, variances = self._loadings(x), [], []
        for some in inputs.split(max(_ENTRIES // condition.factor[..., 0].numel(), 1), dim=-2):
            cross = self._grams(some)
            means.append(condition.means(cross))
            variances.append(condition.covariances(cross, self._variances(some)))
        mean, covariance = torch.cat(means, dim=-2), torch.cat(variances, dim=-3)
        mean, covariance = mean.index_select(-2, place), covariance.index_select(-3, place)
        spread = torch.einsum("...ir,...irs,...is->...i", loadings, covariance, loadings)
        return Moments((loadings * mean).sum(-1), spread.clamp(min=0.0))

    def _joint(self, x: Tensor, condition: CompressedPosterior) -> tuple[Tensor, Tensor]:
        loadings, cross = self._loadings(x), self._grams(x[..., :-1])
        whitened = condition.whitened(cross, loadings)
        prior = torch.stack([one.gram(one.points(x)) for one in self.covar_module.kernels]).sum(0)
        return (loadings * condition.means(cross)).sum(-1), prior - whitened.mT @ whitened

    def _compressed(self) -> CompressedRows:
        x = self.train_inputs[0]
        return compress_rows(self._loadings(x), self.noise(), self.residual(), self._rows[1], len(self._rows[0]))

    def _grams(self, x: Tensor | None = None) -> Tensor:
        """Covariances of all processes at inputs ``(*batch, T, d)`` with those of the observations, or among these."""
        grams = []
        for component in self.covar_module.kernels:
            scales = component.input_maps.scales.unsqueeze(-2)
            known = self._rows[0] * scales
            gram = base_gram(component.base_kernel, known if x is None else x * scales, known)
            grams += [gram] * component.loadings().shape[-1]
        return torch.stack(grams, dim=-3)

    def _variances(self, x: Tensor) -> Tensor:
        """Prior variances of all processes at inputs ``(*batch, T, d)``, ``(*batch, R, T)``."""
        variances = []
        for component in self.covar_module.kernels:
            each = to_dense(component.base_kernel(x * component.input_maps.scales.unsqueeze(-2), diag=True))
            variances += [each] * component.loadings().shape[-1]
        return torch.stack(variances, dim=-2)

    def _loadings(self, x: Tensor) -> Tensor:
        """Weights of all processes in the output of each row, ``(*batch, n, R)``."""
        loadings = torch.cat([component.loadings() for component in self.covar_module.kernels], dim=-1)
        return rows_of(loadings, process_numbers(x, self.num_processes))

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """The distinct inputs ``(N, d)`` of the observations, and which of them each is at."""
        return _distinct(self.train_inputs[0])

    def set_train_data(self, inputs: Any = None, targets: Any = None, strict: bool = True) -> None:
        """GPyTorch's; what was computed from the former inputs is forgotten."""
        super().set_train_data(inputs, targets, strict)
        self.__dict__.pop("_rows", None)


def _num_latents(covariance: AdditiveKernel) -> int:
    """R, the processes of all components together."""
    return sum(component.loadings().shape[-1] for component in covariance.kernels)


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct inputs of rows ``(n, d + 1)``, and the number of each row's; in a batch every row has its own."""
    inputs = x[..., :-1]
    if x.dim() > 2 or x.requires_grad:
        return inputs, torch.arange(x.shape[-2], device=x.device)
    distinct, place = inputs.unique(dim=0, return_inverse=True)
    return distinct, place
