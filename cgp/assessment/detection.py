"""Scores of out-of-distribution inputs, compared with those of in-distribution inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.comparisons import Difference
from cgp.model.inputs import Batch
from cgp.prediction import metrics
from cgp.prediction.detectors import representation_scores, with_energy
from cgp.prediction.readout import GPReadout
from cgp.prediction.representation import Mahalanobis, standardised

from .claims import Detection

__all__ = ["Representation", "compare_detectors"]

Array = NDArray[Any]


class Representation:
    """Scores of inputs by the representation of the training set; none without a training set.

    Args:
        model: the classifier.
        features: function that computes the representation ``(N, d)`` of inputs.
        train: its training data, or None.
    """

    def __init__(
        self, model: nn.Module, features: Callable[[nn.Module, Any], Tensor], train: Sequence[Batch] | None
    ) -> None:
        self.model, self.features = model, features
        self.readout: GPReadout | None = None
        self.distance: Mahalanobis | None = None
        if train is not None:
            z, labels = self._features_of(train), np.concatenate([_numbers(batch.labels) for batch in train])
            self.readout, self.distance = GPReadout(z, labels), Mahalanobis().fit(z, labels)

    def of(self, data: Sequence[Batch]) -> tuple[Tensor | None, dict[str, Array]]:
        """The read-out's probabilities ``(N, C)``, and scores ``(N,)`` that are large for unfamiliar inputs."""
        if self.readout is None or self.distance is None:
            return None, {}
        z = self._features_of(data)
        far = {name: representation_scores(fitted, z) for name, fitted in self.fitted().items()}
        return self.readout(z).probabilities, far

    def fitted(self) -> dict[str, Any]:
        """The models fitted to the training set's representation, by the name of their score."""
        return {"Mahalanobis": self.distance, "GP variance": self.readout} if self.readout is not None else {}

    def _features_of(self, data: Sequence[Batch]) -> Array:
        return np.concatenate([_numbers(self.features(self.model, batch.inputs).double()) for batch in data])


def compare_detectors(
    known: tuple[dict[str, Array], dict[str, Array]],
    others: dict[str, tuple[dict[str, Array], dict[str, Array]]],
) -> dict[str, dict[str, Detection]]:
    """AUROC and FPR95 of every score on every set of other inputs.

    Args:
        known: scores of the outputs and of the representation for in-distribution inputs.
        others: the same for other inputs, by the names of the sets.

    Returns:
        Results by the name of the set, then of the score; sums with the energy are in standard deviations of known
        inputs.
    """
    scales = {name: standardised(values) for part in known for name, values in part.items()}
    inside = with_energy(*known, scales)
    detection = {}
    for name, parts in others.items():
        outside = with_energy(*parts, scales)
        detection[name] = _detections({score: (inside[score], outside[score]) for score in inside})
    return detection


def _detections(pairs: dict[str, tuple[Array, Array]]) -> dict[str, Detection]:
    """AUROC and FPR95 of scores inside and outside, and their gain over the first one."""
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
