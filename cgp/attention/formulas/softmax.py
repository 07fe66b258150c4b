r"""Softmax attention as the posterior mean of a correlated Gaussian process, and a covariance around it.

Let :math:`q = Qs^{-1/4}`, :math:`k = Ks^{-1/4}` and R be the unit squared exponential. With the scaled processes

.. math::
    z_k(x_j) = a_j z_o(k_j),\; a_j = e^{\frac12\|k_j\|^2}, \qquad
    z_q(x_i) = b_i z_o(q_i),\; b_i = 1 \big/ \textstyle\sum_j R(q_i, k_j)\,a_j,

keys observed with noise :math:`\sigma^2a_j^2` and targets :math:`Z = (K_k + \sigma^2A^2)V`, the posterior mean is
:math:`\operatorname{softmax}(QK^\top/\sqrt s)V` exactly.

The mean determines only the cross-covariance of queries and keys: every positive semi-definite matrix is a valid
covariance given the keys (the Schur complement of the prior). This one is bounded:

.. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]

It omits the scale b, which spans many orders of magnitude in trained models, and R has a lengthscale of its own. This
construction is not from a paper.
"""

from __future__ import annotations

from torch import Tensor

from cgp.functional.correlated import ExactPosterior
from cgp.functional.gaussians import DenseGaussian, Gaussian, LowRankGaussian, lazy
from cgp.functional.sparse_correlated import SparsePosterior

__all__ = ["AroundMean", "ScaledGaussian"]


class AroundMean(Gaussian):
    r"""A mean with the scaled covariance of another posterior, :math:`N(\mu, \tau^2V)`.

    Args:
        mean: ``(*batch, n, s)``.
        bracket: the posterior whose covariance is V.
        amplitude: :math:`\tau`, broadcastable to ``(*batch, 1)``.

    Example:
        >>> import torch
        >>> from cgp.functional.gaussians import MarginalGaussian
        >>> AroundMean(
        ...     torch.zeros(3, 2), MarginalGaussian(torch.ones(3, 2), torch.ones(3)), torch.tensor([2.0])
        ... ).variance
        tensor([4., 4., 4.])
    """

    def __init__(self, mean: Tensor, bracket: Gaussian, amplitude: Tensor) -> None:
        self.mean, self.bracket, self.amplitude = mean, bracket, amplitude
        self.sampling = bracket.sampling

    @lazy
    def variance(self) -> Tensor:
        """Variance of each token, ``(*batch, n)``."""
        return self.amplitude.square() * self.bracket.variance

    def joint(self) -> DenseGaussian | LowRankGaussian:
        """The posterior with its covariance over tokens."""
        bracket: Gaussian = self.bracket
        if not isinstance(bracket, ExactPosterior | SparsePosterior):  # these may have no mean, so no joint()
            bracket = bracket.joint()
        amplitude = self.amplitude[..., None]
        if isinstance(bracket, ExactPosterior | DenseGaussian):
            return DenseGaussian(self.mean, amplitude.square() * bracket.covariance, bracket.padding)
        assert isinstance(bracket, SparsePosterior | LowRankGaussian)
        diagonal = self.amplitude.square() * bracket.diagonal
        return LowRankGaussian(self.mean, amplitude * bracket.root, diagonal, bracket.padding)


class ScaledGaussian(AroundMean):
    r"""A posterior of a unit process with its mean and its covariance scaled, :math:`N(g\mu, \tau^2V)`.

    Args:
        bracket: the posterior of the unit process.
        amplitude: :math:`\tau`, broadcastable to ``(*batch, n)``.
        gain: g, broadcastable to ``(*batch, n)``; None is one.

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
