"""What a run tells of a network: that it draws random numbers itself, or goes around its stochastic layers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .shared_prefix import SharedPrefix

__all__ = ["GlobalGenerators", "warn_of_randomness", "warn_of_silence"]


class GlobalGenerators:
    """The states of the global random generators, which draws of this package do not touch.

    Args:
        device: of the model, whose generator is another one than the processor's.

    Example:
        >>> generators = GlobalGenerators(torch.device("cpu"))
        >>> before = generators.states()
        >>> _ = torch.nn.functional.dropout(torch.ones(3))
        >>> generators.differ(before)
        True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def states(self) -> list[Any]:
        """The present states, which are equal until a number is drawn."""
        numbers: Any = np.random.get_state()  # noqa: NPY002 (which a model may use)
        devices = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        tensors = [torch.get_rng_state(), *devices]
        return [random.getstate(), (numbers[1].tobytes(), numbers[2]), *(state.numpy().tobytes() for state in tensors)]

    def differ(self, before: list[Any]) -> bool:
        """Whether a number was drawn since then, by any thread."""
        return self.states() != before


def warn_of_randomness(first: Tensor, again: Callable[[], Tensor], stacklevel: int = 2) -> None:
    """Warn where a second run, from the same inputs and the same noise of this package, gives another output.

    Args:
        first: output of the first run.
        again: computes it anew.
        stacklevel: frames to the caller.

    Warns:
        UserWarning: if the outputs differ.
    """
    if not torch.allclose(first, again(), rtol=1e-3, atol=1e-6, equal_nan=True):
        warnings.warn(
            "model: the model draws random numbers of its own in eval mode, so that the same inputs have other outputs "
            "in every call: no uncertainty contains them, and no guarantee holds for them (let it draw in training "
            "mode only; nn.Dropout layers draw with method='dropout')",
            stacklevel=stacklevel,
        )


def warn_of_silence(run: SharedPrefix, stacklevel: int = 2) -> None:
    """Warn of attention layers with a posterior that did not attend in a run.

    Args:
        run: after its first run.
        stacklevel: frames to the caller.

    Warns:
        UserWarning: if there are some; where none attended the run itself was refused.
    """
    if run.silent:
        warnings.warn(
            f"model: {len(run.silent)} of {len(run.blocks)} stochastic layers did not run: {', '.join(run.silent)}: "
            "their posterior is in no uncertainty (these inputs need no such layer, or the model goes around it)",
            stacklevel=stacklevel,
        )
