"""Comparison of a classifier's methods, and of the scores that tell other inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.comparisons import Difference
from cgp.networks.detect.detectors import Detector, OutputScores, Posterior, with_energy
from cgp.networks.methods.amplitudes import AmplitudeSearch
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.dropout import has_dropout, with_dropout
from cgp.networks.model.inputs import Batch
from cgp.networks.model.representation import standardised
from cgp.networks.tasks.metrics import LabelledScores

from .assessment import ADVISED, Assessment
from .claims import Detection
from .detection import Representation, compare_detectors
from .recipe import DROPOUT, READ_OUT, Recipe, fingerprint
from .tuning import Tuned
from .validation_data import ValidationData

__all__ = ["compare_methods"]

Array = NDArray[Any]
Functions = tuple[Callable[[nn.Module, Any], Tensor], Callable[[Any], Tensor]]


def compare_methods(
    model: nn.Module,
    search: AmplitudeSearch,
    data: tuple[ValidationData, NDArray[np.int64], int],
    representation: Representation,
    others: Iterable[tuple[str, Iterable[Batch]]],
    fitted: tuple[Posterior, Functions],
    *,
    draws: bool,
    task: str,
) -> Assessment:
    """Compare all methods and, where every input has its label, all detectors.

    Args:
        model: the classifier.
        search: its draws, or those of its converted copy.
        data: validation data, the input of each label, ``(N,)``, and the number of folds.
        representation: of the training set.
        others: other inputs by name.
        fitted: the kind of draws, and what takes representation and logits, for detectors.
        draws: whether there is a posterior.
        task: what a label belongs to; each input has its label in a "classification".

    Returns:
        The comparison.
    """
    (held, input_of, folds), each = data, task == "classification"
    generator = torch.Generator().manual_seed(search.seed)
    fold_of = (torch.randperm(int(input_of.max()) + 1, generator=generator) % folds)[torch.from_numpy(input_of)]
    sources = _sources(model, search, representation)
    tuned = Tuned(search, held, fold_of, draws=draws, sources=sources, far=representation.far)
    scored = tuned.scored(inputs=each)
    outputs = OutputScores(search, *tuned.widest())
    inside = scored.outputs, scored.far
    outside = {name: _scores_of(outputs, representation, read, name) for name, read in others}
    posterior, functions = fitted
    drawn = posterior._replace(factor=outputs.factor, temperature=outputs.temperature)
    detectors = _detectors(*inside, representation, drawn, functions) if each else {}
    choices = {name: _numbers_of(*tuned.choice(name)) for name in tuned.names()}
    recipe = Recipe(fingerprint(model), posterior.layers, choices, representation.readout, detectors, *functions, task)
    detection = compare_detectors(inside, outside) if outside else {}
    return _comparison(scored.methods, input_of, detection, recipe)


def _sources(
    model: nn.Module, search: AmplitudeSearch, representation: Representation
) -> dict[str, Callable[[int, Batch], Tensor]]:
    """Sources of logits besides the model and its posterior: a read-out, and dropout that goes on."""
    sources: dict[str, Callable[[int, Batch], Tensor]] = {}
    if representation.readout is not None:
        sources[READ_OUT] = lambda _, batch: representation.logits(batch)
    if has_dropout(model) and not stochastic_layers(model):
        dropped = replace(search, model=with_dropout(model))
        sources[DROPOUT] = partial(_draws, dropped)
    return sources


def _draws(search: AmplitudeSearch, number: int, batch: Batch) -> Tensor:
    return next(search.draws([batch], (1.0,), first=number))[2]


def _scores_of(
    outputs: OutputScores, representation: Representation, data: Iterable[Batch], name: str
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Scores of the outputs and of the representation of other inputs, batch by batch."""
    parts: list[dict[str, Array]] = []

    def watched() -> Iterator[Batch]:
        for batch in data:
            parts.append(representation.far(batch))
            yield batch

    of_outputs = outputs.of_inputs(watched(), name)
    return of_outputs, {score: np.concatenate([part[score] for part in parts]) for score in parts[0]}


def _numbers_of(key: float | str, temperature: float) -> tuple[float, float]:
    """The factor of the amplitudes, 0 without, and the temperature."""
    return key if isinstance(key, float) else 0.0, temperature


def _detectors(
    outputs: dict[str, Array],
    far: dict[str, Array],
    representation: Representation,
    posterior: Posterior,
    functions: Functions,
) -> dict[str, Detector]:
    """Every score of the tables as a detector with its values on the validation data."""
    parts = {**outputs, **far}
    fitted, scales = representation.fitted(), {name: standardised(values) for name, values in parts.items()}
    detectors = {}
    for name, known in with_energy(outputs, far, scales).items():
        base = name.removesuffix(" + energy")
        summed = {part: parts[part] for part in (base, "energy")} if base != name else {}
        detectors[name] = Detector(name, *functions, posterior, fitted.get(base), np.sort(known), summed)
    return detectors


def _comparison(
    methods: dict[str, LabelledScores],
    input_of: NDArray[np.int64],
    detection: dict[str, dict[str, Detection]],
    recipe: Recipe,
) -> Assessment:
    plain, scaled = methods["as trained"], methods["temperature"]
    beyond = {name: methods[name] for name in ADVISED if name in methods}
    return Assessment(
        scores={name: scores.summary() for name, scores in methods.items()},
        differences={name: _differences(scores, plain, input_of) for name, scores in methods.items()},
        beyond_temperature={name: _differences(scores, scaled, input_of)["nll"] for name, scores in beyond.items()},
        detection=detection,
        num_labels=len(input_of),
        num_inputs=int(input_of.max()) + 1,
        confidences={name: scores.confidence for name, scores in methods.items()},
        correct={name: scores.correct for name, scores in methods.items()},
        recipe=recipe,
    )


def _differences(
    scores: LabelledScores, reference: LabelledScores, input_of: NDArray[np.int64]
) -> dict[str, Difference]:
    pairs = {
        "nll": scores.losses - reference.losses,
        "brier": scores.briers - reference.briers,
        "accuracy": 1.0 * scores.correct - reference.correct,
    }
    return {name: Difference.of_groups(values, input_of) for name, values in pairs.items()}
