"""Image sets in a folder: `<root>/<name>/<split>.npz` with `images` uint8 (N, H, W, C), `labels` int64 (N,)."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.data.images import LabelledImages
from experiments.data.pixels import Pixels

__all__ = ["LAYOUT", "load_arrays", "read_arrays"]

LAYOUT = "<root>/<name>/<split>.npz with images uint8 (N, H, W, C), C 1 or 3, and labels int64 (N,)"


def load_arrays(root: Path, name: str, split: str) -> LabelledImages:
    """Read an image set.

    Args:
        root: folder of the sets.
        name: of the set, such as "cifar10".
        split: "train" or "test".

    Returns:
        Images (N, C, H, W) in [0, 1] in the order of the file.

    Raises:
        FileNotFoundError: if there is no such file; says what was expected.
        ValueError: if the file is truncated or holds something else.
    """
    images, labels, *_ = read_arrays(root / name / f"{split}.npz")
    return LabelledImages(images.float().div_(255.0), labels, torch.arange(len(labels)))


def read_arrays(path: Path, *, labelled: bool = True) -> Pixels:
    """Read a file of arrays.

    Args:
        path: the .npz file; beside `images` and `labels` it may hold `classes`, their names.
        labelled: whether labels must be there.

    Returns:
        The pixels as they are stored; without labels, -1 for each.

    Raises:
        FileNotFoundError: if there is no such file; says what was expected.
        ValueError: if the file is truncated or holds something else.
    """
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
        found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise ValueError(f"{path} holds {found}. Expected {LAYOUT}")
