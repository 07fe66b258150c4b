"""CIFAR-10-C and CIFAR-100-C as they were published: one .npy a kind, 10,000 images a severity."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["PUBLISHED", "published_corruption"]

PUBLISHED: Mapping[str, str] = MappingProxyType({"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"})
"""Folder, and name, of the published corruptions of a set."""

_A_SEVERITY = 10000
_SHAPE = (5 * _A_SEVERITY, 32, 32, 3)


def published_corruption(folder: Path, kind: str, severity: int, *, ids: Tensor, labels: Tensor) -> Tensor:
    """Read the corrupted versions of some test images.

    Args:
        folder: holds `<kind>.npy`, uint8 (50000, 32, 32, 3), severities one after the other, and `labels.npy`.
        kind: name of the corruption.
        severity: 1 to 5.
        ids: `(N,)` positions in the test set.
        labels: `(N,)` of the test images, to compare with the published ones.

    Returns:
        `(N, 3, 32, 32)` uint8.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is truncated or altered.
    """
    rows = (severity - 1) * _A_SEVERITY + ids.numpy()
    published = _array(folder / "labels.npy", _SHAPE[:1])
    if not np.array_equal(published[rows], labels.numpy()):
        raise ValueError(f"{folder / 'labels.npy'} differs from the labels of the test set. {_expected(folder)}")
    images = _array(folder / f"{kind}.npy", _SHAPE)
    return torch.from_numpy(np.ascontiguousarray(images[rows])).permute(0, 3, 1, 2).contiguous()


def _array(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. {_expected(path.parent)}")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}). {_expected(path.parent)}") from error
    if array.shape != shape or not np.issubdtype(array.dtype, np.integer) or (len(shape) > 1 and array.itemsize > 1):
        raise ValueError(f"{path} holds {array.dtype} {array.shape}. {_expected(path.parent)}")
    return array


def _expected(folder: Path) -> str:
    return (
        f"Expected the whole of {folder.name}: 19 files <kind>.npy, uint8 (50000, 32, 32, 3), and labels.npy (50000,). "
        f"Get it by pytorch_ood.dataset.img.{folder.name.replace('-', '')}(download=True), or set "
        "data.corruptions.source=generated"
    )
