r"""Canonical, parameter-free covariances of projected points.

Each is :math:`\kappa_o(z, z')` of CGPT (13)-(16): unit lengthscale, and unit variance except for the exponential dot
product. Lengthscales are part of the maps that produce the points. All can be differentiated twice. Arguments are
points ``x1`` ``(*batch, N, D)`` and ``x2`` ``(*batch, M, D)``; None stands for ``x1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .distances import (
    Pairs,
    log_squared_exponential,
    product_of_centred,
    relative,
    slopes_of_differences,
    squared_distance,
)
from .linalg import in_functorch, may_own_backward, may_read

__all__ = [
    "CANONICAL",
    "Canonical",
    "canonical",
    "exponential",
    "gram_of_sets",
    "matern",
    "rational_quadratic",
    "squared_exponential",
]


class Canonical(NamedTuple):
    """A named canonical covariance.

    Attributes:
        name: its key in :data:`CANONICAL`.
        gram: ``(x1, x2=None) -> (*batch, N, M)``.
        log_diagonal: ``(x) -> (*batch, N)``, the log of the covariance of each point with itself.
        stationary: whether the covariance depends on differences only.
    """

    name: str
    gram: Callable[..., Tensor]
    log_diagonal: Callable[[Tensor], Tensor]
    stationary: bool

    def diagonal(self, x: Tensor) -> Tensor:
        r"""Prior variance of each point, :math:`\kappa_o(z, z)`, ``(*batch, N)``."""
        return self.log_diagonal(x).exp()


def canonical(name: str) -> Canonical:
    """The canonical covariance of this name, a key of :data:`CANONICAL`; raises ValueError for another."""
    if name not in CANONICAL:
        raise ValueError(f"kernel: expected one of {sorted(CANONICAL)}, got {name!r}")
    return CANONICAL[name]


def squared_exponential(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Squared exponential covariance, :math:`\exp(-\tfrac12\|z - z'\|^2)`.

    Returns:
        ``(*batch, N, M)``, in [0, 1].

    Example:
        >>> squared_exponential(torch.tensor([[0.0], [1.0]]))
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    if may_own_backward():
        return _SelfGram.apply(x1) if x2 is None else _Gram.apply(x2, x1)
    return log_squared_exponential(x1, x2).exp()


def gram_of_sets(kernel: Canonical, sets: Sequence[Tensor], points: Tensor) -> Tensor:
    """Covariance of sets of points, concatenated along the rows, with ``points`` ``(*batch, M, D)``.

    No copy of the sets is kept.

    Returns:
        ``(*batch, N, M)``.
    """
    if kernel.gram is squared_exponential and may_own_backward():
        return _Gram.apply(points, *sets)
    return kernel.gram(torch.cat(list(sets), -2), points)


def matern(x1: Tensor, x2: Tensor | None = None, *, degree: int) -> Tensor:
    r"""Matérn covariance of smoothness 1/2, 3/2 or 5/2: ``degree`` 0, 1 or 2.

    .. math:: e^{-r}, \quad (1 + r)e^{-r}, \quad (1 + r + \tfrac13r^2)e^{-r}, \qquad r = d\sqrt{2\,\mathrm{degree} + 1}

    Returns:
        ``(*batch, N, M)``, in [0, 1].

    Example:
        >>> torch.cat([matern(torch.zeros(1, 1), torch.full((1, 1), 2.0), degree=k) for k in range(3)])
        tensor([[0.1353],
                [0.1397],
                [0.1387]])
    """
    if x2 is None and degree and may_own_backward():
        return _SelfMatern.apply(x1, degree)
    return _matern((2.0 * degree + 1.0) * squared_distance(x1, x2, rough=degree == 0), degree)


def rational_quadratic(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Rational quadratic covariance of unit shape, :math:`(1 + \tfrac12 d^2)^{-1}`, ``(*batch, N, M)``."""
    return (1.0 - log_squared_exponential(x1, x2)).reciprocal()


