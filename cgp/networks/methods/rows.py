"""Rows of predictions, to which a temperature or a scale is fitted, and the choice of an amplitude by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from cgp.networks.model.tempering import log_probabilities, probabilities
from cgp.networks.predict.drawing import DrawVariance
from cgp.networks.predict.prediction import Prediction
from cgp.networks.tasks.metrics import LabelledScores, ValueErrors

from .temperature_scaling import fit_temperature, with_labels

__all__ = [
    "COARSE_STEP",
    "STEP",
    "SURE",
    "TEMPERATURES",
    "LabelScores",
    "Logits",
    "Normals",
    "Trial",
    "ValueScores",
    "chosen",
    "tune",
]

STEP, COARSE_STEP = 2.0**0.125, 2.0**0.5
SURE = STEP**-16
"""Smallest temperature (0.25) where all predictions are right, so that labels say nothing against a smaller one."""

TEMPERATURES = (*(SURE / COARSE_STEP**k for k in range(10, 0, -1)), *(STEP**k for k in range(-16, 41)))
"""Temperatures at which amplitudes are compared, from 1/128 to 32; only scores at these are kept of all draws."""

_PLACES = 41  # between which the factor of a noise is looked for


class Trial(NamedTuple):
    """An amplitude at its best temperature or scale.

    Attributes:
        factor: factor of the amplitudes.
        parameter: the temperature, or the scale ``(C,)`` of a regression.
        losses: negative log-probability of each label, or log-density of each row of values, ``(N,)``.
        accuracy: share of correct predictions.
        disagreement: total variation distance of draws and their average, mean over labels.
    """

    factor: float
    parameter: Any
    losses: Tensor
    accuracy: float = 0.0
    disagreement: float = 0.0

    @property
    def nll(self) -> float:
        """Mean of the losses, in nats."""
        return float(self.losses.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of :attr:`nll`."""
        return float(self.losses.std() / len(self.losses) ** 0.5) if len(self.losses) > 1 else 0.0


class LabelScores(NamedTuple):
    """Scores of draws on labels, at several temperatures.

    Attributes:
        temperatures: T temperatures.
        log_probabilities: log-probability of each label under the averaged draws, ``(T, N)``.
        right: whether the average predicts the label, ``(T, N)``.
        disagreement: total variation distance of draws and their average, ``(T, N)``.
    """

    temperatures: Sequence[float]
    log_probabilities: Tensor
    right: Tensor
    disagreement: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, temperatures: Sequence[float]) -> LabelScores:
        """Score the draws ``(S, ..., C)`` on labels ``(...)``; labels −100 are ignored."""
        logits, labels = with_labels(logits, labels)
        rows = []
        for temperature in temperatures:
            draws = log_probabilities(logits, temperature)
            of_labels = draws.gather(-1, labels.expand(draws.shape[:-1])[..., None])[..., 0]
            average = draws.exp().mean(0)
            apart = 0.5 * (draws.exp() - average).abs().sum(-1).mean(0)
            # Draws that overflow count against their amplitude.
            of_average = (of_labels.logsumexp(0) - math.log(len(draws))).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
            rows.append((of_average, average.argmax(-1) == labels, apart))
        return cls(temperatures, *(torch.stack(column) for column in zip(*rows, strict=True)))

    def at(self, temperature: float) -> LabelScores:
        """The scores at one of the temperatures."""
        index = self.temperatures.index(temperature)
        return LabelScores((temperature,), *(part[[index]] for part in self[1:]))

    def together(self, others: Sequence[LabelScores]) -> LabelScores:
        """These scores followed by those of other labels."""
        columns = zip(*(part[1:] for part in (self, *others)), strict=True)
        return LabelScores(self.temperatures, *(torch.cat(column, 1) for column in columns))

    def best(self, factor: float, *, least: float = 0.0, rows: Tensor | None = None) -> Trial:
        """The best temperature of at least ``least`` for all labels, or those of some rows."""
        columns = slice(None) if rows is None else rows
        if bool(self.right[:, columns].all()):
            least = max(least, min(SURE, max(self.temperatures)))
        kept = [index for index, temperature in enumerate(self.temperatures) if temperature >= least]
        losses, right, apart = (
            part[kept][:, columns] for part in (-self.log_probabilities, self.right, self.disagreement)
        )
        if not losses.shape[1]:
            raise ValueError("data: expected labels, got none")
        index = int(losses.mean(1).argmin())
        scores = losses[index], float(right[index].float().mean()), float(apart[index].mean())
        return Trial(factor, self.temperatures[kept[index]], *scores)


def chosen(tried: dict[float, Trial], criterion: str) -> Trial:
    """The trial selected by the "widest" or the "likelihood" criterion, with a non-zero factor."""
    best = min(tried.values(), key=lambda trial: trial.nll)
    positive = sorted((trial for trial in tried.values() if trial.factor), key=lambda trial: trial.factor)
    if criterion == "likelihood":
        return min(positive, key=lambda trial: trial.nll)
    allowed = best.nll + best.standard_error
    chosen = best if best.factor else positive[0]
    for trial in positive[positive.index(chosen) :]:
        if trial.nll > allowed:
            break
        chosen = trial
    return chosen


