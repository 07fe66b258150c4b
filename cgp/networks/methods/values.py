"""Calibration of networks that regress: normal distributions of values, and the variance of their errors."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from cgp.networks.model.fingerprints import keep_weights, mark_calibrated
from cgp.networks.model.inputs import Batch
from cgp.networks.predict.draws import DrawVariance
from cgp.networks.predict.method import Method, Settings, as_assessed, settings_of, with_settings
from cgp.networks.predict.predict import predict
from cgp.networks.predict.prediction import Prediction
from cgp.networks.tasks import Regression
from cgp.networks.tasks.labels import values_for
from cgp.networks.tasks.metrics import ValueErrors

from .amplitudes import COARSE, AmplitudeSearch, Trial, chosen, with_amplitudes
from .calibration import RegressionCalibration
from .known import Posterior

__all__ = ["Normals", "ValueScores", "calibrate_values", "normals_by_factor"]

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

    def fit(self, values: Tensor, *, least: float = 0.0) -> Tensor:
        """The scale ``(C,)`` under which values are likeliest."""
        return self.fit_scale(values)

    def outcome(self, values: Tensor, scale: Tensor) -> ValueErrors:
        """Errors and standard deviations with a scale."""
        return ValueErrors((values - self.mean).cpu().numpy(), self.total(scale).sqrt().cpu().numpy())

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


def normals_by_factor(
    search: AmplitudeSearch, known: Iterable[Batch], factors: tuple[float, ...]
) -> dict[float, Normals]:
    """Moments of the draws by factor, of which only those of a batch are kept."""
    parts: dict[float, list[Normals]] = {factor: [] for factor in factors}
    for factor, _, drawn in search.draws(known, factors):
        parts[factor].append(Normals.of_draws(drawn))
    return {factor: Normals.joined(rows) for factor, rows in parts.items()}


class ValueScores(NamedTuple):
    """Values with their predictive distributions, by which a factor of the amplitudes is chosen.

    Attributes:
        normals: the distributions.
        values: ``(N, C)``.
    """

    normals: Normals
    values: Tensor

    def best(self, factor: float, *, least: float = 0.0, rows: Tensor | None = None) -> Trial:
        """The factor with the scale ``(C,)`` that is fitted to all values, or those of some rows."""
        normals, values = (self.normals, self.values) if rows is None else (self.normals.at(rows), self.values[rows])
        scale = normals.fit_scale(values)
        return Trial(factor, scale, normals.losses(values, scale))


def calibrate_values(search: AmplitudeSearch, kept: list[Batch], method: Method) -> RegressionCalibration:
    r"""Fit the variance of a network's errors: as :func:`cgp.calibrate` with ``task="regression"``.

    .. math:: \min_{s^2} -\textstyle\sum_i \log N\big(y_i \mid \mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, and for a posterior at the amplitude that :func:`cgp.calibrate` describes, with e the variance of
    the draws or of the read-out's function, 0 without, and v the variance that the network or the read-out gives, 1
    without.

    Args:
        search: draws of the model.
        kept: held-out batches ``(inputs, values)``.
        method: the method, fitted to training data where it needs some.

    Returns:
        What was done.

    Raises:
        ValueError: if values do not fit the outputs or are not finite.
    """
    start, model, factor = time.perf_counter(), search.model, float(method.draws)
    task = search.task
    assert isinstance(task, Regression)
    if isinstance(method, Posterior):
        factor = _fit_factor(replace(search, model=as_assessed(model)), kept, method.criterion)
        model = with_amplitudes(model, factor)
    used = None if isinstance(method, Posterior) else method
    settings = Settings(used, detectors=settings_of(model).detectors, task=task.name)
    noise = task.noise or (None if method.needs_train else 1.0)
    options: dict[str, Any] = {"num_samples": search.num_samples, "sampling": search.mode, "seed": search.seed}
    options |= {"task": replace(task, noise=noise), "keep_variance": False}
    drawing = with_settings(model, settings)
    keep_weights(drawing, None)  # of a calibration before
    prediction = predict(drawing, iter(kept), **options)
    values = values_for(prediction.mean, [batch.labels for batch in kept])
    scale = Normals.of(prediction).fit_scale(values.double())
    assert prediction.aleatoric is not None
    noise_of = prediction.aleatoric * scale
    spread = torch.zeros(()) if prediction.epistemic is None else prediction.epistemic
    scores = replace(prediction, aleatoric=noise_of, total=noise_of + spread, labels=values).score()
    changed = with_settings(model, replace(settings, scale=scale.cpu(), has_variance_head=task.has_distribution))
    mark_calibrated(changed)
    seconds = time.perf_counter() - start
    return RegressionCalibration(changed, method.name, factor, scale.cpu(), scores, len(values), seconds)


def _fit_factor(search: AmplitudeSearch, kept: list[Batch], criterion: str) -> float:
    """The factor of the amplitudes that is chosen by held-out values."""
    by_factor = normals_by_factor(search, kept, (0.0, *COARSE))
    values = values_for(by_factor[0.0].mean, [batch.labels for batch in kept]).double()
    tuned = {factor: normals.tuning(values) for factor, normals in by_factor.items()}
    return chosen({f: scores.best(f) for f, scores in tuned.items() if scores is not None}, criterion).factor
