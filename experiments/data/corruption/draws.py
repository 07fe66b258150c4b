"""Random numbers of one image each: what becomes of an image does not depend on its company."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from experiments.data.seeding import generator_for

__all__ = ["Draws"]


class Draws:
    """A generator an image, named by the image's id.

    Args:
        names: what is drawn, and its seed.
        ids: of the images.

    Example:
        >>> together = Draws("noise", ids=[3, 4]).normal(2)
        >>> torch.equal(together[1:], Draws("noise", ids=[4]).normal(2))
        True
    """

    def __init__(self, *names: str | int, ids: Sequence[int]) -> None:
        self._generators = [generator_for(*names, number) for number in ids]

    def normal(self, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw from the standard normal."""
        return self._stacked(lambda generator: torch.randn(shape, generator=generator))

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw evenly from [low, high)."""
        return low + (high - low) * self._stacked(lambda generator: torch.rand(shape, generator=generator))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw whole numbers evenly from low to high - 1."""
        return self._stacked(lambda generator: torch.randint(low, high, shape, generator=generator))

    def poisson(self, rates: Tensor) -> Tensor:  # shape: (N, *shape)
        """Draw counts of the rates (N, *shape)."""
        pairs = zip(rates, self._generators, strict=True)
        return torch.stack([torch.poisson(rate, generator=generator) for rate, generator in pairs])

    def _stacked(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        return torch.stack([draw(generator) for generator in self._generators])
