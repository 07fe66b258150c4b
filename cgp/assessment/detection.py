"""Scores of inputs of other kinds, compared with those of the inputs that a classifier knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.comparisons import Difference
from cgp.model.inputs import Batch
from cgp.prediction import metrics
from cgp.prediction.amplitudes import AmplitudeSearch
from cgp.prediction.labels import check_finite
from cgp.prediction.prediction import uncertainties

from .claims import Detection
from .detectors import Mahalanobis, standardised

__all__ = ["OutputScores", "Representation", "compare_detectors", "with_energy"]

Array = NDArray[Any]


class Representation:
    """What the training set's representation says of inputs; nothing without a training set.

    Args:
        model: the classifier.
        features: the representation ``(N, d)`` of inputs.
        train: its training data, or None.
    """

    def __init__(
        self, model: nn.Module, features: Callable[[nn.Module, Any], Tensor], train: Sequence[Batch] | None
    ) -> None:
        self.model, self.features = model, features
        self.readout: Any = None
        self.distance: Mahalanobis | None = None
        if train is not None:
            from .readout import GPReadout  # scikit-learn is slow to import

            z, labels = self._features_of(train), np.concatenate([_numbers(batch.labels) for batch in train])
            self.readout, self.distance = GPReadout(z, labels), Mahalanobis(z, labels)

    def of(self, data: Sequence[Batch]) -> tuple[Tensor | None, dict[str, Array]]:
        """The read-out's probabilities ``(N, C)``, and scores ``(N,)`` that are large where the inputs are foreign."""
        if self.readout is None or self.distance is None:
            return None, {}
        z = self._features_of(data)
        read = self.readout(z)
        return read.probabilities, {"Mahalanobis": self.distance(z), "GP variance": read.variance.numpy()}

    def _features_of(self, data: Sequence[Batch]) -> Array:
        return np.concatenate([_numbers(self.features(self.model, batch.inputs).double()) for batch in data])


class OutputScores(NamedTuple):
    """Scores of what a model returns, with and without a posterior.

    Attributes:
        search: draws of the model.
        factor: of the amplitudes, 0 without a posterior.
        temperature: of the draws.
    """

    search: AmplitudeSearch
    factor: float
    temperature: float

    def of_inputs(self, data: Sequence[Batch], name: str) -> dict[str, Array]:
        """Scores ``(N,)`` of inputs by name."""
        factors = sorted({0.0, self.factor})
        parts, logits, first = [], dict[float, Tensor](), 0
        for factor, _, drawn in self.search.draws(list(data), factors):
            logits[factor] = drawn
            if len(logits) == len(factors):  # of a batch
                check_finite(logits[0.0][0], first=first, name=f"{name}: model")
                parts.append(self.of_logits(logits))
                first, logits = first + drawn.shape[1], {}
        return {score: np.concatenate([part[score] for part in parts]) for score in parts[0]}

    def of_logits(self, logits: dict[float, Tensor]) -> dict[str, Array]:
        """Scores ``(N,)`` of logits ``(S, N, C)`` by factor."""
        total, _, _ = uncertainties(logits[0.0].softmax(-1))
        scores = {"1 - confidence": 1 - logits[0.0][0].softmax(-1).amax(-1), "entropy": total}
        scores["energy"] = -logits[0.0][0].logsumexp(-1)
        if self.factor:
            total, _, epistemic = uncertainties((logits[self.factor] / self.temperature).softmax(-1))
            scores["widest posterior's entropy"], scores["epistemic"] = total, epistemic
        return {name: _numbers(values) for name, values in scores.items()}


def compare_detectors(
    known: tuple[dict[str, Array], dict[str, Array]],
    others: dict[str, tuple[dict[str, Array], dict[str, Array]]],
) -> dict[str, dict[str, Detection]]:
    """AUROC and FPR95 of every score on every set of other inputs.

    Args:
        known: scores of the outputs and of the representation, inputs of the known kind.
        others: likewise, by the names of the sets.

    Returns:
        By the name of the set, then of the score; sums with the energy are in standard deviations over known inputs.
    """
    scales = {name: standardised(values) for part in known for name, values in part.items()}
    inside = with_energy(*known, scales)
    detection = {}
    for name, parts in others.items():
        outside = with_energy(*parts, scales)
        detection[name] = _detections({score: (inside[score], outside[score]) for score in inside})
    return detection


def with_energy(
    outputs: dict[str, Array], far: dict[str, Array], scales: dict[str, Callable[[Array], Array]]
) -> dict[str, Array]:
    """Scores of the outputs, those of the representation, and each of these in a sum with the energy."""
    energy = scales["energy"](outputs["energy"])
    return outputs | far | {f"{name} + energy": scales[name](values) + energy for name, values in far.items()}


def _detections(pairs: dict[str, tuple[Array, Array]]) -> dict[str, Detection]:
    """What scores inside and outside are worth, each against the first one."""
    placed = {name: metrics.placements(*pair) for name, pair in pairs.items()}
    first = next(iter(placed.values()))
    detections = {}
    for name, pair in pairs.items():
        inside, outside = (part - plain for part, plain in zip(placed[name], first, strict=True))
        gain = Difference(float(outside.mean()), metrics.delong_error(inside, outside))
        scores = metrics.auroc(*pair), metrics.fpr95(*pair)
        detections[name] = Detection(*scores, gain, metrics.delong_error(*placed[name]), min(map(len, pair)))
    return detections


def _numbers(values: Tensor | None) -> Array:
    assert values is not None
    return values.cpu().numpy()
