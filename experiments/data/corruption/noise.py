"""Noise: Gaussian, shot, impulse, speckle."""

import torch
from torch import Tensor

from experiments.data.corruption.draws import Draws

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Add Gaussian noise."""
    return images + deviation * draws.normal(*images.shape[1:])


def shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    """Count photons: white is so many of them on average."""
    return draws.poisson(images * photons) / photons


def impulse_noise(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Turn a share of the values full on or off."""
    chance = draws.uniform(0.0, 1.0, *images.shape[1:])
    return torch.where(chance < share, (chance < share / 2).to(images), images)


def speckle_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Add Gaussian noise in proportion to the value."""
    return images + images * deviation * draws.normal(*images.shape[1:])
