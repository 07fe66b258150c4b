"""Blur: defocus, frosted glass, motion, zoom, Gaussian."""

import math

import torch
from torch import Tensor

from experiments.data.corruption.draws import Draws
from experiments.data.corruption.filters import filtered, gaussian_filtered, streaked, zoomed

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


def gaussian_blur(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Blur by a Gaussian."""
    return gaussian_filtered(images, deviation)


def defocus_blur(images: Tensor, draws: Draws, radius: float, softness: float) -> Tensor:
    """Blur by a disc with a soft rim."""
    half = math.ceil(radius) + 1
    places = torch.arange(-half, half + 1, dtype=torch.float32)
    disc = (places[:, None].square() + places.square() <= radius**2).float()[None, None]
    # Three taps of a Gaussian soften the rim.
    taps = torch.exp(-0.5 * (torch.arange(-1.0, 2.0) / softness).square())
    taps = taps / taps.sum()
    disc = filtered(disc / disc.sum(), taps[:, None] * taps)[0, 0]
    return filtered(images, disc)


def glass_blur(images: Tensor, draws: Draws, deviation: float, reach: int, rounds: int) -> Tensor:
    """Blur, let each pixel show one of its neighbours, blur.

    The neighbours are up to `reach` pixels above or left, and less than that below or right, as in the published sets.
    """
    height, width = images.shape[-2:]
    mixed = gaussian_filtered(images, deviation)
    down, right = draws.integers(-reach, reach, rounds, 2, height, width).unbind(2)  # (N, rounds, H, W)
    rows = (torch.arange(height)[:, None] + down).clamp(0, height - 1)
    columns = (torch.arange(width) + right).clamp(0, width - 1)
    places = (rows * width + columns).flatten(-2)  # (N, rounds, H W)
    for shown in places.unbind(1):
        mixed = mixed.flatten(-2).gather(-1, shown[:, None].expand(-1, images.shape[1], -1)).reshape(images.shape)
    return gaussian_filtered(mixed, deviation)


def motion_blur(images: Tensor, draws: Draws, radius: int, deviation: float) -> Tensor:
    """Blur along a line within 45 degrees of the horizontal."""
    return streaked(images, radius, deviation, draws.uniform(-45.0, 45.0))


def zoom_blur(images: Tensor, draws: Draws, farthest: float) -> Tensor:
    """Average over magnifications from 1 to the farthest, in steps of 1 %."""
    factors = [1.0 + step / 100 for step in range(round((farthest - 1.0) * 100) + 1)]
    total = images + sum(zoomed(images, factor) for factor in factors)
    return total / (len(factors) + 1)