def exponential(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Exponential of the scaled dot product, :math:`\exp(z^\top z' / \sqrt D)`.

    Not stationary: its diagonal is :math:`\exp(\|z\|^2/\sqrt D)`.

    Returns:
        ``(*batch, N, M)``, positive.

    Raises:
        ValueError: if a covariance exceeds the cube root of the dtype's largest number (float32: 7e12).
    """
    other = x1 if x2 is None else x2
    return _checked_exp(x1 @ other.mT * x1.shape[-1] ** -0.5)


class _Gram(torch.autograd.Function):
    r"""Squared exponential of sets of points a and points b; keeps only the points and the covariance.

    .. math:: \frac{\partial \ell}{\partial a_i} = \sum_j G_{ij}(b_j - a_i), \quad
        G = \frac{\partial \ell}{\partial K}\circ K
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, *sets: Tensor) -> Tensor:
        logarithms, centre, ctx.lost = product_of_centred(points, sets)
        covariance = logarithms.clamp_(max=0.0).exp_()
        ctx.save_for_backward(points, *sets, centre, covariance)
        return covariance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        points, *sets, centre, covariance = ctx.saved_tensors
        weights = gradients[0] * covariance
        a, b, x1 = relative(centre, *sets), relative(centre, points), torch.cat(sets, -2) if ctx.lost else None
        of_points, of_sets = None, [None] * len(sets)
        if ctx.needs_input_grad[0]:
            turned = [(*batch, j, i) for *batch, i, j in ctx.lost]
            of_points = _slopes(weights.mT, b, a, points, x1, turned).sum_to_size(points.shape)
        if any(ctx.needs_input_grad[1:]):
            of_a = _slopes(weights, a, b, x1, points, ctx.lost)
            apart = of_a.split([x.shape[-2] for x in sets], -2)
            of_sets = [gradient.sum_to_size(x.shape) for gradient, x in zip(apart, sets, strict=True)]
        return of_points, *of_sets


class _SelfGram(torch.autograd.Function):
    """Squared exponential of one set of points; one product gives the gradients of both arguments."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        logarithms, centre, ctx.lost = product_of_centred(x)
        covariance = logarithms.clamp_(max=0.0).exp_()
        covariance.diagonal(dim1=-2, dim2=-1).fill_(1.0)  # rounding would leave a distance of a point to itself
        ctx.save_for_backward(x, centre, covariance)
        return covariance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, centre, covariance = ctx.saved_tensors
        a = relative(centre, x)
        return _slopes((gradients[0] + gradients[0].mT) * covariance, a, a, x, x, ctx.lost)


class _SelfMatern(torch.autograd.Function):
    r"""Matérn covariance of one set of points, of smoothness 3/2 or 5/2; keeps the points and the slopes.

    .. math:: \frac{\partial f_k}{\partial(-\frac12d^2)} = \frac{2k + 1}{(1, 3)_k}\, f_{k-1}
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, degree: int) -> Tensor:
        logarithms, centre, ctx.lost = product_of_centred(x)
        squared = logarithms.mul_(-2.0 * (2.0 * degree + 1.0)).clamp_(min=0.0)
        squared.diagonal(dim1=-2, dim2=-1).fill_(0.0)
        distance = squared.sqrt() if degree == 2 else squared.sqrt_()
        slopes = distance.neg().exp_()
        value = distance.add_(1.0).mul_(slopes)
        if degree == 2:
            value, slopes = squared.div_(3.0).mul_(slopes).add_(value), value
        ctx.save_for_backward(x, centre, slopes)
        ctx.degree = degree
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, centre, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            slopes = _matern((2.0 * ctx.degree + 1.0) * squared_distance(x, rough=ctx.degree == 1), ctx.degree - 1)
        a = relative(centre, x)
        weights = (gradients[0] + gradients[0].mT) * slopes * (3.0, 5.0 / 3.0)[ctx.degree - 1]
        return _slopes(weights, a, a, x, x, ctx.lost), None


