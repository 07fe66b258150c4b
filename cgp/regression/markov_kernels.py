"""GPyTorch kernels of one input as Markov processes, whose posteriors take linear time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple

from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    ScaleKernel,
)
from torch import Tensor

from cgp.statespace.kernels import (
    MarkovProcess,
    constant_process,
    harmonic_process,
    matern_process,
    periodic_weights,
    product_process,
    trend_process,
)

__all__ = ["Steps", "markov_obstacle", "markov_processes"]

_MISSING = 1e-10  # share of the variance of a periodic kernel in the omitted harmonics
_MOST_HARMONICS = 250  # enough for lengthscales from 0.0006


class Steps(NamedTuple):
    """Inputs in order.

    Attributes:
        lags: steps between inputs, ``(U,)``.
        start: the first input, a scalar.
    """

    lags: Tensor
    start: Tensor


def markov_processes(kernel: Kernel, steps: Steps) -> list[MarkovProcess]:
    r"""Independent processes whose covariances add up to that of a kernel.

    Args:
        kernel: Matérn, periodic, cosine, linear or constant, scaled, or sums or products of these.
        steps: the inputs, in order, in the kernel's units.

    Returns:
        A process for each term of the sum, at these lags, with gradients by the kernel's parameters.

    Raises:
        ValueError: if the kernel is of another kind.

    Example:
        >>> import torch
        >>> steps = Steps(torch.tensor([0.0, 1.0]), torch.tensor(0.0))
        >>> [process.stationary.shape[-1] for process in markov_processes(MaternKernel(nu=1.5), steps)]
        [2]
    """
    obstacle = markov_obstacle(kernel)
    if obstacle is not None:
        raise ValueError(f"kernel: {obstacle}")
    return _PROCESSES[type(kernel)](kernel, steps)


def markov_obstacle(kernel: Kernel) -> str | None:
    """Why a kernel of one input is no sum of Markov processes, or None if it is."""
    for part in _parts(kernel):
        if type(part) not in _PROCESSES:
            known = ", ".join(sorted(kind.__name__ for kind in _PROCESSES))
            return f"{type(part).__name__} is not one of {known}"
        if part.active_dims is not None or any(p.numel() > 1 for p in part.parameters(recurse=False)):
            return f"{type(part).__name__} has batch dimensions, or several or chosen inputs"
        if isinstance(part, ProductKernel) and any(isinstance(factor, LinearKernel) for factor in _parts(part)):
            return "LinearKernel is a factor of a product"
    return None


def _parts(kernel: Kernel) -> Iterator[Kernel]:
    """A kernel and all of its parts."""
    yield kernel
    children = [kernel.base_kernel] if isinstance(kernel, ScaleKernel) else getattr(kernel, "kernels", [])
    for child in children:
        yield from _parts(child)


def _matern(kernel: MaternKernel, steps: Steps) -> list[MarkovProcess]:
    return [matern_process(steps.lags / kernel.lengthscale.reshape(()), round(kernel.nu - 0.5))]


def _constant(kernel: ConstantKernel, steps: Steps) -> list[MarkovProcess]:
    return [constant_process(steps.lags, kernel.constant.reshape(()))]


def _linear(kernel: LinearKernel, steps: Steps) -> list[MarkovProcess]:
    return [trend_process(*steps, kernel.variance.reshape(()))]


def _cosine(kernel: CosineKernel, steps: Steps) -> list[MarkovProcess]:
    return [harmonic_process(steps.lags / (2.0 * kernel.period_length.reshape(())), 1)]


def _periodic(kernel: PeriodicKernel, steps: Steps) -> list[MarkovProcess]:
    lags = steps.lags / kernel.period_length.reshape(())
    lengthscale = kernel.lengthscale.reshape(()).to(lags)
    weights = periodic_weights(lengthscale.sqrt(), _MOST_HARMONICS)  # GPyTorch's lengthscale is a square
    count = int((1.0 - weights.detach().cumsum(0) > _MISSING).sum()) + 1
    harmonics = [harmonic_process(lags, number, weights[number]) for number in range(1, min(count, _MOST_HARMONICS))]
    return [constant_process(lags, weights[0]), *harmonics]


def _scaled(kernel: ScaleKernel, steps: Steps) -> list[MarkovProcess]:
    scale = kernel.outputscale.reshape(())
    parts = markov_processes(kernel.base_kernel, steps)
    return [part._replace(noise=scale * part.noise, stationary=scale * part.stationary) for part in parts]


def _sum(kernel: AdditiveKernel, steps: Steps) -> list[MarkovProcess]:
    return [process for part in kernel.kernels for process in markov_processes(part, steps)]


def _product(kernel: ProductKernel, steps: Steps) -> list[MarkovProcess]:
    factors = [markov_processes(part, steps) for part in kernel.kernels]
    return [reduce(product_process, terms) for terms in itertools.product(*factors)]


_PROCESSES: dict[type[Kernel], Callable[..., list[MarkovProcess]]] = {
    AdditiveKernel: _sum,
    ConstantKernel: _constant,
    CosineKernel: _cosine,
    LinearKernel: _linear,
    MaternKernel: _matern,
    PeriodicKernel: _periodic,
    ProductKernel: _product,
    ScaleKernel: _scaled,
}
