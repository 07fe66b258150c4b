"""The image sets by name: their published properties, and the places where they are searched."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.data.images import (
    LAYOUT,
    Pixels,
    Shape,
    holds_images,
    image_files,
    read_arrays,
    read_classes,
    read_images,
)

__all__ = ["IMAGE_SETS", "ImageSet", "Split", "read_set"]

Split = Literal["train", "test"]
Reader = Callable[[Path, Split, bool, Shape], Pixels]
"""Arguments: root, part, whether to download, and the shape of images that are stored in other sizes."""


class ImageSet(NamedTuple):
    """Published properties of an image set."""

    title: str
    call: str  # name of the library function that reads and downloads it
    sign: str  # a path in the root that exists if the library's files do; "" if no library reads the set
    sizes: Mapping[str, int]  # number of images of each part
    num_classes: int = 0  # 0 if it only serves as OOD images
    read: Reader | None = None
    classes: tuple[str, ...] = ()  # names, for files of arrays, which hold none


def read_set(name: str, split: Split, *, root: Path, shape: Shape = (3, 32, 32), download: bool = False) -> Pixels:
    """Read a part of an image set.

    Searched, in this order: `<root>/<name>/<split>.npz`; the library's layout in `<root>`, which `download` lets
    it fetch; images in the folder `<root>/<name>`, brought to `shape`; for crops and resized versions, the set they
    can be made from. An error names what was expected and how to get it.
    """
    known = IMAGE_SETS.get(name)
    path = root / name / f"{split}.npz"
    if path.exists():
        pixels = read_arrays(path, labelled=split == "train")
        return pixels._replace(classes=known.classes) if known is not None else pixels
    if known is not None and known.read is not None and (download or (root / known.sign).exists()):
        return _by_library(known, known.read, root, split, download, shape)
    if split == "test" and holds_images(root / name):
        return Pixels.unlabelled(read_images(image_files(root / name), shape), f"images in {name}")
    whole, _, way = name.rpartition("_")
    if split == "test" and way in ("crop", "resize") and (root / whole / "test.npz").exists():
        return _made(way, read_arrays(root / whole / "test.npz", labelled=False), shape[-1])
    raise FileNotFoundError(_missing(name, path))


def _by_library(known: ImageSet, read: Reader, root: Path, split: Split, download: bool, shape: Shape) -> Pixels:
    try:
        return read(root, split, download, shape)
    except (EOFError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{root / known.sign} is incomplete or altered, or could not be downloaded ({error}). Expected what "
            f"{known.call} writes: remove the files and let it download them again"
        ) from error


def _missing(name: str, path: Path) -> str:
    known = IMAGE_SETS.get(name)
    if known is None:
        return f"{path} is not there. Expected {LAYOUT}, or one of the known sets: {', '.join(IMAGE_SETS)}"
    files = f", or {path.parents[1] / known.sign} as {known.call} writes it" if known.read else ""
    get = "data.download=true lets that call download it" if known.read else f"get it by {known.call}"
    return f"{known.title}: {path} is not there. Expected {LAYOUT}{files}; {get}"


def _made(way: str, whole: Pixels, side: int) -> Pixels:
    """Crops of whole images, or the images themselves, which are resized to fit a model later."""
    if way == "resize":
        return whole._replace(classes=(), source=f"{whole.source}, resized by cgp")
    return whole._replace(images=_cropped(whole.images, side), classes=(), source=f"{whole.source}, cropped by cgp")


def _cropped(images: Tensor, side: int) -> Tensor:
    """Cut a square out of each image, at a place that depends only on the image's number."""
    height, width = images.shape[-2:]
    if min(height, width) < side:
        raise ValueError(f"images: expected at least {side} x {side} to crop from, got {height} x {width}")
    numbers = torch.arange(len(images))
    tops, lefts = numbers * 7919 % (height - side + 1), numbers * 104729 % (width - side + 1)
    rows, columns = tops[:, None] + torch.arange(side), lefts[:, None] + torch.arange(side)
    return images[numbers[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _cifar(kind: str, root: Path, split: Split, download: bool, shape: Shape) -> Pixels:
    from torchvision import datasets

    part: Any = getattr(datasets, kind)(root, train=split == "train", download=download)
    images = torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous()
    return Pixels(images, torch.tensor(part.targets), tuple(part.classes), f"torchvision {kind}")


def _svhn(root: Path, split: Split, download: bool, shape: Shape) -> Pixels:
    from torchvision import datasets

    part = datasets.SVHN(root, split=split, download=download)
    images, labels = torch.from_numpy(np.ascontiguousarray(part.data)), torch.from_numpy(part.labels).long()
    return Pixels(images, labels, tuple("0123456789"), "torchvision SVHN")


def _textures(root: Path, split: Split, download: bool, shape: Shape) -> Pixels:
    """Read all three parts: as OOD images they are one set."""
    from torchvision import datasets

    datasets.DTD(root, download=download)
    return read_classes(root / "dtd" / "dtd" / "images", shape)._replace(source="torchvision DTD, resized and cropped")


def _by_pytorch_ood(kind: str, root: Path, split: Split, download: bool, shape: Shape) -> Pixels:
    from pytorch_ood.dataset import img

    part: Any = getattr(img, kind)(str(root), download=download)
    folder = root / part.base_folder
    return Pixels.unlabelled(read_images([folder / file for file in part.files], shape), f"pytorch-ood {kind}")


def _benchmark(title: str, kind: str, archive: str) -> ImageSet:
    read = partial(_by_pytorch_ood, kind)
    return ImageSet(title, f"pytorch_ood.dataset.img.{kind}", archive, {"test": 10000}, 0, read)


def _torchvision(
    title: str, kind: str, sign: str, sizes: Mapping[str, int], num_classes: int, read: Reader, classes: str = ""
) -> ImageSet:
    return ImageSet(title, f"torchvision.datasets.{kind}", sign, sizes, num_classes, read, tuple(classes.split()))


_CIFAR = {"train": 50000, "test": 10000}
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"

IMAGE_SETS: Mapping[str, ImageSet] = MappingProxyType(
    {
        "cifar10": _torchvision(
            "CIFAR-10", "CIFAR10", "cifar-10-batches-py", _CIFAR, 10, partial(_cifar, "CIFAR10"), _CIFAR10
        ),
        "cifar100": _torchvision("CIFAR-100", "CIFAR100", "cifar-100-python", _CIFAR, 100, partial(_cifar, "CIFAR100")),
        "svhn": _torchvision("SVHN", "SVHN", "test_32x32.mat", {"train": 73257, "test": 26032}, 10, _svhn),
        "textures": _torchvision("Describable Textures (DTD)", "DTD", "dtd/dtd", {"test": 5640}, 0, _textures),
        "lsun_crop": _benchmark("LSUN, cropped", "LSUNCrop", "LSUN.tar.gz"),
        "lsun_resize": _benchmark("LSUN, resized", "LSUNResize", "LSUN_resize.tar.gz"),
        "tiny_imagenet": ImageSet(
            "Tiny ImageNet", "pytorch_ood.dataset.img.TinyImageNet", "", {"test": 10000}, 200, None
        ),
        "tiny_imagenet_crop": _benchmark("Tiny ImageNet, cropped", "TinyImageNetCrop", "Imagenet.tar.gz"),
        "tiny_imagenet_resize": _benchmark("Tiny ImageNet, resized", "TinyImageNetResize", "Imagenet_resize.tar.gz"),
    }
)
"""The sets that the papers use, by the names of their folders and in tables."""
