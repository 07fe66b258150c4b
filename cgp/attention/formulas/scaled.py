"""A process that is a constant times a unit process."""

from __future__ import annotations

from torch import Tensor

from cgp.functional.gaussians import Gaussian, lazy

from .softmax import AroundMean

__all__ = ["ScaledGaussian"]


class ScaledGaussian(AroundMean):
    r"""A posterior of a unit process with its mean and its covariance scaled, :math:`N(g\mu, \tau^2V)`.

    Args:
        bracket: the posterior of the unit process.
        amplitude: :math:`\tau`, broadcastable to ``(*batch, n)``.
        gain: g, likewise; None is one.

    Example:
        >>> import torch
        >>> from cgp.functional.gaussians import MarginalGaussian
        >>> unit = MarginalGaussian(torch.ones(3, 2), torch.ones(3))
        >>> ScaledGaussian(unit, torch.tensor([2.0]), torch.tensor([4.0])).mean[0]
        tensor([4., 4.])
    """

    def __init__(self, bracket: Gaussian, amplitude: Tensor, gain: Tensor | None = None) -> None:
        self.bracket, self.amplitude, self.gain = bracket, amplitude, gain
        self.sampling = bracket.sampling

    @lazy
    def mean(self) -> Tensor:
        """Mean of each token, ``(*batch, n, s)``."""
        return self.bracket.mean if self.gain is None else self.bracket.mean * self.gain[..., None]
