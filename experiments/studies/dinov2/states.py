"""The host's lower layers, which stay as they are: images as their states, computed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor
from torch.nn import functional as F

from experiments.atomic_files import write_atomically
from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import DataSplits, Examples, InputSet, input_sets, load
from experiments.studies.dinov2.host import DEPTH, host

__all__ = ["UPPER", "pixels", "sets_of_states", "splits_of_states"]

UPPER = 2
"""Layers above the states, which are fine-tuned."""

_SIDE = 98  # pixels: 7 x 7 patches
_BATCH = 50
_MEAN, _DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # ImageNet's
_CORRUPTIONS = CorruptionConfig(
    kinds=("gaussian_noise", "gaussian_blur", "contrast", "jpeg_compression"), severities=(3,), limit=1000
)
_OOD = ("cifar100", "tiny_imagenet", "textures")


def _images(data: Path) -> tuple[DataConfig, DataSplits]:
    config = DataConfig(
        name="cifar10",
        root=data,
        unchecked=True,
        limit_train=5000,
        limit_validation=2000,
        limit_test=3000,
        limit_ood=1000,
        ood=_OOD,
        corruptions=_CORRUPTIONS,
    )
    return config, load(config, seed=0)


def splits_of_states(data: Path, out: Path) -> DataSplits:
    """CIFAR-10's parts as states above the lower layers, `(N, 50, 384)` float16."""
    _, splits = _images(data)
    train, validation, test = (
        _states(part, name, out)
        for name, part in {"train": splits.train, "validation": splits.validation, "test": splits.test}.items()
    )
    return replace(splits, train=train, validation=validation, test=test)


def sets_of_states(data: Path, out: Path) -> dict[str, Examples]:
    """Corrupted test images and images of other kinds as states, by name."""
    config, splits = _images(data)
    others = [part for part in input_sets(config, splits, 0) if part.name not in ("validation", "test")]
    return {part.name: _states(part, part.name, out) for part in others}


def pixels(images: Tensor, side: int = _SIDE) -> Tensor:
    """What the host reads of images `(N, 3, H, W)` in [0, 1]: resized to a square, standardised."""
    resized = F.interpolate(images, (side, side), mode="bicubic", antialias=True, align_corners=False).clamp(0.0, 1.0)
    return (resized - _MEAN[:, None, None]) / _DEVIATION[:, None, None]


def _states(part: Examples | InputSet, name: str, out: Path) -> Examples:
    path = out / "states" / f"{name}.npy"
    if not path.exists():
        write_atomically(path, lambda aside: _write(part.images, name, aside))
    return Examples(torch.from_numpy(np.load(path, mmap_mode="c")), part.labels, part.ids)


@torch.no_grad()
def _write(images: Tensor, name: str, aside: Path) -> None:
    model: Any = host()
    batches = []
    for some in track(images.split(_BATCH), name):
        states = model.embeddings(pixels(some.float() / 255))
        for layer in model.encoder.layer[: DEPTH - UPPER]:
            states = layer(states)
        batches.append(states.half().numpy())
    with aside.open("wb") as file:  # a name without ".npy"
        np.save(file, np.concatenate(batches))
