"""Calibration: a temperature of what a model returns, the width of its posterior, the variance of its errors."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.fingerprints import keep_weights, logit_temperature, mark_calibrated, set_logit_temperature
from cgp.networks.model.inputs import Batch
from cgp.networks.model.labels import values_for
from cgp.networks.model.progress import Progress, Ticks
from cgp.networks.predict.method import (
    Method,
    Settings,
    as_assessed,
    forget_held_out,
    settings_of,
    with_settings,
)
from cgp.networks.predict.predict import predict
from cgp.networks.tasks import Regression
from cgp.spelling import counted
from cgp.warning import warn_user

from .amplitudes import COARSE, AmplitudeSearch, amplitudes_of, with_amplitudes
from .known import Posterior
from .rows import TEMPERATURES, LabelScores, Logits, Normals, Trial, chosen, tune
from .temperature_scaling import ASKED, USELESS, is_useless, with_labels

__all__ = ["Calibration", "calibrate_outputs", "calibrate_posterior", "calibrate_values"]

_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))


@dataclass(frozen=True, repr=False)
class Calibration:
    """The result of :func:`cgp.calibrate`, with the calibrated model.

    A regression has a scale in place of the temperature, and scores in place of likelihoods and accuracies, which are
    NaN.

    Attributes:
        model: for :func:`cgp.predict`, :func:`cgp.save_pretrained` and :func:`cgp.pipeline`: the model that was given
            with method "posterior", else a copy that shares its tensors.
        method: method of the calibration.
        criterion: criterion by which the amplitude was chosen; None without a posterior.
        factor: factor by which the amplitudes were multiplied; 1 with other draws, 0 without draws.
        amplitudes: for each layer, by its name, the new amplitude of each head.
        temperature: temperature by which :func:`cgp.predict` divides the logits.
        nll_mean: negative log-likelihood of the model before, without draws, in nats per label.
        nll_temperature: negative log-likelihood without draws, at the best temperature.
        nll_best: smallest negative log-likelihood of the draws over amplitudes, each at its best temperature.
        nll: negative log-likelihood of the draws at the chosen amplitude.
        standard_error: standard error of ``nll_best`` over the labels.
        accuracy_mean: share of correct predictions without draws.
        accuracy: share of correct predictions of the averaged draws.
        disagreement: how much draws differ from their average: total variation distance in [0, 1], mean over labels.
        num_labels: number of labels used, or of rows of values.
        seconds: total time in seconds.
        scale: of a regression, the noise variance of each output, ``(C,)``, or the factor of the one that the model or
            read-out gives.
        scores: of a regression, "rmse", "nll" per value and "coverage90" of the values that it was fitted to.
        is_fallback: whether no method was named, and the model has no posterior.
    """

    model: nn.Module
    method: str
    factor: float
    num_labels: int
    seconds: float
    criterion: str | None = None
    amplitudes: dict[str, Tensor] = field(default_factory=dict)
    temperature: float = 1.0
    nll_mean: float = math.nan
    nll_temperature: float = math.nan
    nll_best: float = math.nan
    nll: float = math.nan
    standard_error: float = math.nan
    accuracy_mean: float = math.nan
    accuracy: float = math.nan
    disagreement: float = math.nan
    scale: Tensor | None = None
    scores: dict[str, float] = field(default_factory=dict)
    is_fallback: bool = False

    @property
    def price(self) -> float:
        """Cost of the chosen amplitude relative to the best one, in nats per label."""
        return max(self.nll - self.nll_best, 0.0)  # below zero by the finer temperatures only

    def __repr__(self) -> str:
        """One line."""
        words = [f"{self.method!r}", *([f"amplitude × {self.factor:.3g}"] if self.amplitudes else [])]
        words += [f"temperature {self.temperature:.3g}"] if self.scale is None else []
        return f"Calibration({', '.join(words)}, {counted(self.num_labels, 'label' if self.scale is None else 'row')})"

    def __str__(self) -> str:
        """A summary, and one line per layer."""
        if self.scale is not None:
            return self._of_values(self.scale.tolist())
        if self.method != "posterior":
            way = "" if self.method == "temperature" else f"{self.method}, "
            lines = [
                f"{way}temperature {self.temperature:.3f}",
                f"on {self.num_labels} labels in {self.seconds:.1f} s",
                f"NLL {self.nll:.4f}, as it was {self.nll_mean:.4f}, with a temperature {self.nll_temperature:.4f}",
                f"accuracy {self.accuracy:.4f}, as it was {self.accuracy_mean:.4f}",
                *self._why,
            ]
            return "\n".join(lines)
        moved = "differ from their average by" if self.disagreement >= 1e-3 else "hardly differ from their average:"
        lines = [
            f"amplitude × {self.factor:.3g} ({self.criterion}), temperature {self.temperature:.3f}",
            f"on {self.num_labels} labels in {self.seconds:.1f} s",
            f"NLL {self.nll:.4f}, {self.price:.4f} above the best (standard error {self.standard_error:.4f})",
            f"NLL without draws {self.nll_mean:.4f}, with a temperature {self.nll_temperature:.4f}",
            f"accuracy {self.accuracy:.4f}, without draws {self.accuracy_mean:.4f}",
            f"draws {moved} {self.disagreement:.2g} (total variation)",
        ]
        if self.criterion == "widest" and self.nll > min(self.nll_temperature, self.nll_best):
            lines.append('so wide to detect other inputs: for probabilities criterion="likelihood" or a temperature')
        for name, amplitude in self.amplitudes.items():
            lines.append(f"{name}: amplitude {float(amplitude.min()):.3g} to {float(amplitude.max()):.3g}")
        return "\n".join(lines)

    def _of_values(self, scale: list[float]) -> str:
        scales = ", ".join(f"{value:.4g}" for value in scale[:8]) + ", ..." * (len(scale) > 8)
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        lines = [f"{self.method}, variance × {scales}", f"on {self.num_labels} rows in {self.seconds:.1f} s", scores]
        return "\n".join([*lines, *self._why])

    @property
    def _why(self) -> list[str]:
        """Why it is no posterior that was calibrated, if one may have been expected."""
        words = f"a {self.method}, as the model has no posterior (cgp.convert gives attention one)"
        return [words] if self.is_fallback else []


def calibrate_posterior(
    search: AmplitudeSearch, kept: list[Batch], method: Posterior, progress: Progress
) -> Calibration:
    """Fit the width of a converted model's posterior, in place at the end, and a temperature."""
    start, model, criterion = time.perf_counter(), search.model, method.criterion
    amplitudes = amplitudes_of(model)
    given = logit_temperature(model)
    runs = len(kept) * search.num_samples * (len(COARSE) + len(_FINE) + 3 * method.scaled)
    ticks = Ticks(progress, "calibrate", runs)
    search = replace(search, tick=ticks)
    search.check(kept)

    temperatures = TEMPERATURES if method.scaled else (given,)
    scores = search.scores(kept, (0.0, *COARSE), temperatures)
    edge = chosen(tune(scores), criterion).factor
    near = [edge * step for step in _FINE]
    near = near if criterion == "widest" else [*(f / 2 for f in near[1:]), *near[:2]]
    tried = tune(scores | search.scores(kept, near, temperatures))
    best, taken, plain = min(tried.values(), key=lambda trial: trial.nll), chosen(tried, criterion), tried[0.0]
    if method.scaled:
        taken = search.fit_temperature(kept, taken, least=min(plain.parameter, 1.0))
        plain = search.fit_temperature(kept, plain)
    as_it_was = search.scores(kept, (0.0,), (given,))[0.0].best(0.0)
    if not math.isfinite(taken.nll):
        raise ValueError("data: expected labels of classes that the model allows, got some whose logit is -inf")
    scaled = {name: owner + math.log(taken.factor) for name, owner in amplitudes.items()}
    options: dict[str, Any] = {"amplitudes": {name: logarithm.exp() for name, logarithm in scaled.items()}}
    options |= {"criterion": criterion, "start": start}
    report = _report(model, method, (as_it_was, plain, best, taken), **options)
    ticks.finish()
    for name, parameter in amplitudes.items():  # only now, after everything that can fail
        parameter.copy_(scaled[name])
    set_logit_temperature(model, taken.parameter)
    mark_calibrated(model)
    forget_held_out(model)
    return report


