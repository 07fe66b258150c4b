"""Learned parameters in the user's units."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cgp.kernels.canonical_kernel import CanonicalPoints

from .covariances.multiscale import cycle_of
from .covariances.rows import RowKernel
from .frames import Framing
from .inference.fitting import Fit
from .scaling import Scaling
from .solvers.model import RegressionModel

__all__ = ["LearnedMixin"]

Array = NDArray[Any]


class LearnedMixin:
    """The parameters of the best structure; the median of samples, for correlations their mean.

    Attributes:
        model_: the model of the best structure.
        models_: this and other models, or their samples in batches.
        structure_: name of the best structure.
        criteria_: half the information criterion of every structure that was compared, in nats.
        fit_: result of its fit.
        x_scaling_: map from the user's inputs to standardised ones.
        y_scaling_: the same for outputs.
    """

    model_: RegressionModel
    models_: list[RegressionModel]
    structure_: str
    criteria_: dict[str, float]
    fit_: Fit
    x_scaling_: Scaling
    y_scaling_: Scaling
    _framing: Framing
    _compared: dict[str, RegressionModel]
    _keep: Callable[[list[RegressionModel]], None]

    def with_structure(self, structure: str) -> Self:
        """The same fit with one of the structures that "auto" compared, instead of their average.

        Args:
            structure: its name, of those that ``criteria_`` has.

        Returns:
            Another fitted regressor, at the structure's most probable parameters.

        Raises:
            ValueError: if it was not compared, or there were further observations since.
        """
        check_is_fitted(self)
        if structure not in self._compared:
            raise ValueError(
                f"structure: expected one of {list(self._compared)}, which were compared, got {structure!r}"
            )
        other = copy.copy(self)
        other.structure_ = structure
        other._keep([self._compared[structure]])
        return other

    @property
    def noise_(self) -> Array:
        """The variance of each output's noise, ``(P,)``, in squared units of the output."""
        return self._learned(lambda model: model.likelihood.noise) * self.y_scaling_.unit**2

    @property
    def lengthscales_(self) -> Array:
        """The lengthscales of each component, output and input column, ``(Q, P, d)``, in units of the inputs.

        A kernel object has additional lengthscales: its inputs are divided by these. For the cycles of "multiscale"
        they are the lengthscales of their drift.
        """
        return self._of_components(self._lengthscales) * self.x_scaling_.unit

    @property
    def delays_(self) -> Array:
        """Delay of each output with respect to the first, ``(Q, P, d)``, in units of the inputs; 0 without shifts."""
        return self._of_components(_delays) * self.x_scaling_.unit

    @property
    def correlation_(self) -> Array:
        """The correlations of the outputs' functions, ``(P, P)``, after correction for the delays."""

        def correlation(model: RegressionModel) -> Tensor:
            covariance = torch.stack([_at_one_place(component) for component in model.covar_module.kernels]).sum(0)
            sd = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
            return covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))

        return self._learned(correlation, np.mean)

    def summary(self) -> str:
        """A readable summary of the learned parameters.

        Returns:
            Several lines.
        """
        check_is_fitted(self)
        criteria = ", ".join(f"{name} {value:.1f}" for name, value in self.criteria_.items())
        lines = [f"structure: {self.structure_}" + (f" (criteria in nats: {criteria})" if criteria else "")]
        lines.append(f"fit: {self.fit_.message}, {self.fit_.loss:.4g} nats per observation")
        noise, correlation, shares = np.sqrt(self.noise_), self.correlation_, self._shares
        kinds = ["lengthscale" if period is None else f"cycle of {period:.4g}, drift over" for period in self._periods]
        for p, name in enumerate(self._framing.names(len(noise))):
            others = " ".join(f"{value:5.2f}" for value in correlation[p])
            lines.append(f"{name}: noise sd {noise[p]:.4g}, correlations {others}")
            for number, (scales, delays) in enumerate(zip(self.lengthscales_, self.delays_, strict=True)):
                behind = f", delay {_numbers(delays[p])}" if delays.any() else ""
                share = f", {shares[number, p]:.0%} of the variance" if len(shares) > 1 else ""
                lines.append(f"  component {number + 1}: {kinds[number]} {_numbers(scales[p])}{behind}{share}")
        return "\n".join(lines)

    @property
    def _shares(self) -> Array:
        """Share of each component in the variance of each output, ``(Q, P)``."""

        def share(model: RegressionModel) -> Tensor:
            parts = [_at_one_place(component).diagonal(dim1=-2, dim2=-1) for component in model.covar_module.kernels]
            variances = torch.stack(parts, dim=-2)
            return variances / variances.sum(-2, keepdim=True)

        return self._learned(share, np.mean)

    @property
    def _periods(self) -> list[float | None]:
        """The period of each component that is a cycle, in units of the input."""
        cycles = [self._cycle(component) for component in self.model_.covar_module.kernels]
        return [None if cycle is None else cycle[0] * float(self.x_scaling_.unit[0]) for cycle in cycles]

    def _cycle(self, component: RowKernel) -> tuple[float, float] | None:
        return cycle_of(component) if self.structure_ == "multiscale" else None

    def _lengthscales(self, component: RowKernel) -> Tensor:
        cycle = self._cycle(component)
        return (1.0 if cycle is None else cycle[1]) / component.input_maps.all_scales

    def _of_components(self, ask: Any) -> Array:
        return self._learned(
            lambda model: torch.stack([ask(component) for component in model.covar_module.kernels], dim=-3)
        )

    def _learned(self, ask: Any, middle: Any = np.median) -> Array:
        """A quantity of the models of the best structure, the median (or mean) over samples."""
        check_is_fitted(self)
        same = [model for model in self.models_ if model.state_dict().keys() == self.model_.state_dict().keys()]
        with torch.no_grad():
            parts = [ask(model).numpy() for model in same]
        if self.model_.train_targets.dim() == 1:
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
