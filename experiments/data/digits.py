"""scikit-learn's digits: 1,797 real scans of handwritten digits, 8 x 8, nothing to download.

Also: corruptions whose strengths suit 8 x 8 images (strength 1 is hardly visible, at strength 5 some
images are unreadable), and OOD images made of the digits.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from experiments.data.examples import Examples
from experiments.data.partition import generator_for

__all__ = [
    "DIGITS_CORRUPTIONS",
    "MEAN",
    "OOD_KINDS",
    "STANDARD_DEVIATION",
    "corrupted_digits",
    "digits_parts",
    "ood_images",
]

MEAN, STANDARD_DEVIATION = 0.305, 0.376
"""Mean and standard deviation of all pixels, by which a model normalises its inputs."""
_GREY = 0.5
_PATCH = 2


def digits_parts(seed: int) -> dict[str, Examples]:
    """Split the digits 60 : 20 : 20 into train, validation and test, stratified by class; floats in [0, 1]."""
    scans = load_digits()
    ids = np.arange(len(scans.target))
    train, held_out = train_test_split(ids, test_size=720, stratify=scans.target, random_state=seed)
    validation, test = train_test_split(held_out, test_size=360, stratify=scans.target[held_out], random_state=seed)
    images = torch.from_numpy(scans.images).float().unsqueeze(1) / 16.0  # the scans have 17 grey levels
    whole = Examples(images, torch.from_numpy(scans.target).long(), torch.from_numpy(ids))
    parts = {"train": train, "validation": validation, "test": test}
    return {name: whole.chosen(torch.from_numpy(np.sort(part))) for name, part in parts.items()}


def _rotation(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Rotate by 9 degrees per strength, half of the images each way."""
    signs = torch.randint(0, 2, (len(images),), generator=generator) * 2 - 1
    bilinear = transforms.InterpolationMode.BILINEAR
    turned = [
        transforms.rotate(image, 9.0 * strength * int(sign), interpolation=bilinear)
        for image, sign in zip(images, signs, strict=True)
    ]
    return torch.stack(turned)


def _blur(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Blur by a Gaussian of standard deviation 0.3 pixels per strength."""
    return transforms.gaussian_blur(images, kernel_size=[7, 7], sigma=[0.3 * strength] * 2)


def _noise(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of standard deviation 0.1 per strength."""
    return images + 0.1 * strength * torch.randn(images.shape, generator=generator)


def _contrast(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Pull every pixel towards mid-grey, down to a quarter of the contrast."""
    return _GREY + (images - _GREY) * (1.0 - 0.15 * strength)


def _occlusion(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Cover a square of 1 to 5 eighths of the side with mid-grey, somewhere."""
    size = images.shape[-1]
    side = strength * size // 8
    corners = torch.randint(0, size - side + 1, (2, len(images), 1), generator=generator)
    inside = (torch.arange(size) >= corners) & (torch.arange(size) < corners + side)  # (2, N, size)
    covered = inside[0, :, :, None] & inside[1, :, None, :]
    return torch.where(covered.unsqueeze(1), torch.tensor(_GREY), images)


DIGITS_CORRUPTIONS: Mapping[str, Callable[[Tensor, int, torch.Generator], Tensor]] = MappingProxyType(
    {"rotation": _rotation, "blur": _blur, "noise": _noise, "contrast": _contrast, "occlusion": _occlusion}
)


def corrupted_digits(images: Tensor, kind: str, strength: int, seed: int) -> Tensor:
    """Corrupt images `(N, C, H, W)` in [0, 1] at a strength of 0 (the images as they are) to 5."""
    if strength == 0:
        return images
    return DIGITS_CORRUPTIONS[kind](images, strength, generator_for(kind, strength, seed)).clamp(0.0, 1.0)


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
    """Make as many OOD images as there are images, `(N, C, H, W)` in [0, 1]."""
    return OOD_KINDS[kind](images, generator_for(kind, seed))
