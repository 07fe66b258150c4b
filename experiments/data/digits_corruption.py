"""Shifted inputs: the test images, corrupted in five ways at five strengths.

The strengths suit 8 x 8 images: at strength 1 a reader hardly notices, at strength 5 some images are lost to a reader
too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from experiments.data.seeding import generator_for

__all__ = ["DIGITS_CORRUPTIONS", "STRENGTHS", "corrupted_digits"]

STRENGTHS = (1, 2, 3, 4, 5)
_GREY = 0.5


def _rotation(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Rotate by 9 degrees a strength, half of the images each way."""
    signs = torch.randint(0, 2, (len(images),), generator=generator) * 2 - 1
    bilinear = transforms.InterpolationMode.BILINEAR
    turned = [
        transforms.rotate(image, 9.0 * strength * int(sign), interpolation=bilinear)
        for image, sign in zip(images, signs, strict=True)
    ]
    return torch.stack(turned)


def _blur(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Blur by a Gaussian of standard deviation 0.3 pixels a strength."""
    return transforms.gaussian_blur(images, kernel_size=[7, 7], sigma=[0.3 * strength] * 2)


def _noise(images: Tensor, strength: int, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of standard deviation 0.1 a strength."""
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
    """Corrupt images.

    Args:
        images: `(N, C, H, W)` in [0, 1].
        kind: one of `DIGITS_CORRUPTIONS`.
        strength: 0 (the images as they are) to 5.
        seed: decides directions, places and noise.

    Returns:
        `(N, C, H, W)` in [0, 1].

    Raises:
        ValueError: if there is no such kind or strength.

    Example:
        >>> corrupted_digits(torch.zeros(2, 1, 8, 8), "contrast", 5, seed=0).amax()
        tensor(0.3750)
    """
    if kind not in DIGITS_CORRUPTIONS:
        raise ValueError(f"kind: expected one of {', '.join(DIGITS_CORRUPTIONS)}, got {kind!r}")
    if strength not in (0, *STRENGTHS):
        raise ValueError(f"strength: expected 0 to {STRENGTHS[-1]}, got {strength!r}")
    if strength == 0:
        return images
    return DIGITS_CORRUPTIONS[kind](images, strength, generator_for(kind, strength, seed)).clamp(0.0, 1.0)
