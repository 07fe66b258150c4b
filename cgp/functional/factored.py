r"""Cholesky factors together with their inverses, for small matrices that many right-hand sides are multiplied with.

Triangular solves of batches of small matrices are slow, and so is LAPACK's factorisation; products are not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cholesky import cholesky, inverse_factor, solve_lower
from .differentiation import may_own_backward

__all__ = ["LARGEST_INVERSE", "Factored", "factored", "whitened"]

LARGEST_INVERSE = 64  # rows up to which products with an inverse factor beat triangular solves
_SUBSTITUTED = 16  # rows up to which the inverse factor is found by substitution


class Factored(NamedTuple):
    """A factored matrix.

    Attributes:
        factor: L, lower triangular, ``(*batch, n, n)``.
        inverse: :math:`L^{-1}`, lower triangular, ``(*batch, n, n)``.
    """

    factor: Tensor
    inverse: Tensor


def factored(matrix: Tensor, *, name: str, jitter: float | None = None) -> Factored:
    r"""Cholesky factor and its inverse at once, for small matrices that many right-hand sides are multiplied with.

    Its backward pass needs the two alone, and products instead of solves:

    .. math:: \frac{\partial\ell}{\partial A} = \operatorname{sym}\!\big[W^\top\,
        \Phi\big(L^\top \bar L - \bar W W^\top\big)\,W\big], \qquad W = L^{-1}

    with :math:`\Phi` the lower triangle with half the diagonal.

    Args:
        matrix: as for :func:`cholesky`; a few dozen rows.
        name: what the matrix is, for the error message.
        jitter: as for :func:`cholesky`.

    Returns:
        Factor and inverse.

    Example:
        >>> factored(torch.tensor([[4.0, 2.0], [2.0, 2.0]]), name="K", jitter=0.0).inverse
        tensor([[ 0.5000,  0.0000],
                [-0.5000,  1.0000]])
    """
    if may_own_backward():
        graph = torch.is_grad_enabled()
        return Factored(*(_Factored.apply if graph else _factor_with_inverse)(matrix, name, jitter))
    factor = cholesky(matrix, name=name, jitter=jitter)
    return Factored(factor, inverse_factor(factor))


def whitened(matrix: Tensor, rhs: Tensor, *, name: str, jitter: float | None = None) -> tuple[Tensor, Tensor]:
    r"""Cholesky factor and whitened right-hand sides, :math:`L` and :math:`L^{-1}B`.

    By the inverse factor where the matrix is small, by substitution where it is not.

    Args:
        matrix: as for :func:`cholesky`.
        rhs: B, ``(*batch, n, k)``.
        name: what the matrix is, for the error message.
        jitter: as for :func:`cholesky`.

    Returns:
        Factor ``(*batch, n, n)`` and whitened right-hand sides ``(*batch, n, k)``.

    Example:
        >>> whitened(torch.tensor([[4.0]]), torch.tensor([[6.0]]), name="K", jitter=0.0)
        (tensor([[2.]]), tensor([[3.]]))
    """
    if matrix.shape[-1] <= LARGEST_INVERSE and may_own_backward():
        pair = factored(matrix, name=name, jitter=jitter)
        return pair.factor, pair.inverse @ rhs
    factor = cholesky(matrix, name=name, jitter=jitter)
    return factor, solve_lower(factor, rhs)


class _Factored(torch.autograd.Function):
    """Factor and inverse factor, with a backward pass by products."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, name: str, jitter: float | None) -> tuple[Tensor, Tensor]:
        factor, inverse = _factor_with_inverse(matrix, name, jitter)
        ctx.save_for_backward(factor, inverse)
        ctx.set_materialize_grads(False)
        return factor, inverse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        factor, inverse = ctx.saved_tensors
        of_factor, of_inverse = gradients
        if of_factor is None and of_inverse is None:
            return None, None, None
        inner = torch.zeros_like(factor) if of_factor is None else factor.mT @ of_factor
        inner = inner if of_inverse is None else inner - of_inverse @ inverse.mT
        lower = torch.ones_like(factor[(0,) * (factor.dim() - 2)]).tril()
        lower.diagonal().fill_(0.5)
        of_matrix = inverse.mT @ ((inner * lower) @ inverse)
        return 0.5 * (of_matrix + of_matrix.mT), None, None


def _factor_with_inverse(matrix: Tensor, name: str, jitter: float | None) -> tuple[Tensor, Tensor]:
    """By blocks where no jitter is needed and values can be read: LAPACK is slow for batches."""
    if jitter == 0.0 and matrix.device.type == "cpu" and matrix.dtype in (torch.float32, torch.float64):
        factor, inverse, failed = _block_factored(matrix)
        if not failed:
            return factor, inverse
    factor = cholesky(matrix, name=name, jitter=jitter)
    return factor, _block_inverse(factor)


def _block_factored(matrix: Tensor) -> tuple[Tensor, Tensor, bool]:
    r"""Factor, inverse, and whether a block failed: :math:`L_{21} = A_{21}W_{11}^\top`, then what is left."""
    size = matrix.shape[-1]
    if size <= _SUBSTITUTED:
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor, inverse_factor(factor), bool(info.any())
    half = -(-size // (2 * _SUBSTITUTED)) * _SUBSTITUTED
    factor, inverse = torch.zeros_like(matrix), torch.zeros_like(matrix)
    first, first_inverse, failed = _block_factored(matrix[..., :half, :half])
    below = matrix[..., half:, :half] @ first_inverse.mT
    rest, rest_inverse, rest_failed = _block_factored(matrix[..., half:, half:] - below @ below.mT)
    factor[..., :half, :half], factor[..., half:, :half], factor[..., half:, half:] = first, below, rest
    inverse[..., :half, :half], inverse[..., half:, half:] = first_inverse, rest_inverse
    inverse[..., half:, :half] = -(rest_inverse @ (below @ first_inverse))
    return factor, inverse, failed or rest_failed


def _block_inverse(factor: Tensor) -> Tensor:
    r"""Inverse by halves, :math:`-W_{22}L_{21}W_{11}` below the diagonal: substitution is slow for batches."""
    size = factor.shape[-1]
    if size <= _SUBSTITUTED:
        return inverse_factor(factor)
    half = -(-size // (2 * _SUBSTITUTED)) * _SUBSTITUTED
    upper, lower = _block_inverse(factor[..., :half, :half]), _block_inverse(factor[..., half:, half:])
    inverse = torch.zeros_like(factor)
    inverse[..., :half, :half], inverse[..., half:, half:] = upper, lower
    inverse[..., half:, :half] = -(lower @ (factor[..., half:, :half] @ upper))
    return inverse
