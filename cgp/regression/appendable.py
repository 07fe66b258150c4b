"""Tensors that grow by appended rows, without a copy of all rows each time."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

__all__ = ["Parts"]


class Parts(NamedTuple):
    """A tensor stored in parts.

    A new part is joined to the preceding parts that are not longer than it: of n rows appended one by one, each is
    copied log n times, and there are never more than log n parts (Bentley & Saxe 1980, Decomposable searching
    problems).

    Attributes:
        parts: tensors that agree in all other dimensions.
        dim: dimension along which they are concatenated.
    """

    parts: tuple[Tensor, ...]
    dim: int

    @classmethod
    def of(cls, values: Tensor, dim: int) -> Self:
        """A single part."""
        return cls((values,), dim)

    @property
    def batch(self) -> torch.Size:
        """The dimensions before ``dim``."""
        return self.parts[0].shape[: self.dim]

    @property
    def whole(self) -> Tensor:
        """The whole tensor."""
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts, self.dim)

    def merged(self) -> Self:
        """The same tensor in one part."""
        return self._replace(parts=(self.whole,))

    def appended(self, further: Tensor) -> Self:
        """The tensor with further rows at its end."""
        parts = self.parts
        while parts and parts[-1].shape[self.dim] <= further.shape[self.dim]:
            parts, further = parts[:-1], torch.cat([parts[-1], further], self.dim)
        return self._replace(parts=(*parts, further))
