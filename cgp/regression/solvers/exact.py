"""Exact regression with correlated processes, and evidences with gradients in closed form."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.functional.gaussians import log_normal
from cgp.functional.linalg import cholesky, differentiable_once, log_determinant, solve_lower
from cgp.regression.covariances.rows import (
    dense_covariance,
    grid_covariances,
    has_common_inputs,
    is_independent,
    prior_variance,
)
from cgp.regression.observations import Grid

from .choice import Cost, Problem, beyond_exact
from .model import Moments, RegressionModel

__all__ = ["CorrelatedGPRegression", "dense_log_evidence", "mixed_log_evidence", "mixed_places"]

_ENTRIES = 2**26  # of the covariance of rows and observations at a time
_SPARSE = 2.0  # cells of a table for each observation, beyond which it is none


class CorrelatedGPRegression(RegressionModel):
    r"""Exact regression: P processes, each a weighted sum of mapped copies of one canonical process.

    .. math::
        y_i = m_{p_i} + z_{p_i}(x_i) + \epsilon_i, \qquad
        \operatorname{Cov}[z_p(x), z_r(x')] = a_p^\top a_r\,\kappa(x \odot w_p + b_p,\; x' \odot w_r + b_r)

    Time O(n³), memory O(n²), always by Cholesky. Rows and the result of a call are as in
    :class:`~cgp.regression.solvers.model.RegressionModel`.

    Args:
        train_inputs: ``(n, d + 1)``, the last column 0 … P-1.
        train_targets: ``(n,)``.
        num_processes: number P of processes; None counts them in ``train_inputs``.
        covar_module: a covariance of :func:`correlated_covariance` for P and d; None is its default, initialised by the
            correlations of neighbouring observations.
        likelihood: likelihood with the noise; None is a :class:`ProcessGaussianLikelihood`.
        mean_module: mean function of rows; None is a constant for each process.

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

    name = "exact"

    @classmethod
    def obstacle(cls, problem: Problem) -> str | None:
        """Refuse too many observations."""
        return beyond_exact(problem.num_observations)

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Cubic in the observations; outputs that are independent are factored one by one."""
        # The figures of all solvers are measured: docs/notes/regression.md, "Linear time", "What is expected of a fit".
        n, kernels = float(problem.num_observations), problem.covariance.kernels
        blocks = kernels[0].num_processes if all(is_independent(component) for component in kernels) else 1
        seconds = 2e-3 + 1e-3 * blocks + 1.5e-8 * len(kernels) * n**2 / blocks + 3.5e-11 * n**3 / blocks**2
        return Cost(seconds, 8.0 * n**2 * (4.6 + 2.8 * len(kernels)))

    def condition(self) -> ObservedKeys:
        """The Cholesky factor of the observations, shared by all predictions and passed to them."""
        K = dense_covariance(self.covar_module, self.train_inputs[0])
        keys = ObservedKeys(K, noise=self.noise(), targets=self.residual().unsqueeze(-1))
        _ = keys.factor, keys.whitened_targets  # computed now, and kept
        return keys

    def held_entries(self) -> int:
        """Entries of the factors."""
        return self.train_targets.numel() * self.train_targets.shape[-1]

    def log_evidence(self) -> Tensor:
        """The log marginal likelihood in nats, ``(*batch,)``."""
        if self._rows_of_outputs is not None:
            return self._sum_of_evidences(self._rows_of_outputs)
        if self._cells is not None:
            inputs, places = self._cells
            grams, mixing = grid_covariances(self.covar_module, inputs)
            return mixed_log_evidence(grams, mixing, self.noise(), self.residual(), places)
        K = dense_covariance(self.covar_module, self.train_inputs[0])
        return dense_log_evidence(K + torch.diag_embed(self.noise()), self.residual())

    def _sum_of_evidences(self, parts: list[Tensor]) -> Tensor:
        noise, residual, terms = self.noise(), self.residual(), []
        for rows in parts:
            K = dense_covariance(self.covar_module, self.train_inputs[0][rows])
            terms.append(dense_log_evidence(K + torch.diag_embed(noise[..., rows]), residual[..., rows]))
        return torch.stack(terms).sum(0)

    @cached_property
    def _rows_of_outputs(self) -> list[Tensor] | None:
        """The observations of each output, where they are independent and factored each by itself; else None."""
        rows, kernels = self.train_inputs[0], self.covar_module.kernels
        if rows.dim() > 2 or self.num_processes == 1 or not all(is_independent(component) for component in kernels):
            return None
        numbers = rows[:, -1]
        return [(numbers == p).nonzero()[:, 0] for p in range(self.num_processes) if (numbers == p).any()]

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor] | None:
        """The inputs of a grid of all outputs, and the observations' places there.

        A canonical covariance is computed once for all pairs of outputs there. None where outputs have lengthscales or
        shifts of their own, and where the grid were mostly empty.
        """
        rows, outputs = self.train_inputs[0], self.num_processes
        common = all(has_common_inputs(component) for component in self.covar_module.kernels)
        if rows.dim() > 2 or outputs == 1 or not common:
            return None
        grid = Grid.of_repeated(rows)
        if outputs * len(grid.inputs) > _SPARSE * len(grid.places):
            return None
        return grid.inputs, mixed_places(grid.places, grid.outputs, (outputs, len(grid.inputs)))

    def set_train_data(self, inputs: Any = None, targets: Any = None, strict: bool = True) -> None:
        """Set the data as in GPyTorch; results computed from the previous inputs are discarded."""
        super().set_train_data(inputs, targets, strict)
        self._forget(self.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        """The state without large tensors that can be recomputed."""
        return self._forget(dict(self.__dict__))

    @staticmethod
    def _forget(state: dict[str, Any]) -> dict[str, Any]:
        for name in ("_cells", "_rows_of_outputs"):
            state.pop(name, None)
        return state

    def leave_one_out(self) -> Moments:
        r"""Mean and variance of every observation given all others, with fixed parameters.

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
        """The posterior at rows minus its mean function, of one column."""
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

    Raises:
        NotPositiveDefiniteError: if the covariance cannot be factored.

    Source:
        Rasmussen & Williams (2006), equation (5.9).

    Example:
        >>> dense_log_evidence(torch.eye(1), torch.zeros(1))
        tensor(-0.9189)
    """
    return _Dense.apply(covariance, residual, covariance[..., 0, 0].clone())


def mixed_places(inputs: Tensor, outputs: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Where the covariances of observations are among those of all pairs of outputs and of inputs.

    Args:
        inputs: which of T inputs each observation is at, ``(n,)``.
        outputs: which of P outputs it is of, ``(n,)``; no two are of one output at one input.
        sizes: (P, T).

    Returns:
        ``(n, n)``, places in a tensor ``(P, P, T, T)`` that is laid out in one row.
    """
    count, length = sizes
    return (outputs[:, None] * count + outputs) * length**2 + inputs[:, None] * length + inputs


def mixed_log_evidence(grams: Tensor, mixing: Tensor, noise: Tensor, residual: Tensor, places: Tensor) -> Tensor:
    r"""Log marginal likelihood of some outputs of a mixing model at some inputs, with its gradient in closed form.

    .. math:: K_{(p,t),(r,s)} = \sum_c M^{(c)}_{pr}\,\kappa^{(c)}_{ts}, \qquad
        \frac{\partial}{\partial M^{(c)}_{pr}} = \sum_{ts} G_{(p,t),(r,s)}\,\kappa^{(c)}_{ts}, \qquad
        \frac{\partial}{\partial \kappa^{(c)}_{ts}} = \sum_{pr} G_{(p,t),(r,s)}\,M^{(c)}_{pr}

    G is the gradient by K, zero where nothing was observed. A canonical covariance is computed once for all pairs of
    outputs; time O(n³ + C P² T²).

    Args:
        grams: :math:`\kappa^{(c)}` of T inputs, ``(*batch, C, T, T)``.
        mixing: M, covariances of P outputs, ``(*batch, C, P, P)``.
        noise: variances, ``(*batch, n)``.
        residual: the observations less their mean, ``(*batch, n)``.
        places: of :func:`mixed_places`, ``(n, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Raises:
        NotPositiveDefiniteError: if the covariance cannot be factored.

    Source:
        Álvarez, Rosasco & Lawrence (2012), Kernels for vector-valued functions, section 4, on the model.

    Example:
        >>> one = torch.ones(1, 1, 1)
        >>> mixed_log_evidence(one, one, torch.ones(1), torch.zeros(1), torch.zeros(1, 1).long())
        tensor(-1.2655)
    """
    return _Mixed.apply(grams, mixing, noise, residual, places)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, covariance: Tensor, residual: Tensor, entry: Tensor) -> Tensor:
        value, *kept = _evidence(covariance, residual)
        ctx.like = entry, residual  # an entry, as all of the covariance would be kept
        ctx.save_for_backward(*kept)
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        slope, weights = _slope(*ctx.saved_tensors)
        return slope.mul_(0.5 * gradient[..., None, None]), -gradient.unsqueeze(-1) * weights, None


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grams: Tensor, mixing: Tensor, noise: Tensor, residual: Tensor, places: Tensor) -> Tensor:
        every = (mixing.flatten(-2).mT @ grams.flatten(-2)).flatten(-2)
        covariance = every.index_select(-1, places.flatten()).unflatten(-1, places.shape)
        covariance.diagonal(dim1=-2, dim2=-1).add_(noise)
        value, *kept = _evidence(covariance, residual)
        ctx.save_for_backward(grams, mixing, places, *kept)
        ctx.like = grams, mixing, noise, residual
        return value

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        grams, mixing, places, *kept = ctx.saved_tensors
        slope, weights = _slope(*kept)
        half, batch = 0.5 * gradient, slope.shape[:-2]
        every = slope.new_zeros(*batch, (mixing.shape[-1] * grams.shape[-1]) ** 2)
        every.index_copy_(-1, places.flatten(), slope.flatten(-2))
        pairs = every.unflatten(-1, (mixing.shape[-1] ** 2, -1))
        of_grams = (mixing.flatten(-2) @ pairs).unflatten(-1, grams.shape[-2:]) * half[..., None, None, None]
        of_mixing = (grams.flatten(-2) @ pairs.mT).unflatten(-1, mixing.shape[-2:]) * half[..., None, None, None]
        of_noise = slope.diagonal(dim1=-2, dim2=-1) * half.unsqueeze(-1)
        of_residual = -gradient.unsqueeze(-1) * weights
        slopes = of_grams, of_mixing, of_noise, of_residual
        return *(value.sum_to_size(each.shape) for value, each in zip(slopes, ctx.like, strict=True)), None


def _evidence(covariance: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log marginal likelihood, the factor of the covariance, and the whitened residual ``(*batch, n, 1)``."""
    factor = cholesky(covariance, name="K_k + noise", jitter=0.0)
    whitened = solve_lower(factor, residual.unsqueeze(-1))
    value = log_normal(whitened.square().sum((-2, -1)), log_determinant(factor), residual.shape[-1], 1)
    return value, factor, whitened


def _slope(factor: Tensor, whitened: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`\alpha\alpha^\top - (K+\Sigma)^{-1}` and :math:`\alpha`, ``(*batch, n, n)`` and ``(*batch, n)``."""
    weights = torch.linalg.solve_triangular(factor.mT, whitened, upper=True)
    precision = torch.cholesky_inverse(factor).mT  # symmetric, and so in the order of memory that others have
    return precision.neg_().addcmul_(weights, weights.mT), weights.squeeze(-1)
