r"""Mixing models with fewer processes than outputs: rows of a table as information on processes, and their posterior.

.. math:: y_{np} = \lambda_p^\top f_n + \epsilon_{np}, \qquad f_{\cdot r} \sim N(0, \kappa^{(r)}), \qquad
    J_n = \sum_{p \in O_n} \frac{\lambda_p\lambda_p^\top}{\sigma_{np}^2}, \qquad
    h_n = \sum_{p \in O_n} \frac{\lambda_p\, y_{np}}{\sigma_{np}^2}

The outputs O that were observed in a row enter by J (R, R) and h (R) alone, so that N rows of P outputs cost (N R)³ in
place of (N P)³. With :math:`J_n = C_nC_n^\top` everything is factored in :math:`B = I + C^\top K C`, whose
eigenvalues are at least one; J may be singular, as where fewer than R outputs were observed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cgp.functional.gaussians import lazy
from cgp.functional.linalg import cholesky, solve_lower

__all__ = ["CompressedPosterior", "CompressedRows", "compress_rows", "compressed_log_evidence"]

_RANK = 1e-13  # of the largest eigenvalue of J, below which one is rounding


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
        NotPositiveDefiniteError: if B cannot be factored.

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
        ctx.shapes = grams.shape, precision.shape, pull.shape
        u = projected.flatten(-2)
        whitened = solve_lower(factor, u.unsqueeze(-1))
        quadratic = u.square().sum(-1) - whitened.square().sum((-2, -1))
        return 0.5 * quadratic - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @once_differentiable
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
        return tuple(slope.sum_to_size(size) for slope, size in zip(slopes, ctx.shapes, strict=True))


def _factored(grams: Tensor, precision: Tensor, pull: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """C ``(*batch, N, R, R)``, u of h = C u ``(*batch, N, R)``, and the factor of B ``(*batch, N R, N R)``."""
    values, vectors = torch.linalg.eigh(precision)
    positive = values > _RANK * values.amax(-1, keepdim=True)
    scale = torch.where(positive, values, 0.0).sqrt()
    roots = vectors * scale.unsqueeze(-2)
    inverse = torch.where(positive, scale, 1.0).reciprocal() * positive
    projected = (vectors.mT @ pull.unsqueeze(-1)).squeeze(-1) * inverse
    matrix = torch.einsum("...nra,...rnm,...mrb->...namb", roots, grams, roots).flatten(-4, -3).flatten(-2)
    matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return roots, projected, cholesky(matrix, name="I + information of the rows", jitter=0.0)
