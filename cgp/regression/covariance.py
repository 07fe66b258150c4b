"""The covariance of a regression: one or several independent correlated processes, summed."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from cgp.kernels import CanonicalKernel, CorrelatedKernel, HadamardCorrelatedKernel

from .process_map import ProcessMap
from .radial import points_gram
from .signs import SignedPositive

__all__ = ["MAP_KINDS", "correlated_covariance", "dense_covariance", "prior_variance"]

MAP_KINDS = ("diagonal", "free", "orthogonal")
_COMPONENT_STEP = 3.0
_LOG_SCALE_WIDTH = 2.0


def correlated_covariance(
    num_processes: int,
    input_dim: int,
    *,
    kernel: str | Kernel = "rbf",
    maps: str = "diagonal",
    canonical_dim: int | None = None,
    embedding_dim: int | None = None,
    num_components: int = 1,
    shift: bool = True,
    signs: Sequence[float] | None = None,
) -> AdditiveKernel:
    r"""The covariance of P processes that share Q independent canonical processes.

    .. math:: z_p(x) = \sum_{q=1}^{Q} \sigma_{pq}\, z_o^{(q)}\big(xW_{pq}^\top + b_{pq},\; c_{pq}\big)

    With Q = 1 every process is a map and scale of one canonical process. With tied W, no b and the squared exponential
    it is the linear model of coregionalisation with Q components.

    Args:
        num_processes: P.
        input_dim: d.
        kernel: the canonical covariance; see :class:`cgp.kernels.CorrelatedKernel`.
        maps: "diagonal" (a lengthscale a dimension), "free", or "orthogonal" (to a lower dimension).
        canonical_dim: s, dimensions the inputs are mapped to; None means d.
        embedding_dim: e, coordinates that tell processes apart; None means P - 1.
        num_components: Q.
        shift: whether processes may be shifted against each other.
        signs: +1 or -1 for each process; None means +1.

    Returns:
        A sum of Q kernels of rows whose last column is the process.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> kernel = correlated_covariance(2, 1)
        >>> kernel(torch.tensor([[0.3, 0.0], [0.5, 1.0]])).shape
        torch.Size([2, 2])
    """
    if num_processes < 1 or input_dim < 1 or num_components < 1:
        got = f"{num_processes}, {input_dim}, {num_components}"
        raise ValueError(f"num_processes, input_dim, num_components: expected at least 1, got {got}")
    if maps not in MAP_KINDS:
        raise ValueError(f"maps: expected one of {MAP_KINDS}, got {maps!r}")
    width = input_dim if canonical_dim is None else canonical_dim
    if not 1 <= width <= input_dim:
        raise ValueError(f"canonical_dim: expected 1 to input_dim = {input_dim}, got {width}")
    extra = num_processes - 1 if embedding_dim is None else embedding_dim
    if extra < 0:
        raise ValueError(f"embedding_dim: expected at least 0, got {extra}")
    signs = [1.0] * num_processes if signs is None else list(signs)
    if len(signs) != num_processes:
        raise ValueError(f"signs: expected one for each of {num_processes} processes, got {len(signs)}")
    components = []
    for number in range(num_components):
        one: list[ProcessMap] = []
        for p in range(num_processes):
            first = one[0] if p else None
            one.append(
                ProcessMap(
                    input_dim, width, process=p, kind=maps, embedding_dim=extra, shift=shift and p > 0, first=first
                )
            )
        _align(one)
        _shrink(one, _COMPONENT_STEP**number)
        components.append(_component(copy.deepcopy(kernel), one, signs, num_components**-0.5))
    return AdditiveKernel(*components)


def dense_covariance(covariance: AdditiveKernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The covariance as a tensor, with gradients, whatever its size.

    Args:
        covariance: a sum of kernels with canonical points.
        x1: ``(*batch, n, d + 1)``.
        x2: ``(*batch, m, d + 1)``; None means ``x1``.

    Returns:
        ``(*batch, n, m)``.
    """
    total = torch.zeros((), dtype=x1.dtype, device=x1.device)
    for one in covariance.kernels:
        right = None if x2 is None else one.points(x2)
        total = total + points_gram(one.base_kernel, one.points(x1), right)
    return total


def prior_variance(covariance: AdditiveKernel, x: Tensor) -> Tensor:
    """The diagonal of the covariance.

    Args:
        covariance: a sum of kernels with canonical points.
        x: ``(*batch, n, d + 1)``.

    Returns:
        ``(*batch, n)``.
    """
    total: Tensor = sum(one.forward(x, x, diag=True) for one in covariance.kernels)
    return total


def _component(kernel: str | Kernel, maps: list[ProcessMap], signs: list[float], scale: float) -> CanonicalKernel:
    constraint = SignedPositive(torch.tensor(signs))
    correlated = CorrelatedKernel(kernel, len(maps), input_maps=maps, scale_constraint=constraint)
    if isinstance(kernel, str):
        correlated.base_kernel.double().lengthscale = 1.0  # to the last digit also in float64
    correlated.scales = scale
    loc, sd = (torch.tensor(value, dtype=torch.float64) for value in (0.0, _LOG_SCALE_WIDTH))
    correlated.register_prior("scale_prior", LogNormalPrior(loc, sd), _magnitudes, _set_magnitudes)
    return HadamardCorrelatedKernel(correlated)


def _align(maps: list[ProcessMap]) -> None:
    """Let all processes look in the same directions at first."""
    for one in maps[1:]:
        if one.linear.kind == "free":
            one.linear.weight = maps[0].weight.detach()
        if one.linear.kind == "orthogonal":
            one.linear.directions = maps[0].linear.directions.detach()


def _shrink(maps: list[ProcessMap], factor: float) -> None:
    """Divide the lengthscales by a factor, so that components start apart."""
    for one in maps:
        one.rescale(factor)


def _magnitudes(kernel: CorrelatedKernel) -> Tensor:
    return kernel.scales.abs()


def _set_magnitudes(kernel: CorrelatedKernel, value: Tensor) -> None:
    kernel.scales = value
