r"""Kernels of one ordered input as objects: sums and products of Markov processes.

A kernel of one's own is a class with one method, :meth:`MarkovKernel.process`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from .processes import (
    MarkovProcess,
    constant_process,
    harmonic_process,
    integrated_wiener_process,
    matern_process,
    oscillator_process,
    periodic_weights,
    product_process,
    trend_process,
)

__all__ = [
    "Constant",
    "Cosine",
    "DampedOscillator",
    "IntegratedWiener",
    "Linear",
    "MarkovKernel",
    "Matern",
    "Periodic",
    "StateSpaceForm",
    "Steps",
]

_MISSING = 1e-10  # share of the variance of a periodic kernel in the omitted harmonics
_MOST_HARMONICS = 250  # enough for lengthscales from 0.0006


class Steps(NamedTuple):
    """Inputs in order.

    Attributes:
        lags: steps between inputs, at least 0, ``(*batch, U)``.
        start: the first input, ``(*batch,)``.
    """

    lags: Tensor
    start: Tensor


class StateSpaceForm(NamedTuple):
    r"""A kernel as a linear stochastic differential equation over some lags, :math:`f = h^\top s`.

    Attributes:
        transition: A, ``(*batch, U, d, d)``.
        noise: Q, ``(*batch, U, d, d)``.
        stationary: P, ``(*batch, d, d)``; of a kernel that is not stationary, the covariance at the first input.
        readout: h, ``(d,)``.
    """

    transition: Tensor
    noise: Tensor
    stationary: Tensor
    readout: Tensor


class MarkovKernel(ABC):
    """A covariance of one ordered input whose process is a linear function of a small Markov chain.

    Kernels are added, and multiplied with each other and with numbers or tensors ``(*batch,)``. A class of one's own
    says its :meth:`process`; if it is not stationary, it says so.

    Example:
        >>> class Exponential(MarkovKernel):
        ...     def process(self, steps):
        ...         A = torch.exp(-steps.lags)[..., None, None]
        ...         return MarkovProcess(A, 1.0 - A**2, torch.ones(1, 1).to(A))
        >>> kernel = 0.5 * Exponential() + Matern(torch.tensor(2.0), 1) * Cosine(torch.tensor(1.0))
        >>> kernel.state_space(torch.tensor([0.0, 0.3])).readout
        tensor([1., 1., 0., 0., 0.])
    """

    stationary = True

    @abstractmethod
    def process(self, steps: Steps) -> MarkovProcess:
        """The process at some lags: f is the first of its states."""

    def processes(self, steps: Steps) -> list[MarkovProcess]:
        """Independent processes whose covariances add up to that of the kernel."""
        return [self.process(steps)]

    def state_space(self, lags: Tensor, start: Tensor | float = 0.0) -> StateSpaceForm:
        """The kernel's (A, Q, P, h): its processes side by side.

        Args:
            lags: at least 0, ``(*batch, U)``.
            start: the first input, which matters if the kernel is not stationary.

        Returns:
            Of d states.
        """
        parts = self.processes(Steps(lags, torch.as_tensor(start).to(lags)))
        transition, noise, stationary = (_side_by_side(field) for field in zip(*parts, strict=True))
        first = [torch.eye(part.stationary.shape[-1])[0] for part in parts]
        return StateSpaceForm(transition, noise, stationary, torch.cat(first).to(lags))

    def covariance(self, lags: Tensor) -> Tensor:
        """Covariances at some lags, of a stationary kernel.

        Args:
            lags: at least 0, ``(*batch, U)``.

        Returns:
            ``(*batch, U)``.

        Raises:
            ValueError: if the kernel is not stationary.
        """
        if not self.stationary:
            raise ValueError(f"kernel: {type(self).__name__} is not stationary, its covariance is not one of lags")
        parts = self.processes(Steps(lags, lags.new_zeros(())))
        values = [(part.transition @ part.stationary[..., None, :, :])[..., 0, 0] for part in parts]
        return torch.stack(torch.broadcast_tensors(*values)).sum(0)

    def __add__(self, other: MarkovKernel) -> MarkovKernel:
        """The sum."""
        return Sum((self, other))

    def __mul__(self, other: MarkovKernel | Tensor | float) -> MarkovKernel:
        """The product with another kernel, or with a variance."""
        return Product((self, other)) if isinstance(other, MarkovKernel) else Scaled(self, other)

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class Sum(MarkovKernel):
    """The sum of kernels."""

    terms: tuple[MarkovKernel, ...]

    @property
    def stationary(self) -> bool:  # type: ignore[override]
        """Whether all terms are."""
        return all(term.stationary for term in self.terms)

    def process(self, steps: Steps) -> MarkovProcess:
        """The processes of all terms side by side, with their sum in place of the first state."""
        raise ValueError("kernel: a sum has several processes")

    def processes(self, steps: Steps) -> list[MarkovProcess]:
        """Those of all terms."""
        return [process for term in self.terms for process in term.processes(steps)]


@dataclass(frozen=True, eq=False)
class Product(MarkovKernel):
    """The product of stationary kernels."""

    factors: tuple[MarkovKernel, ...]

    def __post_init__(self) -> None:
        wrong = [type(factor).__name__ for factor in self.factors if not factor.stationary]
        if wrong:
            raise ValueError(f"kernel: expected stationary factors, got {wrong[0]}")

    def process(self, steps: Steps) -> MarkovProcess:
        """The product of the factors' processes, where each has one."""
        return reduce(product_process, [factor.process(steps) for factor in self.factors])

    def processes(self, steps: Steps) -> list[MarkovProcess]:
        """The products of the factors' processes."""
        choices = itertools.product(*(factor.processes(steps) for factor in self.factors))
        return [reduce(product_process, choice) for choice in choices]


