"""Images as they are stored, and what makes them fit a model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

__all__ = ["Pixels", "fitted", "pixel_statistics"]

_AT_ONCE = 1000
_LUMA = (0.299, 0.587, 0.114)


class Pixels(NamedTuple):
    """Images as a file holds them.

    Attributes:
        images: `(N, C, H, W)` uint8.
        labels: `(N,)` int64, -1 where there are none.
        classes: names of the classes, where known.
        source: where they are from, in words.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    source: str


def fitted(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Give images the channels and the size of a model's: the shorter side is resized, the longer one cropped.

    Args:
        images: `(N, C, H, W)` uint8.
        shape: (C, H, W) that is asked for; C is 1 or 3.

    Returns:
        `(N, *shape)` uint8.

    Example:
        >>> fitted(torch.zeros(2, 1, 64, 96, dtype=torch.uint8), (3, 32, 32)).shape
        torch.Size([2, 3, 32, 32])
    """
    if images.shape[1:] == shape:
        return images
    channels, height, width = shape
    parts = [_fitted(part, channels, height, width) for part in images.split(_AT_ONCE)]
    return torch.cat(parts) if parts else images.new_zeros(0, *shape)


def _fitted(images: Tensor, channels: int, height: int, width: int) -> Tensor:
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
    """Return mean and standard deviation of each channel, in [0, 1].

    Args:
        images: `(N, C, H, W)` uint8.

    Example:
        >>> pixel_statistics(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1))
        ((0.5,), (0.5,))
    """
    grey = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten().int(), minlength=256).double() / channel.numel()
        mean = (share * grey).sum()
        means.append(mean.item())
        deviations.append(((share * (grey - mean).square()).sum().sqrt()).item())
    return tuple(means), tuple(deviations)
