r"""Squared distances of points: one matrix product, and differences of coordinates where the product is inaccurate.

.. math:: d^2_{ij} = \|a_i\|^2 + \|b_j\|^2 - 2\, a_i^\top b_j, \qquad a = x_1 - c,\; b = x_2 - c

The rounding error of the product is about :math:`\epsilon(\|a_i\|^2 + \|b_j\|^2)`, which is negligible for points near
the centre c or far from each other. Pairs that are far from c and near each other, relative to that, are *lost*. Where
values may be read (on the CPU, outside a trace), the distances of lost pairs are computed from their differences;
elsewhere they are an error, asserted asynchronously as a failed Cholesky factorisation is (under ``torch.func``
transforms, where nothing can be asserted, their rows are NaN).

Points are ``x1`` ``(*batch, N, D)``, ``x2`` ``(*batch, M, D)`` and ``points`` ``(*batch, M, D)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .linalg import in_functorch, may_read

__all__ = [
    "Pairs",
    "are_far",
    "are_resolved",
    "log_squared_exponential",
    "product_of_centred",
    "relative",
    "robust_centre",
    "slopes_of_differences",
    "squared_distance",
]

Pairs = tuple[Tensor, ...]
"""Places in a matrix ``(*batch, N, M)``, an index for each dimension."""

# Errors of half a squared distance d, relative to 1 + d. Above _EXACT times the root of the machine epsilon (1e-4 in
# float32) differences are taken; above _REFUSED, also of a covariance by the rounding of its points, it is an error.
_EXACT = 0.3
_REFUSED = 1e-2
_PIECE = 2**18  # lost pairs processed at a time


def squared_distance(x1: Tensor, x2: Tensor | None = None, *, rough: bool = False) -> Tensor:
    r"""Squared Euclidean distances.

    Args:
        x1: points, ``(*batch, N, D)``.
        x2: points, ``(*batch, M, D)``; None stands for ``x1``.
        rough: whether the caller takes the square root, for which small distances need a small relative error.

    Returns:
        ``(*batch, N, M)``, at least zero; for one set of points the diagonal is exactly zero.

    Raises:
        ValueError: if points are so far from the others and so near each other that the rounding of their coordinates
            decides their distance.

    Example:
        >>> squared_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[ 0., 25.],
                [25.,  0.]])
    """
    return 0.0 - 2.0 * log_squared_exponential(x1, x2, rough=rough)


def robust_centre(x: Tensor) -> Tensor:
    """Median ``(*batch, 1, D)`` of means of five groups of ``x`` ``(*batch, N, D)``; far points in two do no harm."""
    # Detached, as a common shift cancels in every distance; up to four points at the end are left out.
    x = x.detach()
    whole = x.shape[-2] // 5 * 5
    if not whole:
        return _median(x)
    a, b, c, d, e = x[..., :whole, :].unflatten(-2, (-1, 5)).mean(-3).split(1, -2)
    low = torch.maximum(torch.minimum(a, b), torch.minimum(c, d))
    high = torch.minimum(torch.maximum(a, b), torch.maximum(c, d))
    return torch.maximum(torch.minimum(low, high), torch.minimum(torch.maximum(low, high), e))


def log_squared_exponential(x1: Tensor, x2: Tensor | None = None, *, rough: bool = False) -> Tensor:
    """Minus half the :func:`squared_distance`, ``(*batch, N, M)``, by differentiable steps."""
    other = x1 if x2 is None else x2
    log_gram, *halves = _augmented_product(x1, other, robust_centre(other))
    itself = torch.eye(x1.shape[-2], dtype=torch.bool, device=x1.device) if x2 is None else None
    if not may_read(log_gram):
        neighbours = log_gram.detach() if itself is None else log_gram.detach().masked_fill(itself, -torch.inf)
        log_gram = _refused(log_gram, neighbours, halves[0])
    elif (far := are_far(*halves)) or (rough and _are_near(log_gram.detach(), itself, *halves)):
        if far:
            log_gram, *halves = _augmented_product(x1, other, _median(other))
        for pairs in _lost(log_gram.detach(), *halves, rough=rough):
            log_gram = log_gram.index_put(pairs, _differences(x1, other, pairs))
    # Only the value is clamped, not the gradient: a clamped entry would lose its second derivative.
    log_gram = log_gram + (log_gram.clamp(max=0.0) - log_gram).detach()
    # Without this, rounding would leave a distance of a point to itself.
    return log_gram if itself is None else log_gram.masked_fill(itself, 0.0)


def relative(centre: Tensor, *sets: Tensor) -> Tensor:
    """Sets of points minus a centre, concatenated along the rows; out of place if autograd records the operations.

    Args:
        centre: ``(*batch, 1, D)``.
        *sets: of ``(..., D)``.

    Returns:
        ``(*batch, N, D)``.
    """
    if torch.is_grad_enabled():
        return torch.cat([x - centre for x in sets], -2) if len(sets) > 1 else sets[0] - centre
    sizes = [x.shape[-2] for x in sets]
    batch = torch.broadcast_shapes(sets[0].shape[:-2], centre.shape[:-2])
    room = centre.new_empty(*batch, sum(sizes), centre.shape[-1])  # contiguous, or matrix products copy the heads
    for x, target in zip(sets, room.split(sizes, -2), strict=True):
        torch.sub(x, centre, out=target)
    return room


def product_of_centred(points: Tensor, sets: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor, list[Pairs]]:
    """Minus half the squared distances between sets of points (None: the points themselves) and points, not tracked.

    Returns:
        The matrix ``(..., N, M)``, whose entries may exceed zero by rounding and whose diagonal, for one set of
        points, is arbitrary; the centre ``(*batch, 1, D)``; and the lost pairs, whose entries were computed from
        differences.
    """
    centre = robust_centre(points)
    logarithms, *halves = _centred_product(centre, points, sets)
    if not may_read(logarithms):
        if sets is None:
            logarithms.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
        return _refused(logarithms, logarithms, halves[0]), centre, []
    if not are_far(*halves):
        return logarithms, centre, []
    centre = _median(points)
    logarithms, *halves = _centred_product(centre, points, sets)
    lost = _lost(logarithms, *halves)
    for pairs in lost:
        logarithms[pairs] = _differences(points if sets is None else torch.cat(list(sets), -2), points, pairs)
    return logarithms, centre, lost


def slopes_of_differences(weights: Tensor, x1: Tensor, x2: Tensor, lost: Sequence[Pairs]) -> Tensor:
    r"""Sum :math:`\sum_jw_{ij}(x_{2j} - x_{1i})` of lost pairs, ``(*batch, N, D)``; ``weights`` ``(*batch, N, M)``."""
    x1, x2 = (x.expand(*weights.shape[:-2], *x.shape[-2:]) for x in (x1, x2))
    slopes = torch.zeros_like(x1)
    for pairs in lost:
        *batch, i, j = pairs
        of_pairs = weights[pairs][:, None] * (x2[(*batch, j)] - x1[(*batch, i)])
        slopes = slopes.index_put((*batch, i), of_pairs, accumulate=True)
    return slopes


def are_resolved(x1: Tensor, x2: Tensor) -> bool:
    """Whether a matrix product resolves every distance; reads two numbers, which synchronises with the device."""
    centre = robust_centre(x2)
    return not are_far(*(-0.5 * (x.detach() - centre).square().sum(-1, keepdim=True) for x in (x1, x2)))


def _median(x: Tensor) -> Tensor:
    return x.detach().median(-2, keepdim=True).values


def _augmented_product(x1: Tensor, x2: Tensor, centre: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Minus half the squared distances by one product of augmented points, and minus half the squared norms."""
    a = x1 - centre
    b = a if x2 is x1 else x2 - centre
    half_a, half_b = -0.5 * a.square().sum(-1, keepdim=True), -0.5 * b.square().sum(-1, keepdim=True)
    left = torch.cat([a, half_a, torch.ones_like(half_a)], dim=-1)
    right = torch.cat([b, torch.ones_like(half_b), half_b], dim=-1)
    return left @ right.mT, half_a.detach(), half_b.detach()