def _slopes(weights: Tensor, a: Tensor, b: Tensor, x1: Any, x2: Any, lost: Sequence[Pairs]) -> Tensor:
    r"""Sum :math:`\sum_jw_{ij}(b_j - a_i)` of points a and b, which are x1 and x2 minus a centre."""
    of_lost = slopes_of_differences(weights, x1, x2, lost) if lost else None
    for pairs in lost:
        weights = weights.index_put(pairs, weights.new_zeros(()))
    slopes = torch.addcmul(weights @ b, weights.sum(-1, keepdim=True), a, value=-1.0)
    return slopes if of_lost is None else slopes + of_lost


def _matern(squared: Tensor, degree: int) -> Tensor:
    """Half-integer Matérn covariance of the squared, scaled distance r."""
    if torch.compiler.is_compiling():
        return _matern_value(squared, degree)
    return _Matern.apply(squared, degree)


def _matern_value(squared: Tensor, degree: int) -> Tensor:
    distance = squared.clamp(min=torch.finfo(squared.dtype).eps ** 2).sqrt()
    decay = (-distance).exp()
    return decay if degree == 0 else (1.0 + distance + (squared / 3.0 if degree == 2 else 0.0)) * decay


class _Matern(torch.autograd.Function):
    r"""Matérn covariance as a function of the squared distance u; its derivative is that of the next lower degree.

    .. math:: f_2' = -\tfrac16 f_1, \quad f_1' = -\tfrac12 f_0, \quad f_0' = -\frac{f_0}{2\sqrt u}

    Differentiating the square root instead would lose the derivatives at coincident points.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(squared: Tensor, degree: int) -> Tensor:
        return _matern_value(squared, degree)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)
        ctx.degree = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        squared, value = ctx.saved_tensors
        return gradients[0] * _matern_slope(squared, value, ctx.degree), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        squared, value = ctx.saved_tensors
        return tangents[0] * _matern_slope(squared, value, ctx.degree)


def _matern_slope(squared: Tensor, value: Tensor, degree: int) -> Tensor:
    if degree:
        return _matern(squared, degree - 1) / (-2.0, -6.0)[degree - 1]
    nearest = torch.finfo(squared.dtype).eps ** 2
    return torch.where(squared > nearest, -0.5 * value * squared.clamp(min=nearest).rsqrt(), 0.0)


def _checked_exp(logarithms: Tensor) -> Tensor:
    """Exponential that raises if it would overflow, here or in later products; asserted where no value may be read."""
    # A third of the range, so that products with values, and their squares in a layer norm, stay finite.
    largest = math.log(torch.finfo(logarithms.dtype).max)
    if logarithms.dtype != torch.float16:  # a third of its small range would be too little
        largest /= 3.0
    if may_read(logarithms):
        if bool((logarithms > largest).any()):
            raise ValueError(
                f"kernel: 'exponential' overflows {logarithms.dtype}: expected scaled dot products up to "
                f"{largest:.1f}, got {float(logarithms.detach().max()):.1f}; shrink the inputs or the maps"
            )
    elif not in_functorch():
        torch._assert_async((logarithms <= largest).all(), "kernel: 'exponential' overflows")
    return logarithms.exp()


def _zero(x: Tensor) -> Tensor:
    return x.new_zeros(()).expand(x.shape[:-1])


def _log_exponential_diagonal(x: Tensor) -> Tensor:
    return x.square().sum(-1) * x.shape[-1] ** -0.5


CANONICAL: dict[str, Canonical] = {
    "rbf": Canonical("rbf", squared_exponential, _zero, stationary=True),
    "matern12": Canonical("matern12", partial(matern, degree=0), _zero, stationary=True),
    "matern32": Canonical("matern32", partial(matern, degree=1), _zero, stationary=True),
    "matern52": Canonical("matern52", partial(matern, degree=2), _zero, stationary=True),
    "rq": Canonical("rq", rational_quadratic, _zero, stationary=True),
    "exponential": Canonical("exponential", exponential, _log_exponential_diagonal, stationary=False),
}
