r"""Linear algebra of batches of small covariances: one jittered Cholesky, and products that save memory.

For the backward pass ``a @ b`` keeps contiguous copies of operands that are views (such as the heads of one
projection), and a quadratic form keeps the intermediate product. :func:`product` and :func:`quadratic_forms` keep only
their operands.

Shapes: square are ``matrix`` ``(*batch, n, n)``, ``covariance`` ``(*batch, n, n)``, ``factor`` ``(*batch, n, n)``, a
lower Cholesky factor, and ``whitening`` ``(*batch, n, n)``, the inverse of one; others are ``rhs`` ``(*batch, n, k)``
and ``columns`` ``(*batch, n, k)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "BASE_JITTER",
    "NotPositiveDefiniteError",
    "cholesky",
    "closed",
    "differentiable_once",
    "explained_variances",
    "in_double",
    "in_functorch",
    "inverse",
    "inverse_factor",
    "log_determinant",
    "may_own_backward",
    "may_read",
    "open_backward",
    "outer_product",
    "product",
    "quadratic_forms",
    "solve",
    "solve_lower",
    "whiten",
]

BASE_JITTER = {torch.float32: 1e-5, torch.float64: 1e-8}  # relative to the mean of a diagonal
_RUNGS = (1.0, 10.0, 100.0)


class NotPositiveDefiniteError(ValueError):
    """A matrix is not positive definite, or not finite, even at the largest jitter of the ladder."""


def cholesky(matrix: Tensor, *, name: str, jitter: float | None = None) -> Tensor:
    r"""Lower Cholesky factor with the smallest jitter of a fixed ladder that succeeds, chosen per matrix.

    .. math:: L L^\top = A + \epsilon\,\overline{\operatorname{diag} A}\; I

    The ladder is ``jitter``, then 1, 10 and 100 times the base (1e-5 in float32, 1e-8 in float64). Where values may be
    read without a synchronisation (on the CPU, outside a trace) it is climbed only by matrices that fail; elsewhere the
    rung is chosen by ``torch.where`` and a failure is asserted asynchronously (under ``torch.func`` transforms, where
    nothing can be asserted, the factor of a failed matrix is NaN throughout).

    Args:
        matrix: symmetric positive (semi-)definite matrices, ``(*batch, n, n)``; the lower triangle is read.
        name: name of the matrix, for the error message.
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
    if matrix.dtype not in BASE_JITTER:
        raise TypeError(f"cholesky of {name}: expected float32 or float64, got {matrix.dtype}")
    base = BASE_JITTER[matrix.dtype]
    rungs = [r * base for r in _RUNGS]
    ladder = rungs if jitter is None else [jitter, *(r for r in rungs if r > jitter)]
    return (_eager_cholesky if may_read(matrix) else _traced_cholesky)(matrix, name, ladder)


def solve_lower(factor: Tensor, rhs: Tensor) -> Tensor:
    r"""Solution of a lower triangular system, :math:`L^{-1}B`, ``(*batch, n, k)``."""
    if _is_faster_transposed(factor):
        return torch.linalg.solve_triangular(factor.mT, rhs.mT, upper=True, left=False).mT
    return torch.linalg.solve_triangular(factor, rhs, upper=False)


def inverse_factor(factor: Tensor) -> Tensor:
    r"""Inverse of a small lower triangular factor, :math:`L^{-1}`, ``(*batch, n, n)``, for repeated use by products."""
    # Faster than substitution, and as accurate if the condition is bounded (jittered, or eigenvalues at least one).
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return solve_lower(factor, identity.expand_as(factor))


def log_determinant(factor: Tensor) -> Tensor:
    r"""Log-determinant of the factored matrix, :math:`\log|A| = 2 \sum_i \log L_{ii}`, ``(*batch,)``."""
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def whiten(covariance: Tensor) -> Tensor:
    r"""Inverse Cholesky factor of an inducing covariance, :math:`L^{-1}`, ``(*batch, n, n)``; it whitens features."""
    return inverse_factor(cholesky(covariance, name="covariance of the inducing inputs"))