@dataclass(frozen=True, eq=False)
class Scaled(MarkovKernel):
    """A kernel times a variance ``(*batch,)``."""

    kernel: MarkovKernel
    variance: Tensor | float

    @property
    def stationary(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.stationary

    def process(self, steps: Steps) -> MarkovProcess:
        """The kernel's process, scaled."""
        return _scaled(self.kernel.process(steps), self.variance)

    def processes(self, steps: Steps) -> list[MarkovProcess]:
        """The kernel's processes, scaled."""
        return [_scaled(process, self.variance) for process in self.kernel.processes(steps)]


@dataclass(frozen=True, eq=False)
class Matern(MarkovKernel):
    """Matérn kernel of smoothness degree + 1/2, of unit variance; see :func:`.matern_process`."""

    lengthscale: Tensor
    degree: int

    def process(self, steps: Steps) -> MarkovProcess:
        """Of degree + 1 states."""
        return matern_process(steps.lags / self.lengthscale[..., None], self.degree)


@dataclass(frozen=True, eq=False)
class Cosine(MarkovKernel):
    r"""The kernel :math:`\cos(2\pi\tau/p)`, of unit variance."""

    period: Tensor

    def process(self, steps: Steps) -> MarkovProcess:
        """Of two states, without noise."""
        return harmonic_process(steps.lags / self.period[..., None], 1)


@dataclass(frozen=True, eq=False)
class Periodic(MarkovKernel):
    r"""The kernel :math:`\exp(-2\sin^2(\pi\tau/p)/\ell^2)` as a constant and harmonics.

    Times a Matérn kernel it is quasi-periodic: a cycle that drifts.
    """

    period: Tensor
    lengthscale: Tensor

    def process(self, steps: Steps) -> MarkovProcess:
        """It has several."""
        raise ValueError("kernel: a periodic kernel has several processes")

    def processes(self, steps: Steps) -> list[MarkovProcess]:
        """As many harmonics as leave a share of 1e-10 of the variance out."""
        lags = steps.lags / self.period[..., None]
        weights = periodic_weights(self.lengthscale.to(lags), _MOST_HARMONICS)
        missing = (1.0 - weights.detach().cumsum(-1)).reshape(-1, _MOST_HARMONICS).amax(0)
        count = min(int((missing > _MISSING).sum()) + 1, _MOST_HARMONICS)
        harmonics = [harmonic_process(lags, number, weights[..., number]) for number in range(1, count)]
        return [constant_process(lags, weights[..., 0]), *harmonics]


@dataclass(frozen=True, eq=False)
class DampedOscillator(MarkovKernel):
    """The kernel of a damped oscillator, of unit variance; see :func:`.oscillator_process`."""

    frequency: Tensor
    quality: Tensor

    def process(self, steps: Steps) -> MarkovProcess:
        """Of two states."""
        return oscillator_process(steps.lags, self.frequency, self.quality)


@dataclass(frozen=True, eq=False)
class Constant(MarkovKernel):
    """A random constant of unit variance."""

    def process(self, steps: Steps) -> MarkovProcess:
        """Of one state, without noise."""
        return constant_process(steps.lags)


@dataclass(frozen=True, eq=False)
class Linear(MarkovKernel):
    """Lines through the origin whose slope has unit variance; not stationary."""

    stationary = False

    def process(self, steps: Steps) -> MarkovProcess:
        """Of two states, without noise."""
        return trend_process(*steps)


@dataclass(frozen=True, eq=False)
class IntegratedWiener(MarkovKernel):
    """The prior of a cubic spline that starts at input 0, with unit diffusion; not stationary."""

    stationary = False

    def process(self, steps: Steps) -> MarkovProcess:
        """Of two states."""
        if bool((steps.start < 0).any()):
            raise ValueError(f"x: expected inputs from 0, where the kernel starts, got {float(steps.start.min()):g}")
        return integrated_wiener_process(*steps)


def _side_by_side(matrices: Iterable[Tensor]) -> Tensor:
    """Matrices ``(*batch, d, d)`` as the blocks of one."""
    every = list(matrices)
    batch = torch.broadcast_shapes(*(matrix.shape[:-2] for matrix in every))
    flat = [matrix.expand(*batch, *matrix.shape[-2:]).reshape(-1, *matrix.shape[-2:]) for matrix in every]
    joined = torch.stack([torch.block_diag(*blocks) for blocks in zip(*flat, strict=True)])
    return joined.reshape(*batch, *joined.shape[-2:])


def _scaled(process: MarkovProcess, variance: Tensor | float) -> MarkovProcess:
    weight = torch.as_tensor(variance, dtype=process.noise.dtype)
    return process._replace(
        noise=weight[..., None, None, None] * process.noise, stationary=weight[..., None, None] * process.stationary
    )
