"""Learned parameters in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.kernels.canonical_kernel import CanonicalPoints

from .covariances.multiscale import cycle_of
from .covariances.rows import RowKernel
from .observations import Units
from .solvers.model import RegressionModel

__all__ = ["Parameters"]

Array = NDArray[Any]

_NOTHING = 0.005  # of the variance, which is 0 % as it is said


class Parameters(NamedTuple):
    """The parameters of the best structure; the median of samples, for correlations their mean.

    Attributes:
        models: the best, and others, or their samples in batches.
        units: of inputs and outputs.
        has_cycles: whether components that are products are cycles.
    """

    models: Sequence[RegressionModel]
    units: Units
    has_cycles: bool

    @property
    def noise(self) -> Array:
        """The variance of each output's noise, ``(P,)``."""
        noise = self._learned(lambda model: model.likelihood.noise)
        return noise[self.units.numbers] * self.units.outputs.unit**2

    @property
    def lengthscales(self) -> Array:
        """The lengthscales of each component, output and input column, ``(Q, P, d)``."""
        return self._of_components(self._lengthscales) * self.units.inputs.unit

    @property
    def delays(self) -> Array:
        """Delay of each output with respect to the first, ``(Q, P, d)``; 0 without shifts."""
        delays = self._of_components(_delays)
        return (delays - delays[:, :1]) * self.units.inputs.unit

    @property
    def correlation(self) -> Array:
        """The correlations of the outputs' functions, ``(P, P)``, after correction for the delays."""

        def correlation(model: RegressionModel) -> Tensor:
            covariance = torch.stack([_at_one_place(component) for component in model.covar_module.kernels]).sum(0)
            sd = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
            return covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))

        numbers = self.units.numbers
        return self._learned(correlation, np.mean)[np.ix_(numbers, numbers)]

    @property
    def shares(self) -> Array:
        """Share of each component in the variance of each output, ``(Q, P)``."""

        def share(model: RegressionModel) -> Tensor:
            parts = [_at_one_place(component).diagonal(dim1=-2, dim2=-1) for component in model.covar_module.kernels]
            variances = torch.stack(parts, dim=-2)
            return variances / variances.sum(-2, keepdim=True)

        return self._learned(share, np.mean)[:, self.units.numbers]

    def lines(self, names: Sequence[str]) -> list[str]:
        """A readable summary: a line for each output, of these names, and each of its components."""
        unit = float(self.units.inputs.unit[0])
        cycles = [self._cycle(component) for component in self.models[0].covar_module.kernels]
        kinds = ["lengthscale" if cycle is None else f"cycle of {cycle[0] * unit:.4g}, drift over" for cycle in cycles]
        noise, correlation, shares, lines = np.sqrt(self.noise), self.correlation, self.shares, []
        for p, name in enumerate(names):
            others = " ".join(f"{value:5.2f}" for value in correlation[p])
            lines.append(f"{name}: noise sd {noise[p]:.4g}, correlations {others}")
            for number, (scales, delays) in enumerate(zip(self.lengthscales, self.delays, strict=True)):
                behind = f", delay {_numbers(delays[p])}" if delays.any() else ""
                share = f", {shares[number, p]:.0%} of the variance" if len(shares) > 1 else ""
                lines.append(f"  component {number + 1}: {kinds[number]} {_numbers(scales[p])}{behind}{share}")
        return lines

    def sentences(
        self, titles: Sequence[str], noises: Sequence[str], spelled: Callable[[Array], str], names: Sequence[str]
    ) -> list[str]:
        """What was learned of each output in words, a line for each.

        Args:
            titles: of the outputs, P.
            noises: what follows the number of each output's noise, its unit.
            spelled: a lengthscale, ``(d,)`` in the user's units, in words.
            names: of the outputs, for pairs of them.

        Returns:
            Such as "ozone (ppb): noise of 5.2 ppb; alike over 1.6 d (10% of the variance), 11.7 d (90%); …".
        """
        unit, lines = self.units.inputs.unit, []
        cycles = [self._cycle(component) for component in self.models[0].covar_module.kernels]
        noise, correlation, shares = np.sqrt(self.noise), self.correlation, self.shares
        scales, delays = self.lengthscales, self.delays
        for p, title in enumerate(titles):
            alike, recurring = [], []
            for cycle, scale, share in zip(cycles, scales[:, p], shares[:, p], strict=True):
                if len(shares) > 1 and share < _NOTHING:
                    continue
                worth = f" ({share:.0%} of the variance)" if len(shares) > 1 else ""
                if cycle is None:
                    alike.append(f"{spelled(scale)}{worth}")
                else:
                    recurring.append(f"{spelled(cycle[0] * unit)}, drifting over {spelled(scale)}{worth}")
            parts = [f"noise of {noise[p]:.3g}{noises[p]}"]
            parts += [f"alike over {' and '.join(alike)}"] * bool(alike)
            parts += [f"cycles of {' and of '.join(recurring)}"] * bool(recurring)
            if len(titles) > 1:
                others = np.abs(correlation[p]) * (np.arange(len(titles)) != p)
                nearest = int(others.argmax())
                parts.append(f"most like {names[nearest]} (correlation {correlation[p, nearest]:.2f})")
            if (behind := delays[0, p]).any():
                parts.append(f"{spelled(np.abs(behind))} {'after' if behind.sum() > 0 else 'before'} {names[0]}")
            lines.append(f"{title}: {'; '.join(parts)}")
        return lines

    def _cycle(self, component: RowKernel) -> tuple[float, float] | None:
        return cycle_of(component) if self.has_cycles else None

    def _lengthscales(self, component: RowKernel) -> Tensor:
        cycle = self._cycle(component)
        return (1.0 if cycle is None else cycle[1]) / component.input_maps.all_scales

    def _of_components(self, ask: Callable[[RowKernel], Tensor]) -> Array:
        """A quantity of every component and output, ``(Q, P, d)``."""
        parts = self._learned(
            lambda model: torch.stack([ask(component) for component in model.covar_module.kernels], dim=-3)
        )
        return parts[:, self.units.numbers]

    def _learned(self, ask: Callable[[RegressionModel], Tensor], middle: Any = np.median) -> Array:
        """A quantity of the models of the best structure, the median (or mean) over samples."""
        names, first = self.models[0].state_dict().keys(), self.models[0]
        with torch.no_grad():
            parts = [ask(model).numpy() for model in self.models if model.state_dict().keys() == names]
        if first.train_targets.dim() == 1:
            return np.asarray(parts[0])
        return np.asarray(middle(np.concatenate(parts), axis=0))


def _delays(component: RowKernel) -> Tensor:
    maps = component.input_maps
    return torch.zeros_like(maps.all_scales) if maps.all_shifts is None else -maps.all_shifts / maps.all_scales


def _at_one_place(component: RowKernel) -> Tensor:
    """The covariance of all outputs at the same canonical input, ``(*batch, P, P)``."""
    return component.gram(CanonicalPoints(torch.ones_like(component.input_maps.all_scales), component.loadings()))


def _numbers(values: Array) -> str:
    return " ".join(f"{value:.4g}" for value in values)
