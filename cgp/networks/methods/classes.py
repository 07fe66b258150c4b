"""Calibration of classifiers: a temperature of what a model returns, and the width of its posterior."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.networks.model.fingerprints import logit_temperature, mark_calibrated, set_logit_temperature
from cgp.networks.model.inputs import Batch
from cgp.networks.model.progress import Progress, Ticks
from cgp.networks.predict.method import Method, as_assessed, forget_held_out
from cgp.networks.tasks.metrics import LabelledScores

from .amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, LabelScores, Trial, amplitudes_of, chosen, tune
from .calibration import Calibration
from .known import Posterior
from .temperature_scaling import fit_temperature, with_labels

__all__ = ["Logits", "calibrate_outputs", "calibrate_posterior"]

_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))


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
        """Some rows."""
        return Logits(self.draws[:, rows])

    def tuning(self, labels: Tensor) -> LabelScores:
        """Scores at every temperature that amplitudes are compared at."""
        return LabelScores.of(self.draws, labels, TEMPERATURES)

    def fit(self, labels: Tensor, *, least: float = TEMPERATURES[0]) -> float:
        """The likeliest temperature."""
        return fit_temperature(self.draws, labels, least=least)

    def probabilities(self, temperature: float) -> Tensor:
        """Averaged over draws, ``(n, C)``."""
        return (self.draws / temperature).softmax(-1).mean(0)

    def outcome(self, labels: Tensor, temperature: float) -> LabelledScores:
        """Scores of each label with a temperature."""
        return LabelledScores.of(self.probabilities(temperature).cpu().numpy(), labels.cpu().numpy())


def calibrate_posterior(
    search: AmplitudeSearch, kept: list[Batch], method: Posterior, progress: Progress
) -> Calibration:
    """Fit the width of a converted model's posterior, and a temperature: as :func:`cgp.calibrate`.

    Args:
        search: draws of the model, whose amplitudes are multiplied in place at the end.
        kept: labelled batches.
        method: what is fitted.
        progress: whether progress is shown, or what is called with the number of runs done, and of all.

    Returns:
        The result.

    Raises:
        ValueError: if no amplitude gives the labels a probability.
    """
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
    """Fit the temperature of a copy of a model that predicts by a method.

    Args:
        search: draws of the model as it was.
        changed: the copy, which is given the temperature.
        kept: labelled batches.
        method: the method.

    Returns:
        The result.
    """
    start, given = time.perf_counter(), logit_temperature(search.model)
    labels = torch.cat([search.task.flat(batch.labels) for batch in kept if batch.labels is not None])
    plain = _logits(replace(search, model=as_assessed(search.model)), kept, 0.0)
    logits = _logits(replace(search, model=changed), kept, float(method.draws))
    temperature = fit_temperature(logits, labels, least=TEMPERATURES[0]) if method.scaled else given
    as_it_was, result = _trial(plain, labels, given), _trial(logits, labels, temperature)
    scaled = _trial(plain, labels, fit_temperature(plain, labels, least=TEMPERATURES[0]))
    set_logit_temperature(changed, temperature)
    mark_calibrated(changed)
    result = result._replace(factor=float(method.draws))
    return _report(changed, method, (as_it_was, scaled, result, result), start=start)


def _report(
    model: nn.Module, method: Method, trials: tuple[Trial, Trial, Trial, Trial], *, start: float, **options: Any
) -> Calibration:
    """The report on trials of the model as it was, with a temperature, of the best draws, and of those chosen."""
    as_it_was, plain, best, taken = trials
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
        **{"criterion": None, "amplitudes": {}, **options},
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