def solve(matrix: Tensor, rhs: Tensor, factor: Tensor) -> Tensor:
    r"""Solution of a positive definite system, :math:`A^{-1}B`, ``(*batch, n, k)``; ``factor`` is chol A."""
    # The backward pass, like those of the next two functions, does not differentiate a Cholesky factorisation.
    return _Solve.apply(matrix, rhs, factor) if may_own_backward() else torch.cholesky_solve(rhs, factor)


def inverse(matrix: Tensor, whitening: Tensor) -> Tensor:
    r"""Inverse of a small positive definite matrix, :math:`A^{-1} = W^\top W`, ``(*batch, n, n)``, W its whitening."""
    return _Inverse.apply(matrix, whitening) if may_own_backward() else whitening.mT @ whitening


def explained_variances(matrix: Tensor, columns: Tensor, factor: Tensor) -> Tensor:
    r"""Quadratic forms of the inverse, :math:`c_i^\top A^{-1}c_i = \|L^{-1}c_i\|^2`, ``(*batch, k)``, L = chol A."""
    if may_own_backward():
        return _ExplainedVariances.apply(matrix, columns, factor)
    return solve_lower(factor, columns).square().sum(-2)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of ``a`` ``(*batch, n, k)`` and ``b`` ``(*batch, k, p)``, ``(*batch, n, p)``."""
    # It keeps its operands for the backward pass, not copies of them.
    return _Product.apply(a, b) if may_own_backward() else a @ b


def outer_product(a: Tensor) -> Tensor:
    r"""Product :math:`AA^\top`, ``(*batch, n, n)``, of ``a`` ``(*batch, n, k)``, whose backward pass is one product."""
    return _OuterProduct.apply(a) if may_own_backward() else a @ a.mT


def quadratic_forms(columns: Tensor, matrix: Tensor) -> Tensor:
    r"""Quadratic form of each column, :math:`a_i^\top M a_i`, ``(*batch, k)``."""
    return _QuadraticForms.apply(columns, matrix) if may_own_backward() else _quadratic_forms(columns, matrix)


def in_double(x: Tensor) -> Tensor:
    """The values ``x`` ``(*batch,)`` in float64, ``(*batch,)``, unless the device has none."""
    return x if x.device.type == "mps" else x.double()


def in_functorch() -> bool:
    """Whether a ``torch.func`` transform is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def may_read(x: Tensor) -> bool:
    """Whether ``x`` ``(...)`` may be read: not compiled, no functorch transform, no recording of a CUDA graph."""
    # An accelerator has to be waited for: an assertion there, when it fails, would end every further use of it.
    traced = torch.compiler.is_compiling() or in_functorch() or x.device.type == "meta"
    return not (traced or (x.device.type == "cuda" and torch.cuda.is_current_stream_capturing()))


def may_own_backward() -> bool:
    """Whether an ``autograd.Function`` can be used: not compiled, no functorch transform, no forward-mode gradient."""
    # A compiler fuses and recomputes anyway; transforms and forward mode need the steps of the plain formula.
    return not (torch.compiler.is_compiling() or in_functorch() or forward_ad._current_level >= 0)


def closed(values: Sequence[Any], arguments: Iterable[Tensor | None]) -> tuple[Any, ...]:
    """Values without a graph as they are; if one is recorded, their derivatives by the arguments are refused."""
    varied = [each for each in arguments if each is not None and each.requires_grad]
    if not torch.is_grad_enabled() or not varied:
        return tuple(values)
    known = [value for value in values if value is not None]
    refusing = iter(_Closed.apply(len(known), *known, *varied))
    return tuple(None if value is None else next(refusing) for value in values)


class _Closed(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.clone() for value in tensors[:count])

    @staticmethod
    def backward(*_: Any) -> None:
        raise RuntimeError(
            "second derivatives: expected first ones of a Markov kernel or of a regressor's evidence, which are closed "
            "forms, got create_graph=True: use the dense kernel, without Markov, or differences of first derivatives"
        )


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The backward pass of an ``autograd.Function`` with its inputs as ``ctx.like``, not to be differentiated."""

    # PyTorch's once_differentiable refuses only if the incoming gradient has a graph, which that of a loss has not.
    @wraps(backward)
    def once(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            values = backward(ctx, *gradients)
        return closed(values, (*ctx.like, *gradients))

    return once


def open_backward(
    outputs: Sequence[Tensor | None],
    arguments: Sequence[Any],
    gradients: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of a plain formula, with a graph, for a backward pass that is itself differentiated."""
    wanted = [x for x, needs in zip(arguments, needed, strict=True) if needs]
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y is not None]
    computed = iter(torch.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=True))
    return tuple(next(computed) if needs else None for needs in needed)


