"""Digital: contrast, elastic, pixelate, JPEG, saturation."""

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

from experiments.data.corruption.draws import Draws
from experiments.data.corruption.filters import gaussian_filtered, resampled

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"]


def contrast(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Pull every pixel towards the mean of its channel."""
    mean = images.mean((-2, -1), keepdim=True)
    return mean + share * (images - mean)


def elastic_transform(images: Tensor, draws: Draws, strength: float, smoothness: float, skew: float) -> Tensor:
    """Skew each image at random, then stretch it locally.

    Args:
        images: `(N, C, H, W)`.
        draws: random numbers.
        strength: of the local stretching, in sides of the image, as the other two.
        smoothness: standard deviation of the Gaussian that smooths it.
        skew: how far three points around the middle move at most.

    Returns:
        `(N, C, H, W)`.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    moved = skew * side * draws.uniform(-1.0, 1.0, 3, 2)  # (N, points, (right, down))
    # The points are (1, 1), (1, -1) and (-1, -1) in units of a third of the side from the middle.
    shift, along, across = (
        (moved[:, 0] + moved[:, 2]) / 2,
        (moved[:, 1] - moved[:, 2]) / 2,
        (moved[:, 0] - moved[:, 1]) / 2,
    )
    right = (torch.arange(width) - width // 2) / (side // 3)
    down = (torch.arange(height) - height // 2) / (side // 3)
    skewing = shift[:, None, None] + right[:, None] * along[:, None, None] + down[:, None, None] * across[:, None, None]
    skewed = resampled(images, skewing)
    if strength == 0:
        return skewed
    field = gaussian_filtered(draws.uniform(-1.0, 1.0, 2, height, width), smoothness * side, truncate=3.0)
    return resampled(skewed, strength * side * field.permute(0, 2, 3, 1))


def pixelate(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Shrink by a box filter, and enlarge again."""
    for dim in (-2, -1):
        size = images.shape[dim]
        small = max(1, int(size * share))
        both = _box(small, size) @ _box(size, small)
        images = (both @ images) if dim == -2 else (images @ both.mT)
    return images


def _box(old: int, new: int) -> Tensor:  # shape: (new, old)
    """Return the matrix of a box filter: each new pixel is the mean of the old ones whose middles it covers."""
    scale = old / new
    middles = (torch.arange(new, dtype=torch.float64) + 0.5) * scale
    half = 0.5 * max(scale, 1.0)
    distance = torch.arange(old, dtype=torch.float64) + 0.5 - middles[:, None]
    covered = ((distance > -half) & (distance <= half)).float()
    return covered / covered.sum(-1, keepdim=True)


def jpeg_compression(images: Tensor, draws: Draws, quality: int) -> Tensor:
    """Store as JPEG."""
    pixels = (images * 255).round().to(torch.uint8)
    stored = [decode_jpeg(encode_jpeg(image, quality=quality), mode=ImageReadMode.RGB) for image in pixels]
    return torch.stack(stored).float() / 255


def saturate(images: Tensor, draws: Draws, factor: float, shift: float) -> Tensor:
    """Change the saturation (of hue, saturation and value); grey counts as a red without saturation."""
    value = images.amax(1, keepdim=True)
    chroma = value - images  # (N, 3, H, W)
    saturation = chroma.amax(1, keepdim=True) / value.clamp(min=1e-6)
    changed = (saturation * factor + shift).clamp(0.0, 1.0)
    red = value * torch.tensor([0.0, 1.0, 1.0])[:, None, None]
    return value - torch.where(saturation > 0, chroma / saturation.clamp(min=1e-6), red) * changed
