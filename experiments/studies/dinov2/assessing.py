"""What `cgp.assess` says of the fine-tuned network, and how well neighbours tell other images beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

import cgp
from cgp.networks.model.representation import pooled_features
from experiments.data import Batches, Examples
from experiments.evaluation.paired import auroc_difference
from experiments.studies.dinov2.fitting import fit, fitted
from experiments.studies.dinov2.network import Upper
from experiments.studies.dinov2.states import sets_of_states, splits_of_states

__all__ = ["assess"]

Array = NDArray[Any]

_BATCH = 250
_NEIGHBOUR = 50


def assess(*, data: Path, out: Path = Path("runs/dinov2"), seed: int = 0, images: int = 1000) -> None:
    """Fine-tune, unless that was done, and print the assessment on test images, corrupted and other ones.

    Args:
        data: folder with cifar10/, cifar100/, tiny_imagenet/ and textures/.
        out: folder to write.
        seed: seed of the training.
        images: number of test images.
    """
    splits, others = splits_of_states(data, out), sets_of_states(data, out)
    model = fitted(fit(data=data, out=out, seed=seed), splits)
    test = splits.test.chosen(torch.arange(images))
    report = cgp.assess(
        model,
        _labelled(test),
        train=_labelled(splits.train),
        ood={name: list(Batches(part, _BATCH)) for name, part in others.items()},
    )
    print(report)
    print(f"\n| set | AUROC of the {_NEIGHBOUR}th neighbour | − that of 1 - confidence |\n|---|--:|--:|")
    known, confidence = _neighbours(model, splits.train, test)
    for name, part in others.items():
        far, doubt = _neighbours(model, splits.train, part)
        pair = {0: (known, far)}
        gain = auroc_difference(pair, {0: (confidence, doubt)})
        print(f"| {name} | {cgp.networks.tasks.metrics.auroc(known, far):.3f} | {gain} |")


def _labelled(part: Examples) -> list[tuple[Any, Tensor]]:
    return list(zip(Batches(part, _BATCH), part.known_labels.split(_BATCH), strict=True))


@torch.no_grad()
def _neighbours(model: Upper, train: Examples, part: Examples) -> tuple[Array, Array]:
    """Distance to the neighbour among the training images, in directions of features; and one minus the confidence."""
    features = [_features(model, examples) for examples in (train, part)]
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(features[0])
    doubt = 1 - torch.cat([model(inputs).softmax(-1).amax(-1) for inputs in Batches(part, _BATCH)])
    return neighbours.kneighbors(features[1])[0][:, -1], doubt.numpy()


def _features(model: Upper, part: Examples) -> Array:
    features = torch.cat([pooled_features(model, inputs) for inputs in Batches(part, _BATCH)]).numpy()
    return features / np.linalg.norm(features, axis=1, keepdims=True)