def _is_faster_transposed(factor: Tensor) -> bool:
    """Whether a solve of the transposed system, from the right, takes a third to a half of the time."""
    return factor.dtype == torch.float32 and factor.device.type == "cpu"


def _solve_by_factor(rhs: Tensor, factor: Tensor) -> Tensor:
    """Solution of a positive definite system, given its Cholesky factor."""
    if _is_faster_transposed(factor):
        white = solve_lower(factor, rhs)
        return torch.linalg.solve_triangular(factor, white.mT, upper=False, left=False).mT
    return torch.cholesky_solve(rhs, factor)


class _Solve(torch.autograd.Function):
    """Gradients reach the matrix directly, none the factor, whose graph serves only a differentiated backward pass."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, rhs: Tensor, factor: Tensor) -> Tensor:
        solution = _solve_by_factor(rhs, factor)
        ctx.save_for_backward(factor, solution)
        return solution

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        factor, solution = ctx.saved_tensors
        of_rhs = _solve_by_factor(gradients[0], factor)
        return -of_rhs @ solution.mT, of_rhs, None


class _Inverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, whitening: Tensor) -> Tensor:
        inverse = whitening.mT @ whitening
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (inverse,) = ctx.saved_tensors
        return -(inverse @ gradients[0] @ inverse), None


class _ExplainedVariances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, columns: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(columns, factor)
        return solve_lower(factor, columns).square_().sum(-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        columns, factor = ctx.saved_tensors
        solution = _solve_by_factor(columns, factor)
        weighted = solution * gradients[0][..., None, :]
        return -weighted @ solution.mT, 2.0 * weighted, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        of_a = _product_like(a, gradients[0], b.mT).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None
        of_b = (a.mT @ gradients[0]).sum_to_size(b.shape) if ctx.needs_input_grad[1] else None
        return of_a, of_b


class _OuterProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a @ a.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return _product_like(a, gradients[0] + gradients[0].mT, a)


class _QuadraticForms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, columns: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(columns, matrix)
        return _quadratic_forms(columns, matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        columns, matrix = ctx.saved_tensors
        weighted = columns * gradients[0][..., None, :]
        of_columns = of_matrix = None
        if ctx.needs_input_grad[0]:
            of_columns = _product_like(columns, matrix + matrix.mT, weighted).sum_to_size(columns.shape)
        if ctx.needs_input_grad[1]:
            of_matrix = (weighted @ columns.mT).sum_to_size(matrix.shape)
        return of_columns, of_matrix


def _product_like(like: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The product ``a @ b`` in the memory layout of ``like``, so that gradients of one tensor add up contiguously."""
    return (b.mT @ a.mT).mT if like.mT.is_contiguous() else a @ b


def _quadratic_forms(columns: Tensor, matrix: Tensor) -> Tensor:
    rows = columns.mT  # contiguous: features are stored by row
    return ((rows @ matrix) * rows).sum(-1)


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
    chosen = torch.full(info.shape, ladder[0], dtype=matrix.dtype, device=matrix.device)
    for rung in ladder[1:]:
        chosen = torch.where(info > 0, rung, chosen)
        factor, info = torch.linalg.cholesky_ex(_add_jitter(matrix, chosen))
        if not info.any():
            return factor
    raise NotPositiveDefiniteError(_failure(matrix, name, info, ladder))


def _traced_cholesky(matrix: Tensor, name: str, ladder: list[float]) -> Tensor:
    trial = matrix.detach()
    chosen = torch.full(matrix.shape[:-2], ladder[0], dtype=matrix.dtype, device=matrix.device)
    for following in ladder[1:]:
        info = torch.linalg.cholesky_ex(_add_jitter(trial, chosen)).info
        chosen = torch.where(info > 0, following, chosen)
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
