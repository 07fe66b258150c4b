"""Functions of one input, of which some points are observed and others asked."""

import math
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from cgp.functional.kernels import canonical

__all__ = ["KINDS", "Drawn", "Recipe", "Tasks", "draw", "on_circle", "random_contexts"]

KINDS = ("rbf", "matern52", "periodic", "sawtooth")
_SPREAD = math.sqrt(3.0)  # teeth between plus and minus this have unit variance


class Tasks(NamedTuple):
    """B functions: what is observed of them and what is asked.

    Attributes:
        x: inputs of the contexts, ``(B, n)``.
        y: their values, ``(B, n)``.
        x_targets: inputs that are asked, ``(B, m)``.
        y_targets: their noisy values, ``(B, m)``.
        padding: ``(B, n)`` bool, True = no context; None where all are.
    """

    x: Tensor
    y: Tensor
    x_targets: Tensor
    y_targets: Tensor
    padding: Tensor | None = None

    @property
    def inputs(self) -> Tensor:
        """Inputs of contexts and targets, ``(B, n + m)``."""
        return torch.cat([self.x, self.x_targets], -1)

    def part(self, start: int, end: int) -> Self:
        """The functions from one number to another."""
        rows = slice(start, end)
        padding = None if self.padding is None else self.padding[rows]
        return type(self)(self.x[rows], self.y[rows], self.x_targets[rows], self.y_targets[rows], padding)

    def asking(self, number: int) -> Self:
        """The target of this number, with all before it among the contexts: a factor of the chain rule."""
        x, y = (torch.cat([a, b[:, :number]], -1) for a, b in ((self.x, self.x_targets), (self.y, self.y_targets)))
        padding = None if self.padding is None else torch.nn.functional.pad(self.padding, (0, number), value=False)
        part = slice(number, number + 1)
        return type(self)(x, y, self.x_targets[:, part], self.y_targets[:, part], padding)


class Drawn(NamedTuple):
    """Tasks, and the law that they were drawn from where it is a Gaussian process.

    Attributes:
        tasks: B functions.
        covariance: of the function at contexts and targets, ``(B, n + m, n + m)``, or None.
        noise: variance of the noise, ``(B,)``.
    """

    tasks: Tasks
    covariance: Tensor | None
    noise: Tensor


class Recipe(NamedTuple):
    """How functions are drawn; each range is that of a log-uniform number per function, in units of the input.

    Attributes:
        kinds: equally probable kinds, of :data:`KINDS`.
        contexts: smallest and largest number of contexts.
        targets: their number.
        lengths: lengthscales; a tooth is twice, a period three times as long.
        noise: standard deviations of the noise; functions have unit variance.
        asked: interval of the targets; contexts lie in [-2, 2].
    """

    kinds: tuple[str, ...] = KINDS
    contexts: tuple[int, int] = (3, 32)
    targets: int = 24
    lengths: tuple[float, float] = (0.2, 0.8)
    noise: tuple[float, float] = (0.02, 0.2)
    asked: tuple[float, float] = (-2.0, 2.0)


def draw(recipe: Recipe, count: int, generator: torch.Generator, *, ragged: bool = False) -> Drawn:
    """Draw functions of one kind, with one number of contexts or (``ragged``) one number for each and padding."""
    kind = recipe.kinds[int(torch.randint(len(recipe.kinds), (), generator=generator))]
    low, high = recipe.contexts
    most = high if ragged else int(torch.randint(low, high + 1, (), generator=generator))
    uniform = torch.rand(count, most + recipe.targets, generator=generator, dtype=torch.float64)
    start, end = recipe.asked
    x = torch.cat([4.0 * uniform[:, :most] - 2.0, start + (end - start) * uniform[:, most:]], -1)
    length, sd = (_log_uniform(ends, count, generator) for ends in (recipe.lengths, recipe.noise))
    covariance = None if kind == "sawtooth" else _covariance(kind, x, length, generator)
    f = _teeth(x, length, generator) if covariance is None else _sample(covariance, generator)
    y = f + sd[:, None] * torch.randn(f.shape, generator=generator, dtype=f.dtype)
    padding = random_contexts(recipe.contexts, count, generator) if ragged else None
    parts = [part.float() for values in (x, y) for part in (values[:, :most], values[:, most:])]
    tasks = Tasks(parts[0], parts[2], parts[1], parts[3], padding)
    return Drawn(tasks, covariance, sd.square())


def random_contexts(ends: tuple[int, int], count: int, generator: torch.Generator) -> Tensor:
    """Padding ``(count, largest)`` that leaves a random number of contexts between both ends."""
    numbers = torch.randint(ends[0], ends[1] + 1, (count, 1), generator=generator)
    return torch.arange(ends[1]) >= numbers


def on_circle(x: Tensor, period: Tensor) -> Tensor:
    r"""Places on a unit circle, :math:`(\cos, \sin)(2\pi x/p)`, with distances :math:`2|\sin(\pi\tau/p)|`."""
    angle = 2.0 * math.pi * x / period
    return torch.stack([angle.cos(), angle.sin()], -1)


def _covariance(kind: str, x: Tensor, length: Tensor, generator: torch.Generator) -> Tensor:
    if kind == "periodic":
        points = on_circle(x, 3.0 * length[:, None])
        return canonical("rbf").gram(points / _log_uniform((0.6, 1.2), len(x), generator)[:, None, None])
    return canonical(kind).gram((x / length[:, None])[..., None])


def _sample(covariance: Tensor, generator: torch.Generator) -> Tensor:
    """A draw of each of these Gaussians; their jitter is a hundredth of the smallest variance of the noise."""
    tiny = 1e-6 * torch.eye(covariance.shape[-1], dtype=covariance.dtype)
    normal = torch.randn(covariance.shape[:-1], generator=generator, dtype=covariance.dtype)
    return (torch.linalg.cholesky(covariance + tiny) @ normal[..., None])[..., 0]


def _teeth(x: Tensor, length: Tensor, generator: torch.Generator) -> Tensor:
    phase, turn = (torch.rand(len(x), 1, generator=generator, dtype=x.dtype) for _ in range(2))
    place = x / (2.0 * length[:, None]) * torch.where(turn < 0.5, -1.0, 1.0)
    return _SPREAD * (2.0 * torch.remainder(place + phase, 1.0) - 1.0)


def _log_uniform(ends: tuple[float, float], count: int, generator: torch.Generator) -> Tensor:
    low, high = map(math.log, ends)
    return (low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)).exp()


Stream = Callable[[torch.Generator], Tasks]
"""Draws a batch of training tasks."""
