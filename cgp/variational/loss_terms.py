"""Per-sequence terms that blocks add to the training loss."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gpytorch.mlls import AddedLossTerm
from torch import Tensor

__all__ = ["KINDS", "LossTerm"]

KINDS = ("log_density", "kl", "ksvd")


class LossTerm(AddedLossTerm):
    """A scalar that is added to the training loss, weighted by its kind.

    Terms belong to the sequences of the batch and are averages over them, so they are never divided by the size of the
    data set; divergences of variables that the whole data set shares go through
    ``variational_strategy.kl_divergence()``.

    Args:
        value: the term, a scalar to be minimised: a negative log-density, a KL divergence, or the KSVD loss.
        kind: "log_density" (weighted by alpha), "kl" (by beta) or "ksvd" (by one).

    Raises:
        ValueError: if the kind is unknown.
    """

    def __init__(self, value: Tensor, kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
        self.value = value
        self.kind = kind

    def loss(self) -> Tensor:
        """The scalar."""
        return self.value

    def __deepcopy__(self, memo: dict[int, Any]) -> LossTerm:
        """A detached copy: graphs cannot be copied."""
        return LossTerm(deepcopy(self.value.detach(), memo), self.kind)
