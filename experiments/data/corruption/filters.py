"""What several corruptions are made of: blurs, zooms, resampling, fractal clouds."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["clouds_size", "filtered", "gaussian_filtered", "plasma", "resampled", "streaked", "zoomed"]


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Correlate every channel with a kernel; beyond the edge, the edge goes on.

    Args:
        images: `(N, C, H, W)`.
        kernel: `(k, l)`, both odd.

    Returns:
        `(N, C, H, W)`.
    """
    rows, columns = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = F.pad(images, (columns, columns, rows, rows), mode="replicate")
    flat = padded.flatten(0, 1).unsqueeze(1)
    return F.conv2d(flat, kernel.to(images)[None, None]).reshape(images.shape)


def gaussian_filtered(images: Tensor, deviation: float, truncate: float = 4.0) -> Tensor:
    """Blur by a Gaussian.

    Args:
        images: `(N, C, H, W)`.
        deviation: in pixels; 0 changes nothing.
        truncate: deviations after which the kernel is cut.

    Returns:
        `(N, C, H, W)`.
    """
    radius = int(truncate * deviation + 0.5)
    if radius == 0:
        return images
    places = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-0.5 * (places / deviation).square())
    kernel = kernel / kernel.sum()
    return filtered(filtered(images, kernel[:, None]), kernel[None, :])


def streaked(images: Tensor, radius: int, deviation: float, angles: Tensor) -> Tensor:
    r"""Blur each image along its own line, as a hand that moves the camera.

    .. math:: y(p) = \sum_{i=0}^{2 r} w_i\, x(p + \mathrm{round}(i u)), \qquad w_i \propto e^{-i^2 / 2 \sigma^2}

    with u the unit vector of the angle. Beyond the edge, the edge goes on.

    Args:
        images: `(N, C, H, W)`.
        radius: r, in pixels.
        deviation: sigma, in pixels.
        angles: `(N,)`, in degrees.

    Returns:
        `(N, C, H, W)`.
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
    """Read each pixel from another place, bilinearly; beyond the edge, the image is mirrored.

    Args:
        images: `(N, C, H, W)`.
        offsets: `(N, H, W, 2)`, right and down, in pixels.

    Returns:
        `(N, C, H, W)`.
    """
    height, width = images.shape[-2:]
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = offsets + torch.stack([right, down], -1)
    sides = torch.tensor([max(width - 1, 1), max(height - 1, 1)])
    grid = 2.0 * places / sides - 1.0
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def zoomed(images: Tensor, factor: float) -> Tensor:
    """Magnify the middle of each image, bilinearly.

    Args:
        images: `(N, C, H, W)`.
        factor: at least 1.

    Returns:
        `(N, C, H, W)`.
    """
    count = len(images)
    scale = torch.tensor([[1.0 / factor, 0.0, 0.0], [0.0, 1.0 / factor, 0.0]]).expand(count, 2, 3)
    grid = F.affine_grid(scale, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def plasma(noise: Tensor, decay: float) -> Tensor:
    """Make clouds by the diamond-square algorithm on a torus.

    From the coarsest grid to the finest, each new point is the mean of its four neighbours plus noise, whose amplitude
    falls by decay squared a level.

    Args:
        noise: `(N, K, K)` in [-1, 1], K a power of 2: one number for each point.
        decay: the larger, the smoother.

    Returns:
        `(N, K, K)` in [0, 1].

    Raises:
        ValueError: if K is not a power of 2.
    """
    size = noise.shape[-1]
    if noise.shape[-2] != size or size < 2 or size & (size - 1):
        raise ValueError(f"noise: expected (N, K, K) with K a power of 2, got {tuple(noise.shape)}")
    clouds = torch.zeros_like(noise)
    step, amplitude = size, 1.0
    while step > 1:
        half, wobble = step // 2, amplitude * noise
        corners = clouds[:, ::step, ::step]
        pairs = corners + corners.roll(-1, -1)
        middles = (pairs + pairs.roll(-1, -2)) / 4 + wobble[:, half::step, half::step]
        clouds[:, half::step, half::step] = middles
        above, left = corners + corners.roll(-1, -1), corners + corners.roll(-1, -2)
        clouds[:, ::step, half::step] = (above + middles + middles.roll(1, -2)) / 4 + wobble[:, ::step, half::step]
        clouds[:, half::step, ::step] = (left + middles + middles.roll(1, -1)) / 4 + wobble[:, half::step, ::step]
        step, amplitude = half, amplitude / decay**2
    low, high = clouds.amin((-2, -1), keepdim=True), clouds.amax((-2, -1), keepdim=True)
    return (clouds - low) / (high - low).clamp(min=torch.finfo(clouds.dtype).tiny)


def clouds_size(height: int, width: int) -> int:
    """Return the smallest power of 2 that covers an image."""
    return 2 ** math.ceil(math.log2(max(height, width, 2)))
