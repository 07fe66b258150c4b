"""Predictive normal distributions of a regression, with fitted noise, by the amplitude of a posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from cgp.networks.model.inputs import Batch
from cgp.networks.predict.draws import DrawVariance
from cgp.networks.predict.prediction import Prediction

from .amplitudes import AmplitudeSearch, Trial

__all__ = ["Normals", "ValueOutputs", "finite", "likeliest_factor", "normals_by_factor", "trials"]

_PLACES = 41  # between which the factor of a noise is looked for


class Normals(NamedTuple):
    r"""Predictive normal distributions of values, :math:`N(\mu, e + s^2 v)`, but for the factor of the noise.

    Attributes:
        mean: μ, ``(N, C)``.
        variance: e, of draws or of a read-out's function, 0 without, ``(N, C)``.
        noise: v, ``(N, C)``.
    """

    mean: Tensor
    variance: Tensor
    noise: Tensor

    @classmethod
    def of(cls, prediction: Prediction) -> Normals:
        """The distributions of a prediction, in float64."""
        assert prediction.aleatoric is not None
        mean, noise = prediction.mean.double(), prediction.aleatoric.double()
        spread = prediction.epistemic
        return cls(mean, torch.zeros_like(mean) if spread is None else spread.double(), noise)

    def at(self, rows: Tensor) -> Normals:
        """Those of some rows."""
        return Normals(*(part[rows] for part in self))

    def total(self, scale: Tensor) -> Tensor:
        """The variances with factors ``(C,)``."""
        return self.variance + scale * self.noise

    def losses(self, values: Tensor, scale: Tensor) -> Tensor:
        """Negative log-density of each row of values ``(N, C)``, mean over outputs, ``(N,)``."""
        total = self.total(scale)
        return 0.5 * ((2.0 * math.pi * total).log() + (values - self.mean).square() / total).mean(1)

    def fit_scale(self, values: Tensor) -> Tensor:
        """The factor of the noise of each output, ``(C,)``, under which values ``(N, C)`` are likeliest."""
        squares = (values - self.mean).square()
        ratio = (squares / self.noise).mean(0)
        if not bool((ratio > 0).all()):
            raise ValueError("data: expected values with errors, got an output that is right everywhere")
        if not bool((self.variance > 0).any()):
            return ratio
        columns = zip(squares.T, self.variance.T, self.noise.T, strict=True)
        return torch.tensor([_likeliest(*column) for column in columns], dtype=torch.float64, device=squares.device)


def _likeliest(squares: Tensor, spread: Tensor, noise: Tensor) -> float:
    """The factor of the noise: at least a millionth of the one without a spread, and at most the largest ratio."""

    def loss(logarithm: float) -> float:
        total = spread + math.exp(logarithm) * noise
        return float((total.log() + squares / total).mean())

    ratios = squares / noise
    bounds = math.log(1e-6 * float(ratios.mean())), math.log(float(ratios.max()))  # beyond, every term rises
    places = torch.linspace(*bounds, _PLACES, dtype=torch.float64).tolist()  # the loss may have several minima
    best = min(range(_PLACES), key=lambda index: loss(places[index]))
    around = places[max(best - 1, 0)], places[min(best + 1, _PLACES - 1)]
    minimum = minimize_scalar(loss, bounds=around, method="bounded")
    return math.exp(min(float(minimum.x), places[best], key=loss))


class ValueOutputs:
    """Takes outputs and their variances from what a network returns, ``(2, N, C)``."""

    def __init__(self, output: Callable[[Any], Tensor], noise: Callable[[Any], Tensor] | None) -> None:
        self.output, self.noise = output, noise

    def __call__(self, returned: Any) -> Tensor:
        """Outputs and variances of what a network returns."""
        mean = self.output(returned)
        if mean.dim() != 2:
            raise ValueError(f"model: expected outputs (N, C), got shape {tuple(mean.shape)}")
        noise = torch.ones_like(mean) if self.noise is None else self.noise(returned)
        if noise.shape != mean.shape or not bool((noise > 0).all()):
            raise ValueError(
                f"noise: expected positive variances of shape {tuple(mean.shape)}, got shape {tuple(noise.shape)}, "
                f"at least {float(noise.min()):.3g}"
            )
        return torch.stack([mean, noise])


def normals_by_factor(
    search: AmplitudeSearch, known: Iterable[Batch], factors: tuple[float, ...]
) -> dict[float, Normals]:
    """Moments of the draws by factor, of which only those of a batch are kept."""
    parts: dict[float, list[Normals]] = {factor: [] for factor in factors}
    for factor, _, drawn in search.draws(known, factors):
        mean, noise = drawn.double().unbind(1)  # (S, B, C)
        variance = DrawVariance()
        for draw in mean:
            variance.add(draw)
        spread = variance.value()
        spread = torch.zeros_like(mean[0]) if spread is None else spread
        parts[factor].append(Normals(mean.mean(0), spread, noise.mean(0)))
    return {f: Normals(*(torch.cat(column) for column in zip(*rows, strict=True))) for f, rows in parts.items()}


def finite(by_factor: Mapping[float, Normals]) -> dict[float, Normals]:
    """The factors of the amplitudes under which every number is finite: the draws of others overflow."""
    return {f: normals for f, normals in by_factor.items() if all(bool(part.isfinite().all()) for part in normals)}


def trials(by_factor: Mapping[float, Normals], values: Tensor) -> dict[float, tuple[Trial, Tensor]]:
    """Each factor of the amplitudes with the losses of values ``(N, C)``, and the scale ``(C,)`` fitted to them."""
    scales = {factor: normals.fit_scale(values) for factor, normals in by_factor.items()}
    losses = {factor: normals.losses(values, scales[factor]) for factor, normals in by_factor.items()}
    return {factor: (Trial(factor, 1.0, losses[factor], 0.0, 0.0), scales[factor]) for factor in by_factor}


def likeliest_factor(by_factor: Mapping[float, Normals], values: Tensor) -> tuple[float, Tensor]:
    """The factor of the amplitudes under which values are likeliest, with its scale ``(C,)``."""
    trial, scale = min(trials(by_factor, values).values(), key=lambda pair: pair[0].nll)
    return trial.factor, scale
