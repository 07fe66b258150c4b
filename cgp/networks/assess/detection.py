"""Scores of out-of-distribution inputs, compared with those of in-distribution inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.comparisons import Difference
from cgp.networks.detect.detectors import representation_scores, with_energy
from cgp.networks.model.inputs import Batch, model_device
from cgp.networks.model.representation import Mahalanobis, standardised
from cgp.networks.predict.readout import GPReadout
from cgp.networks.tasks import metrics

from .claims import Detection

__all__ = ["Representation", "compare_detectors"]

Array = NDArray[Any]


class Representation:
    """Scores of inputs by the representation of the training set; none without a training set.

    Args:
        model: the classifier.
        features: function that computes the representation ``(N, d)`` of inputs.
        train: its training data, or None.
        num_classes: C.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Callable[[nn.Module, Any], Tensor],
        train: Sequence[Batch] | None,
        num_classes: int,
    ) -> None:
        self.model, self.features, self.num_classes = model, features, num_classes
        self._last: tuple[Batch, Array] | None = None
        self.readout: GPReadout | None = None
        self.distance: Mahalanobis | None = None
        if train is not None:
            z, labels = self._features_of(train), np.concatenate([_numbers(batch.labels) for batch in train])
            self.readout, self.distance = GPReadout(z, labels), Mahalanobis().fit(z, labels)

    def logits(self, batch: Batch) -> Tensor:
        """Logits ``(1, N, C)`` of the read-out, −∞ of classes that the training set does not have."""
        assert self.readout is not None
        logits = self.readout.log_probabilities(self._of_batch(batch), self.num_classes)
        return logits[None].to(model_device(self.model), torch.get_default_dtype())

    def far(self, batch: Batch) -> dict[str, Array]:
        """Scores ``(N,)`` that are large for unfamiliar inputs, by name."""
        if self.readout is None:
            return {}
        z = self._of_batch(batch)
        return {name: representation_scores(fitted, z) for name, fitted in self.fitted().items()}

    def fitted(self) -> dict[str, Any]:
        """The models fitted to the training set's representation, by the name of their score."""
        return {"Mahalanobis": self.distance, "GP variance": self.readout} if self.readout is not None else {}

    def _of_batch(self, batch: Batch) -> Array:
        """Features of a batch; those of the last one are kept, as it is asked for several times."""
        if self._last is None or self._last[0] is not batch:
            self._last = batch, self._features_of([batch])
        return self._last[1]

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
