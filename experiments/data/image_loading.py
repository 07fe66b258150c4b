"""Image sets in three parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from experiments.configuration import DataConfig
from experiments.data import digits
from experiments.data.arrays import read_arrays
from experiments.data.catalogue import IMAGE_SETS, read_set
from experiments.data.examples import DataDescription, DataSplits, Examples
from experiments.data.folders import read_classes
from experiments.data.partition import limited, stratified_partition
from experiments.data.pixels import Pixels, fitted, pixel_statistics

__all__ = ["load_digits", "load_images"]

PARTS = ("train", "validation", "test")
_SPELLINGS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}
_HELD_OUT_TEST = 0.2
_SIDE = 32


def load_digits(data: DataConfig, seed: int) -> DataSplits:
    """Split the digits 60 : 20 : 20.

    Args:
        data: the configuration.
        seed: of the run; it decides the split where `data.split_seed` is None.
    """
    splits = digits.digits_splits(seed if data.split_seed is None else data.split_seed)
    parts = {name: Examples(*part) for name, part in zip(PARTS, splits, strict=True)}
    parts, reductions = limited(parts, data)
    description = DataDescription(
        kind="image",
        num_classes=10,
        image_shape=(1, 8, 8),
        mean=(digits.MEAN,),
        deviation=(digits.STANDARD_DEVIATION,),
        class_names=tuple("0123456789"),
        deviations=reductions,
    )
    return DataSplits(**parts, description=description)


def load_images(data: DataConfig, seed: int) -> DataSplits:
    """Read an image set, from a folder of classes or by its name.

    Args:
        data: the configuration.
        seed: of the run; it decides the split where `data.split_seed` is None.

    Raises:
        FileNotFoundError: if a part is missing.
        ValueError: if the set is not what was published, and `data.unchecked` is not set.
    """
    found = _in_folder(data.folder.expanduser(), data) if data.folder else _by_name(data)
    differences = () if data.folder else _differences(data, found)
    classes = found["train"].classes
    num_classes = _num_classes(data, found)
    parts, reductions = limited(_three_parts(found, data, seed), data)
    shape = _shape(data, found["train"].images)
    parts = {name: _fitting(part, shape) for name, part in parts.items()}
    mean, deviation = pixel_statistics(_images(parts["train"]))
    description = DataDescription(
        kind="image",
        num_classes=num_classes,
        image_shape=shape,
        mean=mean,
        deviation=deviation,
        class_names=classes,
        deviations=(*differences, *reductions),
    )
    return DataSplits(**parts, description=description)


def _by_name(data: DataConfig) -> dict[str, Pixels]:
    """Read what there is of a set: train, test, and validation if it is kept apart."""
    root, name = data.data_root, data.name
    found = {"train": read_set(name, "train", root=root, download=data.download)}
    for part in ("validation", "test"):
        path = root / name / f"{part}.npz"
        if path.exists():
            found[part] = read_arrays(path)
    if "test" not in found and name in IMAGE_SETS:
        found["test"] = read_set(name, "test", root=root, download=data.download)
    return found


def _in_folder(folder: Path, data: DataConfig) -> dict[str, Pixels]:
    """Read a folder of classes, or of parts that hold classes."""
    if not folder.is_dir():
        raise FileNotFoundError(f"data.folder: expected a folder with one sub-folder a class, {folder} is not there")
    side = data.image_size or _SIDE
    parts = {
        part: folder / spelling
        for part, spellings in _SPELLINGS.items()
        for spelling in spellings
        if (folder / spelling).is_dir()
    }
    if "train" not in parts:
        return {"train": read_classes(folder, (3, side, side))}
    found = {part: read_classes(path, (3, side, side)) for part, path in parts.items()}
    for part, pixels in found.items():
        if pixels.classes != found["train"].classes:
            raise ValueError(
                f"{parts[part]}: expected the classes of {parts['train']}, {found['train'].classes}; "
                f"got {pixels.classes}"
            )
    return found


def _differences(data: DataConfig, found: Mapping[str, Pixels]) -> tuple[str, ...]:
    """Compare with what is public about the set; a difference is an error unless it was agreed to."""
    known = IMAGE_SETS.get(data.name)
    sizes = known.sizes if known else {}
    differences = tuple(
        f"{found[part].source} holds {len(found[part].labels):,} of the {size:,} {part} images of {known.title}"
        for part, size in sizes.items()
        if known and part in found and len(found[part].labels) != size
    )
    if differences and known and not data.unchecked:
        raise ValueError(
            f"{data.data_root}: {'; '.join(differences)}. Get the whole set by {known.call}, or set "
            "data.unchecked=true to use what is there"
        )
    return differences


def _num_classes(data: DataConfig, found: Mapping[str, Pixels]) -> int:
    known = IMAGE_SETS.get(data.name)
    if known and not known.num_classes:
        raise ValueError(f"data.name: {data.name} serves as OOD images alone, it has no classes to learn")
    train, where = found["train"], data.folder or data.data_root
    num_classes = known.num_classes if known else len(train.classes) or int(train.labels.amax()) + 1
    for pixels in found.values():
        wrong = (pixels.labels < 0) | (pixels.labels >= num_classes)
        if wrong.any():
            label = int(pixels.labels[wrong][0])
            raise ValueError(f"{where}: {pixels.source}: expected labels from 0 to {num_classes - 1}, got {label}")
    if num_classes < 2:
        raise ValueError(f"{where}: {train.source}: expected at least two classes, got {num_classes}")
    return num_classes


def _three_parts(found: Mapping[str, Pixels], data: DataConfig, seed: int) -> dict[str, Examples]:
    """Hold out of the training part what is not kept apart."""
    parts = {
        name: Examples(pixels.images, pixels.labels, torch.arange(len(pixels.labels))) for name, pixels in found.items()
    }
    shares = {"validation": data.validation, "test": _HELD_OUT_TEST}
    missing = {name: share for name, share in shares.items() if name not in parts}
    split_seed = seed if data.split_seed is None else data.split_seed
    whole = parts["train"]
    divided = stratified_partition(whole.labels, list(missing.values()), data.name, split_seed)
    parts |= {name: whole.chosen(part) for name, part in zip(("train", *missing), divided, strict=True)}
    for name, part in parts.items():
        if not len(part):
            raise ValueError(f"{found['train'].source}: expected enough images to hold some out for {name}, got none")
    return {name: parts[name] for name in PARTS}


def _shape(data: DataConfig, images: Tensor) -> tuple[int, int, int]:
    side = data.image_size or min(images.shape[-2:])
    return images.shape[1], side, side


def _fitting(part: Examples, shape: tuple[int, int, int]) -> Examples:
    return Examples(fitted(_images(part), shape), part.labels, part.ids)


def _images(part: Examples) -> Tensor:
    assert isinstance(part.inputs, Tensor)
    return part.inputs
