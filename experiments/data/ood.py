"""OOD images, predicted besides the test images."""

from collections.abc import Iterator
from pathlib import Path

import torch

from cgp.spelling import meant
from experiments.configuration import DataConfig
from experiments.data.catalogue import IMAGE_SETS, read_set
from experiments.data.digits import OOD_KINDS, ood_images
from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet
from experiments.data.images import Pixels, Shape, fitted, image_files, read_arrays, read_images
from experiments.data.partition import some

__all__ = ["OWN_IMAGES", "folder_inputs", "ood_sets", "requested_ood"]

OWN_IMAGES = "images-"
"""Prefix of the names of a user's folders, so that none equals the name of an input set."""


def requested_ood(data: DataConfig) -> tuple[str, ...]:
    """Names of the requested OOD images; by default four kinds with the digits."""
    if data.ood is None:
        return tuple(OOD_KINDS) if data.name == "digits" else ()
    return data.ood


def ood_sets(data: DataConfig, splits: DataSplits) -> Iterator[InputSet]:
    """Yield OOD images, "ood-<set>", by default as many as the test part has."""
    items = requested_ood(data)
    names = [_name(item) for item in items]
    if len(set(names)) < len(names):
        raise ValueError(f"data.ood: expected sets of different names, got {', '.join(names)}")
    shape = splits.description.image_shape
    assert shape is not None
    for item, name in zip(items, names, strict=True):
        pixels = _read(item, data, splits.test, shape)
        limit = data.limit_ood or len(splits.test)
        ids = some(len(pixels.images), limit, "unfamiliar", name)  # the words seed the choice of images
        images = pixels.images[ids]
        images = fitted(images, shape) if images.dtype == torch.uint8 else images
        yield InputSet(images, None, ids, f"ood-{name}", _words(name, pixels, len(ids)))


def folder_inputs(folder: Path, description: DataDescription) -> InputSet:
    """Read a folder of images for a model of `description`, as "images-<folder>", without labels."""
    if description.image_shape is None:
        raise ValueError("description: expected data of images, got texts")
    images = read_images(image_files(folder), description.image_shape)
    name = f"{OWN_IMAGES}{folder.resolve().name}"
    return InputSet(images, None, torch.arange(len(images)), name, f"images in {folder.name}")


def _read(item: str, data: DataConfig, test: Examples, shape: Shape) -> Pixels:
    """Read a file, a folder or a set, or make images from the test images."""
    if item in OOD_KINDS:
        made = ood_images(
            test.images.float() / (255 if test.images.dtype == torch.uint8 else 1), item, data.corruptions.seed
        )
        return Pixels.unlabelled(made, "made by cgp from the test images")
    path = Path(item).expanduser()
    if path.suffix == ".npz":
        return read_arrays(path, labelled=False)
    if path.is_dir() and item not in IMAGE_SETS:
        return Pixels.unlabelled(read_images(image_files(path), shape), f"images in {path.name}")
    try:
        root = data.data_root
    except ValueError:
        raise ValueError(_without_root(item)) from None
    return read_set(item, "test", root=root, shape=shape, download=data.download)


def _without_root(item: str) -> str:
    if item in IMAGE_SETS:
        return (
            f"data.ood: expected the folder that holds the image set {item!r}, which is not made from the test images "
            f"as {', '.join(OOD_KINDS)} are, got nothing; set data.root, or the environment variable CGP_DATA"
        )
    known = (*OOD_KINDS, *IMAGE_SETS)
    return (
        f"data.ood: expected {', '.join(OOD_KINDS)}, a folder of images, an .npz file or an image set "
        f"({', '.join(IMAGE_SETS)}), got {item!r}{meant([item], known)}"
    )


def _name(item: str) -> str:
    path = Path(item)
    if item in OOD_KINDS or (path.suffix != ".npz" and len(path.parts) == 1):
        return item
    return path.stem if path.suffix == ".npz" else path.name


def _words(name: str, pixels: Pixels, taken: int) -> str:
    known = IMAGE_SETS.get(name)
    there, public = len(pixels.images), known.sizes.get("test", 0) if known else 0
    partial = f" ({there:,} of the {public:,} that are public)" if known and there != public else ""
    return f"{pixels.source}: {taken:,} of {there:,} images{partial}"
