"""Seeds of draws, and the variance that they estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

__all__ = ["DrawVariance", "draw_noises", "seeds_from"]


def draw_noises(num_samples: int, seeds: Callable[[], int], *, antithetic: bool = True) -> Iterator[tuple[int, float]]:
    """Seed and sign of the noise of each of S draws; antithetic ones use a seed twice, the second time reflected."""
    for index in range(num_samples):
        if not antithetic or index % 2 == 0:
            seed = seeds()
        yield seed, -1.0 if antithetic and index % 2 else 1.0


def seeds_from(seed: int | None) -> Callable[[], int]:
    """Seeds of one draw after another, from a generator of their own; None takes its seed from torch's global one."""
    generator = torch.Generator()
    generator.manual_seed(int(torch.randint(2**62, ())) if seed is None else seed)
    return lambda: int(torch.randint(2**62, (), generator=generator))


class DrawVariance:
    r"""Variance of a function of the noise, without bias, from draws that come one after the other.

    A pair of opposite noise gives the even part of the function, :math:`m = (f(z) + f(-z)) / 2`, and the odd one,
    :math:`o = (f(z) - f(-z)) / 2`, which are uncorrelated, and E[o] = 0: of P pairs

    .. math:: \operatorname{Var} f \approx \tfrac1P\textstyle\sum_p o_p^2 + \tfrac1{P - 1}\sum_p (m_p - \bar m)^2

    The sample variance of the 2P draws is too large by 2P / (2P − 1) where the function is linear. A single pair tells
    nothing of the even part, which is left out. A last draw that stands alone has the weight of one draw.

    Args:
        antithetic: whether the draws come in pairs of opposite noise, 0 with 1, 2 with 3.

    Example:
        >>> variance = DrawVariance()
        >>> for draw in (3.0, -3.0, 1.0, -1.0):
        ...     variance.add(torch.tensor(draw))
        >>> variance.value()
        tensor(5.)
    """

    def __init__(self, *, antithetic: bool = True) -> None:
        self.antithetic = antithetic
        self.waiting: Tensor | None = None  # the first of a pair
        self.count = 0  # of means
        self.mean: Tensor = torch.zeros(())  # of the pairs, or of the draws
        self.even: Tensor = torch.zeros(())  # squares of their deviations from it
        self.odd: Tensor = torch.zeros(())  # squares of the pairs' odd parts

    def add(self, draw: Tensor) -> None:
        """Add a draw, of the shape of the others."""
        if not self.antithetic:
            self._add(draw)
        elif self.waiting is None:
            self.waiting = draw
        else:
            self._add((self.waiting + draw) / 2)
            self.odd = self.odd + ((self.waiting - draw) / 2).square()
            self.waiting = None

    def value(self) -> Tensor | None:
        """The variance, None of less than two draws."""
        if not self.antithetic:
            return self.even / (self.count - 1) if self.count > 1 else None
        pairs = self.count
        if not pairs:
            return None
        odd, even = self.odd / pairs, self.even / max(pairs - 1, 1)
        if self.waiting is None:
            return odd + even
        alone = (self.waiting - self.mean).square()  # on average (1 + 1/P) of the even part's variance and the odd's
        weight = 0.5 if pairs == 1 else 1.0 / (2 * pairs + 1)
        return (1.0 - weight) * odd + (1.0 - weight * (1.0 + 1.0 / pairs)) * even + weight * alone

    def _add(self, value: Tensor) -> None:
        self.count += 1
        step = value - self.mean
        self.mean = self.mean + step / self.count
        self.even = self.even + step * (value - self.mean)
