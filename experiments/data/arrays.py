"""Image sets in a folder: `<root>/<name>/<split>.npz` with `images` uint8 (N, H, W, C), `labels` int64 (N,)."""

import zipfile
from pathlib import Path

import numpy as np
import torch

from experiments.data.images import LabelledImages

__all__ = ["load_arrays"]

LAYOUT = "<root>/<name>/<split>.npz with images uint8 (N, H, W, C) and labels int64 (N,)"


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
    path = root / name / f"{split}.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. Expected {LAYOUT}")
    try:
        with np.load(path, allow_pickle=False) as content:
            images, labels = content["images"], content["labels"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read ({error}). Expected {LAYOUT}") from error
    if images.ndim != 4 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
        found = f"images {images.dtype} {images.shape}, labels {labels.shape}"
        raise ValueError(f"{path} holds {found}. Expected {LAYOUT}")
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return LabelledImages(pixels.float().div_(255.0), torch.from_numpy(labels).long(), torch.arange(len(labels)))
