"""Gaussian-process heads without projections, for the attention of a host model."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cgp.functional.gaussians import Gaussian
from cgp.functional.kernels import canonical

from .base import FreezableModule, SamplingMixin
from .inputs import full_precision

__all__ = ["StochasticHeads"]


class StochasticHeads(SamplingMixin, FreezableModule):
    """Base of modules that put a Gaussian-process posterior around attention computed by a host model.

    A subclass defines :meth:`gaussian`, and :meth:`candidates` and :meth:`place_inducing` if it has inducing inputs.
    """

    canonical = canonical("rbf")
    num_inducing: int | None = None
    __call__ = nn.Module.__call__  # gpytorch.Module's skips forward hooks

    def attend(self, inputs: Any) -> Tensor:
        """The mean of the heads, or draws, ``(*batch, h, Nq, s)``; ``num_samples`` is a leading dimension if set."""
        if self.sampling == "mean":
            return self.mean_heads(inputs)
        with full_precision(inputs.q.device):
            return self.gaussian(inputs).rsample(self.sampling, self.draw_shape).to(inputs.q.dtype)

    def mean_heads(self, inputs: Any) -> Tensor:
        """The host's own attention, unchanged."""
        return inputs.call()

    def gaussian(self, inputs: Any) -> Gaussian:
        """The posterior, lazily evaluated: mean ``(*batch, h, Nq, s)``, variance ``(*batch, h, Nq)``, draws."""
        raise NotImplementedError

    def candidates(self, inputs: Any) -> list[tuple[Tensor, Tensor | None]]:
        """Queries and keys, ``(*batch, h, n, s)``, among which inducing inputs are chosen, and which are padding."""
        raise NotImplementedError

    def place_inducing(self, points: Tensor) -> None:
        """Take inducing inputs ``(h, m, s)``, in the coordinates of :meth:`candidates`."""
        raise NotImplementedError
