"""Operations shared by corruptions: random numbers per image, blurs, zooms, resampling, fractal clouds."""

import math
from collections.abc import Callable, Sequence

import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional as F

from experiments.data.partition import generator_for

__all__ = ["Draws", "clouds", "filtered", "gaussian_filtered", "plasma", "resampled", "streaked", "zoomed"]


class Draws:
    """One generator per image, seeded by its id, so that a corrupted image does not depend on the rest of its batch."""

    def __init__(self, *names: str | int, ids: Sequence[int]) -> None:
        self._generators = [generator_for(*names, number) for number in ids]

    def normal(self, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw from the standard normal."""
        return self._stacked(lambda generator: torch.randn(shape, generator=generator))

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw evenly from [low, high)."""
        return low + (high - low) * self._stacked(lambda generator: torch.rand(shape, generator=generator))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:  # shape: (N, *shape)
        """Draw whole numbers evenly from low to high - 1."""
        return self._stacked(lambda generator: torch.randint(low, high, shape, generator=generator))

    def poisson(self, rates: Tensor) -> Tensor:  # shape: (N, *shape)
        """Draw counts of the rates (N, *shape)."""
        pairs = zip(rates, self._generators, strict=True)
        return torch.stack([torch.poisson(rate, generator=generator) for rate, generator in pairs])

    def _stacked(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        return torch.stack([draw(generator) for generator in self._generators])


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Correlate every channel with a kernel (k, l); edge pixels are repeated beyond the edge."""
    return torch.from_numpy(ndimage.correlate(images.numpy(), kernel[None, None].numpy(), mode="nearest"))


def gaussian_filtered(images: Tensor, deviation: float, truncate: float = 4.0) -> Tensor:
    """Blur by a Gaussian, cut after `truncate` standard deviations; edge pixels are repeated beyond the edge."""
    blurred = ndimage.gaussian_filter(images.numpy(), deviation, mode="nearest", truncate=truncate, axes=(-2, -1))
    return torch.from_numpy(blurred)


def streaked(images: Tensor, radius: int, deviation: float, angles: Tensor) -> Tensor:
    r"""Blur each image along a line of its own, as a moving camera does.

    .. math:: y(p) = \sum_{i=0}^{2 r} w_i\, x(p + \mathrm{round}(i u)), \qquad w_i \propto e^{-i^2 / 2 \sigma^2}

    with u the unit vector of the angle. Edge pixels are repeated beyond the edge.
    """
    count, channels, height, width = images.shape
    steps = torch.arange(2 * radius + 1, dtype=torch.float32)
    weights = torch.exp(-0.5 * (steps / deviation).square())
    weights = weights / weights.sum()
    radians = torch.deg2rad(angles)[:, None]
    down, right = (radians.sin() * steps).round().long(), (radians.cos() * steps).round().long()  # (N, steps)
    blurred = torch.zeros_like(images)
    for step, weight in enumerate(weights.tolist()):
        rows = (torch.arange(height) + down[:, step, None]).clamp(0, height - 1)  # (N, H)
        columns = (torch.arange(width) + right[:, step, None]).clamp(0, width - 1)  # (N, W)
        places = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, -1)
        moved = images.flatten(2).gather(2, places.expand(-1, channels, -1))
        blurred += weight * moved.reshape(images.shape)
    return blurred


def resampled(images: Tensor, offsets: Tensor) -> Tensor:
    """Sample each pixel at an offset, bilinearly; the image is mirrored beyond the edge.

    Offsets are `(N, H, W, 2)`, right and down, in pixels.
    """
    height, width = images.shape[-2:]
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = offsets + torch.stack([right, down], -1)
    sides = torch.tensor([max(width - 1, 1), max(height - 1, 1)])
    grid = 2.0 * places / sides - 1.0
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def zoomed(images: Tensor, factor: float) -> Tensor:
    """Magnify the middle of each image by a factor of at least 1, bilinearly."""
    scale = torch.tensor([[1.0 / factor, 0.0, 0.0], [0.0, 1.0 / factor, 0.0]]).expand(len(images), 2, 3)
    grid = F.affine_grid(scale, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def plasma(noise: Tensor, decay: float) -> Tensor:
    """Fractal clouds in [0, 1] by the diamond-square algorithm on a torus of `(N, K, K)` points, K a power of 2.

    From the coarsest grid to the finest, each new point is the mean of its four neighbours plus noise in [-1, 1], whose
    amplitude decreases by decay squared per level.
    """
    values = torch.zeros_like(noise)
    step, amplitude = noise.shape[-1], 1.0
    while step > 1:
        half, wobble = step // 2, amplitude * noise
        corners = values[:, ::step, ::step]
        above, beside = corners + corners.roll(-1, -1), corners + corners.roll(-1, -2)
        middles = (above + above.roll(-1, -2)) / 4 + wobble[:, half::step, half::step]
        values[:, half::step, half::step] = middles
        values[:, ::step, half::step] = (above + middles + middles.roll(1, -2)) / 4 + wobble[:, ::step, half::step]
        values[:, half::step, ::step] = (beside + middles + middles.roll(1, -1)) / 4 + wobble[:, half::step, ::step]
        step, amplitude = half, amplitude / decay**2
    low, high = values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True)
    return (values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)


def clouds(draws: Draws, images: Tensor, decay: float) -> Tensor:  # shape: (N, 1, H, W) in [0, 1]
    """Fractal clouds of the size of the images."""
    height, width = images.shape[-2:]
    size = 2 ** math.ceil(math.log2(max(height, width, 2)))
    return plasma(draws.uniform(-1.0, 1.0, size, size), decay)[:, None, :height, :width]
