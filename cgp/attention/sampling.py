"""How a layer draws: by itself in training, its mean in eval mode, or as it is told."""

from __future__ import annotations

import torch

from cgp.functional.gaussians import SAMPLING, check_sampling

__all__ = ["SamplingMixin"]


class SamplingMixin:
    """For modules that can draw.

    Attributes:
        stochastic: whether the module can draw at all.
        num_samples: S, draws that it puts in front of its output; None is one draw without that dimension.
    """

    stochastic: bool = True
    num_samples: int | None = None
    training: bool
    _sampling: str | None = None

    @property
    def sampling(self) -> str:
        """What ``forward`` returns: the "mean", or a "marginal" or "joint" draw.

        Unless it is set, marginal in training and mean in eval mode.
        """
        if self._sampling is not None:
            return self._sampling
        return "marginal" if self.training and self.stochastic else "mean"

    @sampling.setter
    def sampling(self, value: str | None) -> None:
        if value is not None:
            check_sampling(value, SAMPLING)
        self._sampling = value

    @property
    def draw_shape(self) -> torch.Size:
        """Leading shape of draws: ``num_samples`` if that is set and the module draws."""
        return torch.Size() if self.num_samples is None or self.sampling == "mean" else torch.Size([self.num_samples])
