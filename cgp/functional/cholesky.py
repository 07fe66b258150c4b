"""The only factorisation of the package: Cholesky with a bounded ladder of relative jitter."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from .differentiation import in_functorch

__all__ = ["NotPositiveDefiniteError", "cholesky", "inverse_factor", "log_determinant", "solve_lower"]

_BASE_JITTER = {torch.float32: 1e-5, torch.float64: 1e-8}
_RUNGS = (1.0, 10.0, 100.0)


class NotPositiveDefiniteError(ValueError):
    """A matrix stayed indefinite, or held NaN or infinity, at the largest jitter that is allowed."""


def cholesky(matrix: Tensor, *, name: str, jitter: float | None = None) -> Tensor:
    r"""Lower Cholesky factor with the smallest jitter of a fixed ladder that succeeds, chosen per matrix.

    .. math:: L L^\top = A + \epsilon\,\overline{\operatorname{diag} A}\; I

    The ladder is ``jitter``, then 1, 10 and 100 times the base (1e-5 in float32, 1e-8 in float64). Where the values
    of a
    tensor may be read without a synchronisation (on the CPU, outside a trace) it is climbed only by matrices that
    fail; elsewhere the rung is chosen by ``torch.where`` and a failure is asserted asynchronously (under ``torch.func``
    transforms, where nothing can be asserted, the factor of a failed matrix is NaN throughout).

    Args:
        matrix: symmetric positive (semi-)definite matrices, ``(*batch, n, n)``; the lower triangle is read.
        name: what the matrix is, for the error message.
        jitter: the first rung, relative to the mean of the diagonal. ``None`` starts at the base; 0 is right for
            matrices whose smallest eigenvalue is known to be well above rounding (noise was added).

    Returns:
        The lower factor, ``(*batch, n, n)``.

    Raises:
        TypeError: if the matrix is neither float32 nor float64.
        NotPositiveDefiniteError: if a matrix fails at the last rung.

    Example:
        >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64), name="K", jitter=0.0)
        tensor([[2.0000, 0.0000],
                [1.0000, 1.4142]], dtype=torch.float64)
    """
    if matrix.dtype not in _BASE_JITTER:
        raise TypeError(f"cholesky of {name}: expected float32 or float64, got {matrix.dtype}")
    base = _BASE_JITTER[matrix.dtype]
    rungs = [r * base for r in _RUNGS]
    ladder = rungs if jitter is None else [jitter, *(r for r in rungs if r > jitter)]
    if _is_traced(matrix):
        return _traced_cholesky(matrix, name, ladder)
    return _eager_cholesky(matrix, name, ladder)


def solve_lower(factor: Tensor, rhs: Tensor) -> Tensor:
    r"""Solution of a lower triangular system, :math:`L^{-1} B`.

    Args:
        factor: lower triangular, ``(*batch, n, n)``.
        rhs: ``(*batch, n, k)``.

    Returns:
        ``(*batch, n, k)``.

    Example:
        >>> solve_lower(torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.tensor([[2.0], [3.0]]))
        tensor([[1.],
                [2.]])
    """
    return torch.linalg.solve_triangular(factor, rhs, upper=False)


def inverse_factor(factor: Tensor) -> Tensor:
    r"""Inverse of a small lower triangular factor, :math:`L^{-1}`, for repeated use by matrix products.

    Meant for factors of a few dozen rows whose condition is bounded (jittered, or eigenvalues at least one): there it
    is as
    accurate as substitution and lets many right-hand sides be multiplied rather than solved.

    Args:
        factor: lower triangular, ``(*batch, m, m)``.

    Returns:
        Lower triangular, ``(*batch, m, m)``.

    Example:
        >>> inverse_factor(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
        tensor([[ 0.5000,  0.0000],
                [-0.5000,  1.0000]])
    """
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)


def log_determinant(factor: Tensor) -> Tensor:
    r"""Log-determinant of the factored matrix, :math:`\log|A| = 2 \sum_i \log L_{ii}`.

    Args:
        factor: its lower Cholesky factor, ``(*batch, n, n)``.

    Returns:
        ``(*batch,)``, in nats.

    Example:
        >>> log_determinant(torch.eye(3) * 2.0)
        tensor(4.1589)
    """
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _is_traced(matrix: Tensor) -> bool:
    """Whether values must not be read: under a compiler, under a functorch transform, or off the CPU."""
    return torch.compiler.is_compiling() or matrix.device.type != "cpu" or in_functorch()


def _add_jitter(matrix: Tensor, relative: Tensor | float) -> Tensor:
    """The matrix with ``relative`` times the mean of its diagonal added to its diagonal."""
    mean_diagonal = matrix.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return matrix + (relative * mean_diagonal)[..., None, None] * identity


def _eager_cholesky(matrix: Tensor, name: str, ladder: list[float]) -> Tensor:
    first = matrix if ladder[0] == 0.0 else _add_jitter(matrix, ladder[0])
    factor, info = torch.linalg.cholesky_ex(first)
    if not info.any():
        return factor
    chosen = torch.full(info.shape, ladder[0], dtype=matrix.dtype)
    for rung in ladder[1:]:
        chosen = torch.where(info > 0, rung, chosen)
        factor, info = torch.linalg.cholesky_ex(_add_jitter(matrix, chosen))
        if not info.any():
            return factor
    raise NotPositiveDefiniteError(_failure(matrix, name, info, ladder))


def _traced_cholesky(matrix: Tensor, name: str, ladder: list[float]) -> Tensor:
    trial = matrix.detach()
    chosen = torch.full(matrix.shape[:-2], ladder[0], dtype=matrix.dtype, device=matrix.device)
    for tried, following in pairwise(ladder):
        info = torch.linalg.cholesky_ex(_add_jitter(trial, chosen)).info
        chosen = torch.where((info > 0) & (chosen == tried), following, chosen)
    factor, info = torch.linalg.cholesky_ex(_add_jitter(matrix, chosen))
    if torch.compiler.is_compiling() or not in_functorch():
        torch._assert_async((info == 0).all(), f"{name}: not positive definite up to relative jitter {ladder[-1]:g}")
    return torch.where((info > 0)[..., None, None], torch.nan, factor)


def _failure(matrix: Tensor, name: str, info: Tensor, ladder: list[float]) -> str:
    size, failed, total = matrix.shape[-1], int((info > 0).sum()), info.numel()
    finite = bool(torch.isfinite(matrix).all())
    reason = "not positive definite" if finite else "not finite (NaN or infinity in it: check the scale of the inputs)"
    return (
        f"{name} ({size} x {size}, {matrix.dtype}) is {reason} in {failed} of {total} matrices; "
        f"expected a positive definite matrix up to relative jitter {ladder[-1]:g}"
    )
