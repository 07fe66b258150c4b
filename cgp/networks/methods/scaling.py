"""Calibration of what a model returns, however it comes about: one temperature."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.inputs import Batch, model_device
from cgp.networks.model.representation import Features, pooled_features
from cgp.networks.model.temperature import logit_temperature, set_logit_temperature
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import as_assessed
from cgp.networks.tasks.labels import NO_LABEL, labelled_batches

from .amplitudes import TEMPERATURES, AmplitudeSearch, LabelScores, Trial
from .calibration import Calibration
from .temperature_scaling import fit_temperature, with_labels

__all__ = ["Draws", "calibrate_outputs", "fit_readout"]

Draws = tuple[int, str, int, Callable[[Any], Tensor]]
"""Number of draws, "marginal" or "joint", seed, and what takes the logits from what the model returns."""


def fit_readout(
    model: nn.Module, train: Any, batch_size: int | None, features: Features = pooled_features
) -> GPReadout:
    """A Gaussian process on the representation of a model's training data."""
    plain = as_assessed(model)
    seen = labelled_batches(train, model_device(model), name="train", batch_size=batch_size, every=True)
    z = torch.cat([features(plain, batch.inputs).double().cpu() for batch in seen])
    return GPReadout(z, torch.cat([batch.labels.cpu() for batch in seen if batch.labels is not None]))


def calibrate_outputs(
    model: nn.Module, changed: nn.Module, method: str, kept: list[Batch], draws: Draws, *, temperature: bool
) -> Calibration:
    """Fit the temperature of a copy of a model that draws, or reads out, in its way.

    Args:
        model: as it was.
        changed: the copy, which is given the temperature.
        method: its name.
        kept: labelled batches.
        draws: what draws are made.
        temperature: whether it is fitted; otherwise it stays what it was.

    Returns:
        What was done.
    """
    start, given = time.perf_counter(), logit_temperature(model)
    factor = 1.0 if method == "dropout" else 0.0
    labels = torch.cat([batch.labels[batch.labels != NO_LABEL] for batch in kept if batch.labels is not None])
    plain = _logits(AmplitudeSearch(as_assessed(model), *draws), kept, 0.0)
    logits = _logits(AmplitudeSearch(changed, *draws), kept, factor)
    chosen = fit_temperature(logits, labels, least=TEMPERATURES[0]) if temperature else given
    as_it_was, result = _trial(plain, labels, given), _trial(logits, labels, chosen)
    scaled = _trial(plain, labels, fit_temperature(plain, labels, least=TEMPERATURES[0]))
    set_logit_temperature(changed, chosen)
    return Calibration(
        model=changed,
        method=method,
        criterion=None,
        factor=factor,
        amplitudes={},
        temperature=chosen,
        nll_mean=as_it_was.nll,
        nll_temperature=scaled.nll,
        nll_best=result.nll,
        nll=result.nll,
        standard_error=result.standard_error,
        accuracy_mean=as_it_was.accuracy,
        accuracy=result.accuracy,
        disagreement=result.disagreement,
        num_labels=len(result.losses),
        seconds=time.perf_counter() - start,
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
