"""CIFAR-10 in four parts."""

from pathlib import Path
from typing import NamedTuple

import torch

from experiments.data import LabelledImages
from experiments.data.images import read_arrays
from experiments.data.partition import generator_for

__all__ = ["CifarParts", "cifar10_parts"]


class CifarParts(NamedTuple):
    """CIFAR-10 in four parts.

    Attributes:
        train: 45,000 images.
        selection: 4,000 images; the epoch and the variant are selected on them.
        calibration: 1,000 images; scales, temperatures and prior precisions are fitted on them.
        test: 10,000 images.
    """

    train: LabelledImages
    selection: LabelledImages
    calibration: LabelledImages
    test: LabelledImages


def cifar10_parts(root: Path, limit: int | None = None) -> CifarParts:
    """Read and split CIFAR-10.

    Args:
        root: folder with `cifar10/train.npz` and `cifar10/test.npz`.
        limit: images of each part at most.
    """
    whole = _floats(root / "cifar10" / "train.npz")
    order = torch.randperm(len(whole.labels), generator=generator_for("cifar10", "split"))
    train, selection, calibration = order[:-5000], order[-5000:-1000], order[-1000:]
    test = _floats(root / "cifar10" / "test.npz")
    parts = (chosen(whole, part[:limit].sort().values) for part in (train, selection, calibration))
    return CifarParts(*parts, chosen(test, torch.arange(len(test.labels))[:limit]))


def chosen(part: LabelledImages, which: torch.Tensor) -> LabelledImages:
    """Return some of the images.

    Args:
        part: images.
        which: their positions.
    """
    return LabelledImages(part.images[which], part.labels[which], part.ids[which])


def _floats(path: Path) -> LabelledImages:
    images, labels, *_ = read_arrays(path)
    return LabelledImages(images.float().div_(255.0), labels, torch.arange(len(labels)))
