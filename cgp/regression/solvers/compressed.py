r"""Exact regression of many outputs by few processes: the observations at an input enter by weighted sums of them.

.. math:: y_{np} = \lambda_p^\top f_n + \epsilon_{np}, \qquad f_{\cdot r} \sim N(0, \kappa^{(r)}), \qquad
    J_n = \sum_{p \in O_n} \frac{\lambda_p\lambda_p^\top}{\sigma_{np}^2}, \qquad
    h_n = \sum_{p \in O_n} \frac{\lambda_p\, y_{np}}{\sigma_{np}^2}

The outputs O that were observed in a row enter by J (R, R) and h (R) alone, so that N rows of P outputs cost (N R)³ in
place of (N P)³. With :math:`J_n = C_nC_n^\top` everything is factored in :math:`B = I + C^\top K C`, whose
eigenvalues are at least one; J may be singular, as where fewer than R outputs were observed.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel
from linear_operator import to_dense
from torch import Tensor

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import NotPositiveDefiniteError, cholesky, differentiable_once, solve_lower
from cgp.kernels.base_kernels import base_gram
from cgp.kernels.canonical_kernel import process_numbers, rows_of
from cgp.regression.covariances.rows import has_common_inputs

from .choice import Cost, Problem, beyond_exact
from .model import Moments, RegressionModel

__all__ = [
    "CompressedCorrelatedGPRegression",
    "CompressedPosterior",
    "CompressedRows",
    "compress_rows",
    "compressed_log_evidence",
]

_RANK = 1e-13  # of the largest eigenvalue of J, below which one is rounding
_ENTRIES = 2**25  # of right-hand sides that are solved for at a time


class CompressedCorrelatedGPRegression(RegressionModel):
    r"""Exact regression by R processes, with the numbers of :class:`CorrelatedGPRegression` of the same covariance.

    .. math:: y_i = m_{p_i} + \lambda_{p_i}^\top f(x_i) + \epsilon_i, \qquad f_r \sim GP(0, \kappa^{(r)})

    Time O(N³ R³) and memory O(N² R²) for N distinct inputs, whatever the number of outputs is, with any gaps.

    Arguments are those of :class:`CorrelatedGPRegression`, with a covariance whose outputs have one set of lengthscales
    and no shifts.

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
        """Refuse too many inputs times processes, and what :meth:`refusal` names."""
        size = problem.num_inputs * _num_latents(problem.covariance)
        return beyond_exact(size, " inputs times processes") or cls.refusal(problem.covariance)

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
        return compress_rows(self._loadings(x), self.noise(), self.residual(), self._rows[1], self._rows[0].shape[-2])

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


class CompressedRows(NamedTuple):
    """The information of N rows of observations on R processes.

    Attributes:
        precision: J, ``(*batch, N, R, R)``.
        pull: h, ``(*batch, N, R)``.
        constant: what of the log evidence does not depend on the processes, ``(*batch,)``.
    """

    precision: Tensor
    pull: Tensor
    constant: Tensor


def compress_rows(loadings: Tensor, noise: Tensor, residual: Tensor, rows: Tensor, num_rows: int) -> CompressedRows:
    """Sum over the observations of each row.

    Args:
        loadings: of the output that each observation is of, ``(*batch, n, R)``.
        noise: variances, ``(*batch, n)``.
        residual: the observations less their mean, ``(*batch, n)``.
        rows: which of the N rows each observation is in, ``(n,)``.
        num_rows: N.

    Returns:
        Their sums, with gradients.

    Example:
        >>> compress_rows(torch.ones(2, 1), torch.ones(2), torch.ones(2), torch.zeros(2).long(), 1).precision
        tensor([[[2.]]])
    """
    batch = torch.broadcast_shapes(loadings.shape[:-2], noise.shape[:-1], residual.shape[:-1])
    weighted = loadings / noise.unsqueeze(-1)
    outer = (weighted.unsqueeze(-1) * loadings.unsqueeze(-2)).expand(*batch, *[-1] * 3)
    pulls = (weighted * residual.unsqueeze(-1)).expand(*batch, *[-1] * 2)
    rank = loadings.shape[-1]
    precision = outer.new_zeros(*batch, num_rows, rank, rank).index_add(len(batch), rows, outer)
    pull = pulls.new_zeros(*batch, num_rows, rank).index_add(len(batch), rows, pulls)
    each = residual.square() / noise + noise.log() + math.log(2.0 * math.pi)
    return CompressedRows(precision, pull, -0.5 * each.sum(-1))


def compressed_log_evidence(grams: Tensor, rows: CompressedRows) -> Tensor:
    r"""Log marginal likelihood of compressed rows, with its gradient in closed form.

    .. math:: \log p(y) = c + \tfrac12 h^\top A h - \tfrac12\log|I + KJ|, \qquad A = (K^{-1} + J)^{-1}, \qquad
        \frac{\partial}{\partial K} = \tfrac12\big(\beta\beta^\top - CB^{-1}C^\top\big), \quad
        \frac{\partial}{\partial J} = -\tfrac12\big(mm^\top + A\big), \quad \frac{\partial}{\partial h} = m = K\beta

    Args:
        grams: covariances of each process at the inputs of the rows, ``(*batch, R, N, N)``.
        rows: of :func:`compress_rows`.

    Returns:
        ``(*batch,)``, in nats.

    Raises:
        NotPositiveDefiniteError: if B cannot be factored, or J is not finite.

    Source:
        Bruinsma et al. (2020), Scalable exact inference in multi-output Gaussian processes, section 2.2, on the
        projection of the outputs.

    Example:
        >>> rows = CompressedRows(torch.ones(1, 1, 1), torch.ones(1, 1), torch.tensor(0.0))
        >>> compressed_log_evidence(torch.ones(1, 1, 1), rows)
        tensor(-0.0966)
    """
    return rows.constant + _Evidence.apply(grams, rows.precision, rows.pull)