def tune(scores: Mapping[float, Any], rows: Tensor | None = None) -> dict[float, Trial]:
    """Every factor at its best temperature or scale, for the labels of some rows ``(N,)`` or of all."""
    # Draws may not be sharpened below the temperature without them, or 1, which would compensate any amplitude.
    plain = scores[0.0].best(0.0, rows=rows)
    least = min(plain.parameter, 1.0) if isinstance(plain.parameter, float) else 0.0
    return {0.0: plain} | {f: of_factor.best(f, least=least, rows=rows) for f, of_factor in scores.items() if f}


class Logits(NamedTuple):
    """Logits of labelled rows, with a temperature to be fitted.

    Attributes:
        draws: ``(S, n, C)``.
    """

    draws: Tensor

    @classmethod
    def of_draws(cls, drawn: Tensor, labels: Tensor) -> Logits:
        """The labelled rows of draws ``(S, ..., C)``."""
        return cls(with_labels(drawn, labels)[0])

    @classmethod
    def joined(cls, parts: Sequence[Logits]) -> Logits:
        """All rows of some parts."""
        return cls(torch.cat([part.draws for part in parts], 1))

    def at(self, rows: Tensor) -> Logits:
        """Select rows, by a mask or a slice."""
        return Logits(self.draws[:, rows])

    def tuning(self, labels: Tensor) -> LabelScores:
        """Scores at every temperature that amplitudes are compared at."""
        return LabelScores.of(self.draws, labels, TEMPERATURES)

    def fit(self, labels: Tensor, *, least: float = TEMPERATURES[0]) -> float:
        """The likeliest temperature, and :data:`SURE` at least where all predictions are right."""
        right = bool((self.draws.softmax(-1).mean(0).argmax(-1) == labels).all())
        return fit_temperature(self.draws, labels, least=max(least, SURE) if right else least)

    def probabilities(self, temperature: float) -> Tensor:
        """Averaged over draws, ``(n, C)``."""
        return probabilities(self.draws, temperature).mean(0)

    def outcome(self, labels: Tensor, temperature: float) -> LabelledScores:
        """Scores of each label with a temperature."""
        return LabelledScores.of(self.probabilities(temperature).cpu().numpy(), labels.cpu().numpy())


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

    @classmethod
    def of_draws(cls, drawn: Tensor, labels: Tensor | None = None) -> Normals:  # noqa: ARG003
        """Moments of draws of outputs and their variances ``(S, 2, N, C)``, in float64."""
        mean, noise = drawn.double().unbind(1)
        variance = DrawVariance()
        for draw in mean:
            variance.add(draw)
        spread = variance.value()
        return cls(mean.mean(0), torch.zeros_like(mean[0]) if spread is None else spread, noise.mean(0))

    @classmethod
    def joined(cls, parts: Sequence[Normals]) -> Normals:
        """All rows of some parts."""
        return cls(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def tuning(self, values: Tensor) -> ValueScores | None:
        """What a scale is fitted by; None where draws overflow."""
        return ValueScores(self, values) if all(bool(part.isfinite().all()) for part in self) else None

    def outcome(self, values: Tensor, scale: Tensor) -> ValueErrors:
        """Errors and standard deviations with a scale."""
        return ValueErrors((values - self.mean).cpu().numpy(), self.total(scale).sqrt().cpu().numpy())

    def at(self, rows: Tensor) -> Normals:
        """Select rows, by a mask or a slice."""
        return Normals(*(part[rows] for part in self))

    def total(self, scale: Tensor) -> Tensor:
        """The variances with factors ``(C,)``."""
        return self.variance + scale * self.noise

    def losses(self, values: Tensor, scale: Tensor) -> Tensor:
        """Negative log-density of each row of values ``(N, C)``, mean over outputs, ``(N,)``."""
        total = self.total(scale)
        return 0.5 * ((2.0 * math.pi * total).log() + (values - self.mean).square() / total).mean(1)

    def fit(self, values: Tensor, *, least: float = 0.0) -> Tensor:
        """The factor of the noise of each output, ``(C,)``, under which values ``(N, C)`` are likeliest."""
        squares = (values - self.mean).square()
        ratio = (squares / self.noise).mean(0)
        if not bool((ratio > 0).all()):
            raise ValueError("data: expected values with errors, got an output that is right everywhere")
        if not bool((self.variance > 0).any()):
            return ratio
        columns = zip(squares.T, self.variance.T, self.noise.T, strict=True)
        return torch.tensor([_likeliest(*column) for column in columns], dtype=torch.float64, device=squares.device)


class ValueScores(NamedTuple):
    """Values ``(N, C)`` with their predictive distributions, by which a factor of the amplitudes is chosen."""

    normals: Normals
    values: Tensor

    def best(self, factor: float, *, least: float = 0.0, rows: Tensor | None = None) -> Trial:
        """The factor with the scale ``(C,)`` that is fitted to all values, or those of some rows."""
        normals, values = (self.normals, self.values) if rows is None else (self.normals.at(rows), self.values[rows])
        scale = normals.fit(values)
        return Trial(factor, scale, normals.losses(values, scale))


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
