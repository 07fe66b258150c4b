"""Gaussian-process heads without projections of their own: what stands inside a host's attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cgp.functional.gaussians import SAMPLING, DenseGaussian, LowRankGaussian, MarginalGaussian, check_sampling
from cgp.functional.kernels import canonical

from .freezing import FreezableModule
from .inputs import full_precision

__all__ = ["StochasticHeads"]


class StochasticHeads(FreezableModule):
    """Base of modules that add a Gaussian-process posterior to attention which a host model computes.

    They draw as :class:`~cgp.attention.gaussian_process.GaussianProcessAttention` does: the mean in eval mode, marginal
    draws in training, unless ``sampling`` is set.
    """

    stochastic = True
    draws_from_gaussian = True
    canonical = canonical("rbf")
    num_inducing: int | None = None
    __call__ = nn.Module.__call__  # GPyTorch's own skips forward hooks

    def __init__(self) -> None:
        super().__init__()
        self._sampling: str | None = None
        self.num_samples: int | None = None

    @property
    def sampling(self) -> str:
        """What :meth:`attend` returns: the "mean", or a "marginal" or "joint" draw."""
        return self._sampling or ("marginal" if self.training else "mean")

    @sampling.setter
    def sampling(self, value: str | None) -> None:
        if value is not None:
            check_sampling(value, SAMPLING)
        self._sampling = value

    @property
    def draw_shape(self) -> torch.Size:
        """Shape of what draws have in front: ``num_samples``, which few hosts carry, if that is set."""
        return torch.Size() if self.num_samples is None or self.sampling == "mean" else torch.Size([self.num_samples])

    def attend(self, inputs: Any) -> Tensor:
        """The mean of the heads, or a draw of them; with ``num_samples`` set, as many in front.

        Args:
            inputs: what the host attends with; its ``call()`` is the host's own attention.

        Returns:
            ``(*batch, h, Nq, s)``.
        """
        if self.sampling == "mean":
            return self.mean(inputs)
        with full_precision(inputs.q.device):
            return self.gaussian(inputs).rsample(self.sampling, self.draw_shape).to(inputs.q.dtype)

    def mean(self, inputs: Any) -> Tensor:
        """The host's own attention, untouched."""
        return inputs.call()

    def gaussian(self, inputs: Any) -> MarginalGaussian | DenseGaussian | LowRankGaussian:
        """The posterior that ``sampling`` needs."""
        return self.joint(inputs) if self.sampling == "joint" else self.marginals(inputs)

    def marginals(self, inputs: Any) -> MarginalGaussian:
        """Mean ``(*batch, h, Nq, s)`` and variance ``(*batch, h, Nq)``."""
        raise NotImplementedError

    def candidates(self, inputs: Any) -> list[tuple[Tensor, Tensor | None]]:
        """Queries and keys, ``(*batch, h, n, s)``, among which inducing inputs are chosen, and which are padding."""
        raise NotImplementedError

    def place_inducing(self, points: Tensor) -> None:
        """Take inducing inputs ``(h, m, s)``, in the coordinates of :meth:`candidates`."""
        raise NotImplementedError

    def joint(self, inputs: Any) -> DenseGaussian | LowRankGaussian:
        """Mean ``(*batch, h, Nq, s)`` and a covariance over the queries."""
        raise NotImplementedError
