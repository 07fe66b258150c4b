"""Folders of images."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from experiments.data.examples import DataDescription, InputSet
from experiments.data.pixels import Pixels, fitted

__all__ = ["FORMATS", "OWN_IMAGES", "folder_inputs", "holds_images", "image_files", "read_classes", "read_images"]

OWN_IMAGES = "images-"
"""What the names of folders of one's own begin with, so that none is that of an input set."""
FORMATS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")


def image_files(folder: Path) -> list[Path]:
    """List the images in a folder and all folders in it, in the order of their names.

    Args:
        folder: where to look.

    Raises:
        FileNotFoundError: if there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise FileNotFoundError(f"{folder} {what}. Expected a folder of images")
    files = sorted(_images(folder))
    if not files:
        raise FileNotFoundError(f"{folder} holds no image. Expected files that end in {', '.join(FORMATS)}")
    return files


def read_images(files: Sequence[Path], shape: tuple[int, int, int]) -> Tensor:
    """Read images, resized and cropped.

    Args:
        files: the images.
        shape: (C, H, W) of each, C 1 or 3.

    Returns:
        `(N, C, H, W)` uint8.

    Raises:
        ValueError: if a file cannot be decoded; names it.
    """
    return torch.cat([fitted(_decoded(path), shape) for path in files])


def read_classes(folder: Path, shape: tuple[int, int, int]) -> Pixels:
    """Read a folder with one sub-folder a class.

    Args:
        folder: holds the sub-folders; their sorted names are the classes.
        shape: (C, H, W) of each image.

    Returns:
        The images of the first class, of the second, and so on.

    Raises:
        FileNotFoundError: if there are fewer than two sub-folders, or one without images.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise FileNotFoundError(f"{folder} holds {len(classes)} sub-folders. Expected one a class, at least two")
    files = [image_files(path) for path in classes]
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(members) for members in files]))
    images = read_images([path for members in files for path in members], shape)
    return Pixels(images, labels, tuple(path.name for path in classes), folder.name)


def folder_inputs(folder: Path, description: DataDescription) -> InputSet:
    """Read a folder of images for a model that was trained on other data.

    Args:
        folder: images, in sub-folders or not; `image_files` lists them in the order of the ids.
        description: of the data that the model was trained on.

    Returns:
        The images under the name "images-<folder>", without labels.

    Raises:
        ValueError: if the model was not trained on images.
    """
    if description.image_shape is None:
        raise ValueError("description: expected data of images, got texts")
    images = read_images(image_files(folder), description.image_shape)
    return InputSet(
        f"{OWN_IMAGES}{folder.resolve().name}", images, torch.arange(len(images)), source=f"images in {folder.name}"
    )


def holds_images(folder: Path) -> bool:
    """Say whether there is an image in a folder.

    Args:
        folder: where to look; it need not be there.
    """
    return any(True for _ in _images(folder))


def _images(folder: Path) -> Iterator[Path]:
    found = (path for path in folder.rglob("*") if path.suffix.lower() in FORMATS and _is_visible(path, folder))
    return (path for path in found if path.is_file())


def _is_visible(path: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values, which a conversion would clip to white; others of more than 8 bits have no scale."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode}, of which nobody knows the range; save it with 8 or 16 bits")
    return image


def _decoded(path: Path) -> Tensor:  # shape: (1, 3, H, W)
    try:
        with Image.open(path) as image:
            upright = _eight_bit(ImageOps.exif_transpose(image)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}). Expected an image; remove or replace it") from error
    return transforms.pil_to_tensor(upright).unsqueeze(0)
