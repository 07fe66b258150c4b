"""Rows that grow at their end, without those before being copied each time."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

__all__ = ["Parts"]


class Parts(NamedTuple):
    """Tensors that are meant to be one.

    A further one is joined to those before it that are no longer than it: n rows that come one by one are copied
    log n times each, and are never in more than log n parts (Bentley & Saxe 1980, Decomposable searching problems).

    Attributes:
        parts: equal in all other dimensions.
        dim: along which they follow each other.
    """

    parts: tuple[Tensor, ...]
    dim: int

    @classmethod
    def of(cls, values: Tensor, dim: int) -> Self:
        """A single part."""
        return cls((values,), dim)

    @property
    def batch(self) -> torch.Size:
        """The dimensions before it."""
        return self.parts[0].shape[: self.dim]

    @property
    def whole(self) -> Tensor:
        """All in one."""
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts, self.dim)

    def merged(self) -> Self:
        """In one part."""
        return self._replace(parts=(self.whole,))

    def appended(self, further: Tensor) -> Self:
        """With further rows at the end."""
        parts = self.parts
        while parts and parts[-1].shape[self.dim] <= further.shape[self.dim]:
            parts, further = parts[:-1], torch.cat([parts[-1], further], self.dim)
        return self._replace(parts=(*parts, further))