def _centred_product(centre: Tensor, points: Tensor, sets: Sequence[Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
    """The same with operations in place, for sets of points as in :func:`product_of_centred`."""
    b = relative(centre, points)
    a = b if sets is None else relative(centre, *sets)
    half_a = torch.linalg.vector_norm(a, dim=-1, keepdim=True).square_().mul_(-0.5)
    half_b = half_a if a is b else torch.linalg.vector_norm(b, dim=-1, keepdim=True).square_().mul_(-0.5)
    if a.shape[:-2] == b.shape[:-2]:
        logarithms = half_a + half_b.mT
        logarithms.view(-1, *logarithms.shape[-2:]).baddbmm_(*(x.reshape(-1, *x.shape[-2:]) for x in (a, b.mT)))
    else:
        logarithms = (a @ b.mT).add_(half_a).add_(half_b.mT)
    return logarithms, half_a, half_b


def are_far(half_a: Tensor, half_b: Tensor) -> bool:
    """Whether some pair may be lost; False for NaN.

    Args:
        half_a: minus half the squared norms, ``(*batch, N, 1)``.
        half_b: likewise, ``(*batch, M, 1)`` or ``(*batch, 1, M)``.

    Returns:
        Of all pairs.
    """
    return bool(-half_a.amin() - half_b.amin() > _tolerance(half_a) / torch.finfo(half_a.dtype).eps)


def _tolerance(x: Tensor) -> float:
    return _EXACT * torch.finfo(x.dtype).eps ** 0.5


def _are_near(logarithms: Tensor, itself: Tensor | None, half_a: Tensor, half_b: Tensor) -> bool:
    """Whether two points are so near each other that their distance, a square root, may be lost."""
    error = float(-half_a.amin() - half_b.amin()) * torch.finfo(half_a.dtype).eps / _tolerance(half_a)
    near = logarithms > -min(error, error**2)
    if itself is not None:
        near.diagonal(dim1=-2, dim2=-1).fill_(False)
    return bool(near.any())


def _lost(logarithms: Tensor, half_a: Tensor, half_b: Tensor, *, rough: bool = False) -> list[Pairs]:
    """The lost pairs, in pieces."""
    size = (logarithms * (logarithms - 1.0)).clamp(min=0.0).sqrt() if rough else 1.0 - logarithms
    pairs = (-(half_a + half_b.mT) * torch.finfo(half_a.dtype).eps > _tolerance(half_a) * size).nonzero(as_tuple=True)
    return list(zip(*(index.split(_PIECE) for index in pairs), strict=True)) if len(pairs[0]) else []


def _differences(x1: Tensor, x2: Tensor, pairs: Pairs) -> Tensor:
    """Minus half the squared distances of pairs, computed from differences."""
    *batch, i, j = pairs
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    left, right = x1.expand(*shape, *x1.shape[-2:])[(*batch, i)], x2.expand(*shape, *x2.shape[-2:])[(*batch, j)]
    logarithms = -0.5 * (left - right).square().sum(-1)
    _check_rounding(left.detach(), right.detach(), logarithms.detach())
    return logarithms


def _check_rounding(left: Tensor, right: Tensor, logarithms: Tensor) -> None:
    """Raise if the rounding of the points' coordinates decides a covariance."""
    distance, sizes = (-2.0 * logarithms).sqrt(), left.norm(dim=-1) + right.norm(dim=-1)
    error = logarithms.exp() * distance * sizes * torch.finfo(left.dtype).eps
    if bool((error > _REFUSED).any()):
        worst = error.argmax()
        raise ValueError(
            f"points: expected sizes at which {left.dtype} resolves distances, got points of length "
            f"{sizes[worst] / 2:.2g} that are {distance[worst]:.2g} apart (in lengthscales); normalise the tokens, as "
            "a layer norm does, or use float64"
        )


def _refused(logarithms: Tensor, neighbours: Tensor, half_a: Tensor) -> Tensor:
    """The logarithms where no value may be read: lost pairs are asserted not to exist, or their rows set to NaN."""
    bound = _REFUSED * (1.0 - neighbours.amax(-1, keepdim=True))  # for a near neighbour, half_b is about half_a
    lost = -2.0 * half_a * torch.finfo(half_a.dtype).eps > bound
    if in_functorch() and not torch.compiler.is_compiling():
        return torch.where(lost, torch.nan, logarithms)
    message = "points: float32 loses distances of points that are far from the others and near each other"
    torch._assert_async(~lost.any(), message)
    return logarithms
