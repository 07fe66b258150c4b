"""GPyTorch kernels of Markov processes that GPyTorch has none of."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from cgp.statespace.kernels import DampedOscillator, IntegratedWiener, MarkovKernel

__all__ = ["DampedOscillatorKernel", "IntegratedWienerKernel"]


class DampedOscillatorKernel(Kernel):
    r"""The covariance of a damped harmonic oscillator driven by white noise, of unit variance: celerite's SHO term.

    .. math:: \kappa(\tau) = e^{-a\tau}\Big(\cos b\tau + \frac ab\sin b\tau\Big), \qquad
        a = \frac{\omega}{2Q},\; b^2 = \omega^2 - a^2

    Of one input; a high quality Q is a cycle that drifts slowly, one below 1/2 a process without cycles.

    Args:
        batch_shape: one kernel for each member of a batch.
        active_dims: the one feature that is used.

    Source:
        Foreman-Mackey, Agol, Ambikasaran & Angus (2017), equation (23).

    Example:
        >>> kernel = DampedOscillatorKernel()
        >>> kernel.frequency, kernel.quality = 6.0, 10.0
        >>> kernel(torch.tensor([[0.0], [0.5]])).to_dense().shape
        torch.Size([2, 2])
    """

    is_stationary = True

    def __init__(self, batch_shape: torch.Size = torch.Size(), active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        for name in ("raw_frequency", "raw_quality"):
            self.register_parameter(name, nn.Parameter(torch.zeros(*self.batch_shape, 1, 1)))
            self.register_constraint(name, Positive())
        self.frequency, self.quality = 1.0, 1.0

    @property
    def frequency(self) -> Tensor:
        r""":math:`\omega` in radians, ``(*batch, 1, 1)``."""
        return self.raw_frequency_constraint.transform(self.raw_frequency)

    @frequency.setter
    def frequency(self, value: Tensor | float) -> None:
        self._set("frequency", value)

    @property
    def quality(self) -> Tensor:
        """The quality factor Q, ``(*batch, 1, 1)``."""
        return self.raw_quality_constraint.transform(self.raw_quality)

    @quality.setter
    def quality(self, value: Tensor | float) -> None:
        self._set("quality", value)

    def _set(self, name: str, value: Tensor | float) -> None:
        raw, constraint = getattr(self, f"raw_{name}"), getattr(self, f"raw_{name}_constraint")
        self.initialize(**{f"raw_{name}": constraint.inverse_transform(torch.as_tensor(value).to(raw))})

    def markov_form(self) -> MarkovKernel:
        """The kernel as a state space."""
        return DampedOscillator(self.frequency[..., 0, 0], self.quality[..., 0, 0])

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        first, second = (x1[..., 0], x2[..., 0]) if diag else (x1, x2.mT)
        lags = (first - second).abs()
        if diag:
            return self.markov_form().covariance(lags)
        return self.markov_form().covariance(lags.flatten(-2)).unflatten(-1, lags.shape[-2:])


class IntegratedWienerKernel(Kernel):
    r"""The covariance of an integrated Wiener process that starts at input 0: the prior of a cubic spline.

    .. math:: \kappa(s, t) = \frac{m^3}{3} + |s - t|\frac{m^2}{2}, \qquad m = \min(s, t) \ge 0

    With a ``ConstantKernel`` and a ``LinearKernel`` of large variances beside it the posterior mean is a smoothing
    spline.

    Args:
        batch_shape: one kernel for each member of a batch.
        active_dims: the one feature that is used.

    Source:
        Wahba (1978), Improper priors, spline smoothing and the problem of guarding against model errors in regression.

    Example:
        >>> IntegratedWienerKernel()(torch.tensor([[1.0], [2.0]])).to_dense()
        tensor([[0.3333, 0.8333],
                [0.8333, 2.6667]])
    """

    is_stationary = False

    def __init__(self, batch_shape: torch.Size = torch.Size(), active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)

    def markov_form(self) -> MarkovKernel:
        """The kernel as a state space."""
        return IntegratedWiener()

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The covariance of ``x1`` with ``x2``; see :class:`gpytorch.kernels.Kernel`."""
        first, second = (x1[..., 0], x2[..., 0]) if diag else (x1, x2.mT)
        least = torch.minimum(first, second)
        if bool((least < 0).any()):
            raise ValueError(f"x: expected inputs from 0, where the kernel starts, got {float(least.min()):g}")
        return least**3 / 3.0 + (first - second).abs() * least**2 / 2.0
