"""Factors that depend only on weights, computed once."""

from __future__ import annotations

from typing import Any, Self

import gpytorch
import torch
from torch import Tensor

from .inputs import full_precision

__all__ = ["FreezableModule"]


class FreezableModule(gpytorch.Module):
    """A module that can hold the factors of its weights until these change."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen: dict[str, Tensor] = {}

    def weight_factors(self) -> dict[str, Tensor]:
        """Factors that depend only on weights, by name; empty for a method without any."""
        return {}

    def freeze(self) -> None:
        """Compute :meth:`weight_factors` once; ``train()``, ``load_state_dict`` and ``to`` drop them.

        Raises:
            RuntimeError: if the block is in training mode.
        """
        if self.training:
            raise RuntimeError("freeze: expected a block in eval mode, got one in training mode")
        with torch.no_grad(), full_precision(next(self.parameters()).device):
            self._frozen = {name: factor.detach() for name, factor in self.weight_factors().items()}

    @property
    def is_frozen(self) -> bool:
        """Whether factors are held that :meth:`freeze` computed."""
        return bool(self._frozen)

    def frozen_factor(self, name: str) -> Tensor | None:
        """A factor that :meth:`freeze` computed, or None."""
        return self._frozen.get(name)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and drop frozen factors."""
        self._frozen = {}
        return super().train(mode)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._frozen = {}
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        self._frozen = {}
        return super()._apply(*args, **kwargs)