def calibrate_outputs(search: AmplitudeSearch, changed: nn.Module, kept: list[Batch], method: Method) -> Calibration:
    """Fit the temperature of a copy of the search's model that was changed to predict by a method."""
    start, given = time.perf_counter(), logit_temperature(search.model)
    labels = torch.cat([search.task.flat(batch.labels) for batch in kept if batch.labels is not None])
    plain = _logits(replace(search, model=as_assessed(search.model)), kept, 0.0)
    logits = _logits(replace(search, model=changed), kept, float(method.draws))
    temperature = Logits(logits).fit(labels) if method.scaled else given
    as_it_was, result = _trial(plain, labels, given), _trial(logits, labels, temperature)
    scaled = _trial(plain, labels, Logits(plain).fit(labels))
    set_logit_temperature(changed, temperature)
    mark_calibrated(changed)
    result = result._replace(factor=float(method.draws))
    return _report(changed, method, (as_it_was, scaled, result, result), start=start)


def calibrate_values(search: AmplitudeSearch, kept: list[Batch], method: Method) -> Calibration:
    r"""Fit the variance of a network's errors: as :func:`cgp.calibrate` with ``task="regression"``.

    .. math:: \min_{s^2} -\textstyle\sum_i \log N\big(y_i \mid \mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, and for a posterior at the amplitude that :func:`cgp.calibrate` describes, with e the variance of
    the draws or of the read-out's function, 0 without, and v the variance that the network or the read-out gives, 1
    without.

    Returns:
        The result, with a copy that shares the model's tensors.
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
    scale = Normals.of(prediction).fit(values.double())
    assert prediction.aleatoric is not None
    noise_of = prediction.aleatoric * scale
    spread = torch.zeros(()) if prediction.epistemic is None else prediction.epistemic
    scores = replace(prediction, aleatoric=noise_of, total=noise_of + spread, labels=values).score()
    changed = with_settings(model, replace(settings, scale=scale.cpu(), has_variance_head=task.has_distribution))
    mark_calibrated(changed)
    seconds = time.perf_counter() - start
    return Calibration(changed, method.name, factor, len(values), seconds, scale=scale.cpu(), scores=scores)


def _report(
    model: nn.Module, method: Method, trials: tuple[Trial, Trial, Trial, Trial], *, start: float, **options: Any
) -> Calibration:
    """The report on trials of the model as it was, with a temperature, of the best draws, and of those chosen."""
    as_it_was, plain, best, taken = trials
    if method.scaled and is_useless(taken.parameter):
        warn_user(f"data: {taken.accuracy:.1%} of answers are right, and {USELESS}{ASKED}")
    return Calibration(
        model=model,
        method=method.name,
        factor=taken.factor,
        temperature=taken.parameter,
        nll_mean=as_it_was.nll,
        nll_temperature=plain.nll,
        nll_best=best.nll,
        nll=taken.nll,
        standard_error=best.standard_error,
        accuracy_mean=as_it_was.accuracy,
        accuracy=taken.accuracy,
        disagreement=taken.disagreement,
        num_labels=len(taken.losses),
        seconds=time.perf_counter() - start,
        **options,
    )


def _logits(search: AmplitudeSearch, kept: list[Batch], factor: float) -> Tensor:
    """Logits ``(S, n, C)`` of all labels."""
    search.check(kept)
    parts = [
        with_labels(logits, batch.labels)[0]
        for _, batch, logits in search.draws(kept, (factor,))
        if batch.labels is not None
    ]
    return torch.cat(parts, 1)


def _trial(logits: Tensor, labels: Tensor, temperature: float) -> Trial:
    return LabelScores.of(logits, labels, (temperature,)).best(0.0)


def _fit_factor(search: AmplitudeSearch, kept: list[Batch], criterion: str) -> float:
    """The factor of the amplitudes that is chosen by held-out values."""
    parts: dict[float, list[Normals]] = {factor: [] for factor in (0.0, *COARSE)}
    for factor, _, drawn in search.draws(kept, (0.0, *COARSE)):  # of a batch, of which only the moments are kept
        parts[factor].append(Normals.of_draws(drawn))
    by_factor = {factor: Normals.joined(rows) for factor, rows in parts.items()}
    values = values_for(by_factor[0.0].mean, [batch.labels for batch in kept]).double()
    tuned = {factor: normals.tuning(values) for factor, normals in by_factor.items()}
    return chosen({f: scores.best(f) for f, scores in tuned.items() if scores is not None}, criterion).factor