class CompressedPosterior:
    r"""The processes given compressed rows; everything is computed when it is first asked for, and kept.

    .. math:: \beta = CB^{-1}u, \qquad \operatorname E f_* = K_*\beta, \qquad
        \operatorname{Cov} f_* = K_{**} - K_*CB^{-1}C^\top K_*^\top

    Args:
        grams: as in :func:`compressed_log_evidence`.
        rows: of :func:`compress_rows`.
    """

    def __init__(self, grams: Tensor, rows: CompressedRows) -> None:
        self.roots, self.projected, self.factor = _factored(grams, rows.precision, rows.pull)

    @lazy
    def weights(self) -> Tensor:
        r""":math:`\beta`, ``(*batch, N, R)``."""
        solved = torch.cholesky_solve(self.projected.flatten(-2).unsqueeze(-1), self.factor)
        return (self.roots @ solved.reshape(*self.projected.shape, 1)).squeeze(-1)

    def means(self, cross: Tensor) -> Tensor:
        """Means ``(*batch, T, R)`` of the processes at inputs with covariances ``cross``, ``(*batch, R, T, N)``."""
        return torch.einsum("...rtn,...nr->...tr", cross, self.weights)

    def whitened(self, cross: Tensor, loadings: Tensor | None = None) -> Tensor:
        r""":math:`L_B^{-1}C^\top K_*^\top`, ``(*batch, N R, T, R)``, or of weighted sums of processes.

        Args:
            cross: ``(*batch, R, T, N)``.
            loadings: weights of the processes at each of the T places, ``(*batch, T, R)``; None for each by itself.

        Returns:
            ``(*batch, N R, T, R)``, or ``(*batch, N R, T)``.
        """
        if loadings is None:
            sides = torch.einsum("...nra,...rtn->...natr", self.roots, cross)
        else:
            sides = torch.einsum("...nra,...rtn,...tr->...nat", self.roots, cross, loadings)
        shape = sides.shape[self.factor.dim() :]
        return solve_lower(self.factor, sides.reshape(*self.factor.shape[:-1], -1)).unflatten(-1, shape)

    def covariances(self, cross: Tensor, variances: Tensor) -> Tensor:
        """Covariances ``(*batch, T, R, R)`` of the processes at each input, of variances ``(*batch, R, T)`` before."""
        whitened = self.whitened(cross)
        explained = torch.einsum("...ktr,...kts->...trs", whitened, whitened)
        return torch.diag_embed(variances.mT) - explained


class _Evidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grams: Tensor, precision: Tensor, pull: Tensor) -> Tensor:
        roots, projected, factor = _factored(grams, precision, pull)
        ctx.save_for_backward(grams, roots, projected, factor)
        ctx.like = grams, precision, pull
        u = projected.flatten(-2)
        whitened = solve_lower(factor, u.unsqueeze(-1))
        quadratic = u.square().sum(-1) - whitened.square().sum((-2, -1))
        return 0.5 * quadratic - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        grams, roots, projected, factor = ctx.saved_tensors
        shape = projected.shape[-2:]
        inverse = torch.cholesky_inverse(factor)
        solved = (inverse @ projected.flatten(-2).unsqueeze(-1)).reshape(*factor.shape[:-2], *shape, 1)
        weights = (roots @ solved).squeeze(-1)
        mean = torch.einsum("...rnm,...mr->...nr", grams, weights)
        inverse = inverse.unflatten(-1, shape).unflatten(-3, shape)
        inner = torch.einsum("...nra,...namb,...msb->...nrms", roots, inverse, roots)
        of_grams = torch.einsum("...nr,...mr->...rnm", weights, weights) - torch.einsum("...nrmr->...rnm", inner)
        once = torch.einsum("...rnm,...mrks->...rnks", grams, inner)
        prior = torch.diag_embed(grams.diagonal(dim1=-2, dim2=-1).mT)
        covariance = prior - torch.einsum("...rnks,...skn->...nrs", once, grams)
        of_precision = -(mean.unsqueeze(-1) * mean.unsqueeze(-2) + covariance)
        half = 0.5 * gradient[..., None, None, None]
        slopes = half * of_grams, half * of_precision, gradient[..., None, None] * mean
        return tuple(slope.sum_to_size(each.shape) for slope, each in zip(slopes, ctx.like, strict=True))


def _factored(grams: Tensor, precision: Tensor, pull: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """C ``(*batch, N, R, R)``, u of h = C u ``(*batch, N, R)``, and the factor of B ``(*batch, N R, N R)``."""
    if not torch.isfinite(precision).all():  # at the end of too long a step: a search takes a shorter one
        raise NotPositiveDefiniteError("information of the rows: expected finite numbers; check the scale of y")
    values, vectors = torch.linalg.eigh(precision)
    positive = values > _RANK * values.amax(-1, keepdim=True)
    scale = torch.where(positive, values, 0.0).sqrt()
    roots = vectors * scale.unsqueeze(-2)
    inverse = torch.where(positive, scale, 1.0).reciprocal() * positive
    projected = (vectors.mT @ pull.unsqueeze(-1)).squeeze(-1) * inverse
    matrix = torch.einsum("...nra,...rnm,...mrb->...namb", roots, grams, roots).flatten(-4, -3).flatten(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return roots, projected, cholesky(matrix, name="I + information of the rows", jitter=0.0)
