"""Images read from files, and their conversion to the shape that a model expects."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

__all__ = [
    "LAYOUT",
    "Pixels",
    "Shape",
    "fitted",
    "holds_images",
    "image_files",
    "pixel_statistics",
    "read_arrays",
    "read_classes",
    "read_images",
]

Shape = tuple[int, int, int]
"""(C, H, W), C 1 or 3."""

LAYOUT = "<root>/<name>/<split>.npz with images uint8 (N, H, W, C), C 1 or 3, and labels int64 (N,)"
FORMATS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")
_AT_ONCE = 1000
_LUMA = (0.299, 0.587, 0.114)


class Pixels(NamedTuple):
    """Images read from a file."""

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64, -1 where there are none
    classes: tuple[str, ...]  # names, where known
    source: str

    @classmethod
    def unlabelled(cls, images: Tensor, source: str) -> Pixels:
        """Images without labels."""
        return cls(images, torch.full((len(images),), -1), (), source)


def fitted(images: Tensor, shape: Shape) -> Tensor:
    """Convert uint8 images to a model's (C, H, W): the shorter side is resized, the longer one cropped."""
    if images.shape[1:] == shape:
        return images
    return torch.cat([_fitted(part, *shape) for part in images.split(_AT_ONCE)])


def _fitted(images: Tensor, channels: int, height: int, width: int) -> Tensor:
    if not len(images):
        return images.new_zeros(0, channels, height, width)
    if images.shape[1] == 1 and channels == 3:
        images = images.expand(-1, 3, -1, -1)
    if images.shape[1] == 3 and channels == 1:
        weights = torch.tensor(_LUMA)[:, None, None]
        images = (images.float() * weights).sum(1, keepdim=True).round().to(torch.uint8)
    factor = max(height / images.shape[-2], width / images.shape[-1])
    size = [max(height, round(images.shape[-2] * factor)), max(width, round(images.shape[-1] * factor))]
    if size != list(images.shape[-2:]):
        images = transforms.resize(images, size, antialias=True)
    return transforms.center_crop(images, [height, width]).contiguous()


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of `(N, C, H, W)` uint8 images, in [0, 1]."""
    grey = torch.arange(256, dtype=torch.float64) / 255
    counts = [torch.bincount(channel.flatten().int(), minlength=256) for channel in images.unbind(1)]
    shares = torch.stack(counts).double() * images.shape[1] / images.numel()  # (C, 256)
    means = shares @ grey
    deviations = (shares * (grey - means[:, None]).square()).sum(-1).sqrt()
    return tuple(means.tolist()), tuple(deviations.tolist())


def read_arrays(path: Path, *, labelled: bool = True) -> Pixels:
    """Read a file of arrays in the layout of `LAYOUT`; without `labelled`, missing labels are -1."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. Expected {LAYOUT}")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            images = content["images"]
            labels = content["labels"] if labelled or "labels" in content else np.full(len(images), -1)
            classes = tuple(str(name) for name in content["classes"]) if "classes" in content else ()
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}). Expected {LAYOUT}") from error
    _check(path, images, labels)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return Pixels(pixels, torch.from_numpy(labels.astype(np.int64)), classes, f"{path.parent.name}/{path.name}")


def _check(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> None:
    sound = images.ndim == 4 and images.dtype == np.uint8 and images.shape[-1] in (1, 3)
    whole = labels.shape == images.shape[:1] and np.issubdtype(labels.dtype, np.integer)
    if not (sound and whole):
        content = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise ValueError(f"{path} holds {content}. Expected {LAYOUT}")


def image_files(folder: Path) -> list[Path]:
    """List the images in a folder and all folders in it, in the order of their names."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise FileNotFoundError(f"{folder} {what}. Expected a folder of images")
    files = sorted(_images(folder))
    if not files:
        raise FileNotFoundError(f"{folder} holds no image. Expected files that end in {', '.join(FORMATS)}")
    return files


def holds_images(folder: Path) -> bool:
    """Whether there is an image in a folder, which may be missing."""
    return any(True for _ in _images(folder))


def _images(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in FORMATS and not hidden and path.is_file():
            yield path


def read_images(files: Sequence[Path], shape: Shape) -> Tensor:
    """Read images, resized and cropped to (C, H, W), as uint8; an error names the file that cannot be decoded."""
    return torch.cat([fitted(_decoded(path), shape) for path in files])


def read_classes(folder: Path, shape: Shape) -> Pixels:
    """Read a folder with one sub-folder per class, in the order of their names."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise FileNotFoundError(f"{folder} holds {len(classes)} sub-folders. Expected one a class, at least two")
    files = [image_files(path) for path in classes]
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(members) for members in files]))
    images = read_images([path for members in files for path in members], shape)
    return Pixels(images, labels, tuple(path.name for path in classes), folder.name)


def _decoded(path: Path) -> Tensor:  # shape: (1, 3, H, W)
    try:
        with Image.open(path) as image:
            upright = _eight_bit(ImageOps.exif_transpose(image)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}). Expected an image; remove or replace it") from error
    return transforms.pil_to_tensor(upright).unsqueeze(0)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values, which a conversion would clip to white; raise for other modes of more than 8 bits."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode}, of which nobody knows the range; save it with 8 or 16 bits")
    return image
