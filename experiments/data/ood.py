"""OOD inputs: images that belong to none of the classes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from experiments.data.seeding import generator_for

__all__ = ["OOD_KINDS", "ood_images"]

_PATCH = 2


def _inverted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Swap ink and paper."""
    return 1.0 - images


def _shuffled(images: Tensor, generator: torch.Generator) -> Tensor:
    """Put the 2 x 2 patches of each image in a random order."""
    count, _, height, width = images.shape
    tiled = images.unflatten(-1, (-1, _PATCH)).unflatten(-3, (-1, _PATCH)).transpose(-3, -2)  # (N, C, h, w, p, p)
    tiles = tiled.flatten(2, 3)  # (N, C, h w, p, p)
    order = torch.rand(count, tiles.shape[2], generator=generator).argsort(-1)
    mixed = torch.stack([image[:, permutation] for image, permutation in zip(tiles, order, strict=True)])
    return mixed.unflatten(2, (height // _PATCH, width // _PATCH)).transpose(-3, -2).reshape(images.shape)


def _uniform_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw every pixel evenly from [0, 1]."""
    return torch.rand(images.shape, generator=generator)


def _gaussian_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw every pixel from a Gaussian with the mean and spread of the images' pixels."""
    return (images.mean() + images.std() * torch.randn(images.shape, generator=generator)).clamp(0.0, 1.0)


OOD_KINDS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = MappingProxyType(
    {
        "inverted": _inverted,
        "shuffled-patches": _shuffled,
        "uniform-noise": _uniform_noise,
        "gaussian-noise": _gaussian_noise,
    }
)


def ood_images(images: Tensor, kind: str, seed: int) -> Tensor:
    """Make as many OOD images as there are familiar ones.

    Args:
        images: familiar images, `(N, C, H, W)` in [0, 1].
        kind: one of `OOD_KINDS`.
        seed: decides orders and noise.

    Returns:
        `(N, C, H, W)` in [0, 1].

    Raises:
        ValueError: if there is no such kind.

    Example:
        >>> ood_images(torch.zeros(2, 1, 8, 8), "inverted", seed=0).amin()
        tensor(1.)
    """
    if kind not in OOD_KINDS:
        raise ValueError(f"kind: expected one of {', '.join(OOD_KINDS)}, got {kind!r}")
    return OOD_KINDS[kind](images, generator_for(kind, seed))
