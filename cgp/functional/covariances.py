r"""Canonical, parameter-free covariances between projected points.

Each is :math:`\kappa_o(z, z')` of CGPT (13)-(16): unit lengthscale, unit variance at distance zero (but for the
exponential dot product). Lengthscales
live in the maps that produce the points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .differentiation import may_own_backward
from .kernel_product import kernel_product
from .products import product
from .squared_exponential import gram, self_gram

__all__ = [
    "CANONICAL",
    "Canonical",
    "canonical",
    "exponential",
    "matern12",
    "matern32",
    "matern52",
    "rational_quadratic",
    "squared_distance",
    "squared_exponential",
]


class Canonical(NamedTuple):
    """A named canonical covariance.

    Attributes:
        name: its key in :data:`CANONICAL`.
        gram: ``(x1, x2=None) -> (*batch, N, M)``.
        log_diagonal: ``(x) -> (*batch, N)``, the log of the covariance of each point with itself.
        stationary: whether the covariance depends on differences alone.
    """

    name: str
    gram: Callable[..., Tensor]
    log_diagonal: Callable[[Tensor], Tensor]
    stationary: bool

    def diagonal(self, x: Tensor) -> Tensor:
        r"""Prior variance of each point, :math:`\kappa_o(z, z)`.

        Args:
            x: points, ``(*batch, N, D)``.

        Returns:
            ``(*batch, N)``.
        """
        return self.log_diagonal(x).exp()

    def attend(self, x1: Tensor, x2: Tensor, values: Tensor) -> Tensor:
        r"""Kernel attention, :math:`\kappa_o(x_1, x_2)V`; of the squared exponential in O(N) memory.

        Args:
            x1: ``(*batch, N, D)``.
            x2: ``(*batch, M, D)``.
            values: ``(*batch, M, s)``.

        Returns:
            ``(*batch, N, s)``.
        """
        if self.name == "rbf" and may_own_backward():
            return kernel_product(x1, x2, values)
        return product(self.gram(x1, x2), values)


def squared_distance(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Squared Euclidean distances by one matrix product.

    .. math:: d^2_{ij} = \|a_i\|^2 + \|b_j\|^2 - 2\, a_i^\top b_j, \qquad a = x_1 - c,\; b = x_2 - c

    with :math:`c` the mean of the points: without it the subtraction loses every digit far from the origin.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1`` and makes the diagonal exactly zero.

    Returns:
        ``(*batch, N, M)``, at least zero.

    Example:
        >>> squared_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[ 0., 25.],
                [25.,  0.]])
    """
    return 2.0 * _log_squared_exponential(x1, x2).abs()


def squared_exponential(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Squared exponential covariance, :math:`\exp(-\tfrac12\|z - z'\|^2)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> squared_exponential(torch.tensor([[0.0], [1.0]]))
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """
    if may_own_backward():
        return self_gram(x1) if x2 is None else gram(x1, x2)
    return _log_squared_exponential(x1, x2).exp()


def matern12(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Matérn-1/2 covariance, :math:`\exp(-d)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> matern12(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
        tensor([[0.1353]])
    """
    return (-_distance(x1, x2)).exp()


def matern32(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Matérn-3/2 covariance, :math:`(1 + \sqrt3 d) \exp(-\sqrt3 d)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> matern32(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
        tensor([[0.1397]])
    """
    scaled = math.sqrt(3.0) * _distance(x1, x2)
    return (1.0 + scaled) * (-scaled).exp()


def matern52(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Matérn-5/2 covariance, :math:`(1 + \sqrt5 d + \tfrac53 d^2) \exp(-\sqrt5 d)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> matern52(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
        tensor([[0.1387]])
    """
    scaled = math.sqrt(5.0) * _distance(x1, x2)
    return (1.0 + scaled + scaled.square() / 3.0) * (-scaled).exp()


def rational_quadratic(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Rational quadratic covariance with unit shape, :math:`(1 + \tfrac12 d^2)^{-1}`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, in (0, 1].

    Example:
        >>> rational_quadratic(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
        tensor([[0.3333]])
    """
    return (1.0 - _log_squared_exponential(x1, x2)).reciprocal()


def exponential(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Exponential of the scaled dot product, :math:`\exp(z^\top z' / \sqrt D)`.

    Not stationary: its diagonal is :math:`\exp(\|z\|^2/\sqrt D)`.

    Args:
        x1: ``(*batch, N, D)``.
        x2: ``(*batch, M, D)``; ``None`` stands for ``x1``.

    Returns:
        ``(*batch, N, M)``, positive.

    Example:
        >>> exponential(torch.tensor([[1.0]]), torch.tensor([[2.0]]))
        tensor([[7.3891]])
    """
    other = x1 if x2 is None else x2
    return (x1 @ other.mT * x1.shape[-1] ** -0.5).exp()


def canonical(name: str) -> Canonical:
    """The canonical covariance of a name.

    Args:
        name: one of the keys of :data:`CANONICAL`.

    Returns:
        The covariance.

    Raises:
        ValueError: if the name is not known.

    Example:
        >>> canonical("rbf").gram is squared_exponential
        True
    """
    if name not in CANONICAL:
        raise ValueError(f"kernel: expected one of {sorted(CANONICAL)}, got {name!r}")
    return CANONICAL[name]


def _log_squared_exponential(x1: Tensor, x2: Tensor | None) -> Tensor:
    """Minus half the squared distances: one product of points augmented by their squared norms."""
    centre = (x1 if x2 is None else x2).detach().mean(-2, keepdim=True)  # drops out of every distance: no gradient
    a = x1 - centre
    b = a if x2 is None else x2 - centre
    half_a, half_b = -0.5 * a.square().sum(-1, keepdim=True), -0.5 * b.square().sum(-1, keepdim=True)
    left = torch.cat([a, half_a, torch.ones_like(half_a)], dim=-1)
    right = torch.cat([b, torch.ones_like(half_b), half_b], dim=-1)
    log_gram = (left @ right.mT).clamp(max=0.0)
    if x2 is not None:
        return log_gram
    itself = torch.eye(x1.shape[-2], dtype=torch.bool, device=x1.device)
    return log_gram.masked_fill(itself, 0.0)  # rounding would leave a distance of a point to itself


def _distance(x1: Tensor, x2: Tensor | None) -> Tensor:
    """Euclidean distances, kept a rounding step off zero so that their gradients stay finite."""
    squared = squared_distance(x1, x2)
    return squared.clamp(min=torch.finfo(squared.dtype).eps ** 2).sqrt()


def _zero(x: Tensor) -> Tensor:
    return x.new_zeros(()).expand(x.shape[:-1])


def _log_exponential_diagonal(x: Tensor) -> Tensor:
    return x.square().sum(-1) * x.shape[-1] ** -0.5


CANONICAL: dict[str, Canonical] = {
    "rbf": Canonical("rbf", squared_exponential, _zero, stationary=True),
    "matern12": Canonical("matern12", matern12, _zero, stationary=True),
    "matern32": Canonical("matern32", matern32, _zero, stationary=True),
    "matern52": Canonical("matern52", matern52, _zero, stationary=True),
    "rq": Canonical("rq", rational_quadratic, _zero, stationary=True),
    "exponential": Canonical("exponential", exponential, _log_exponential_diagonal, stationary=False),
}
