"""A Markov covariance that is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from .dense_covariance import described
from .markov import MarkovLinearOperator

__all__ = ["PromisedMarkovLinearOperator"]


class PromisedMarkovLinearOperator(LinearOperator):
    """The covariance of new and of observed rows, of which predictions may need nothing; without gradients.

    Args:
        new: new rows, ``(m, d)``.
        observed: observed rows, ``(n, d)``.
        make: the covariance of both, new ones first.
        size: number of entries of a row.
    """

    def __init__(
        self, new: Tensor, observed: Tensor, make: Callable[[Tensor, Tensor], MarkovLinearOperator], size: int = 1
    ) -> None:
        super().__init__(new, observed, make=make, size=size)
        self.new, self.observed, self._make, self._entries = new, observed, make, size

    __repr__ = described

    @cached_property
    def made(self) -> MarkovLinearOperator:
        """The covariance."""
        with torch.no_grad():
            return self._make(self.new, self.observed)

    def _size(self) -> torch.Size:
        count = (len(self.new) + len(self.observed)) * self._entries
        return torch.Size([count, count])

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.made._matmul(rhs)

    def _transpose_nonbatch(self) -> PromisedMarkovLinearOperator:
        return self

    def representation(self) -> tuple[Tensor, ...]:
        """The tensors of the covariance."""
        representation: tuple[Tensor, ...] = self.made.representation()
        return representation

    def representation_tree(self) -> Any:
        """How the covariance is made of them."""
        return self.made.representation_tree()
