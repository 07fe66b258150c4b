"""Weather: snow, frost, fog, light, spatter."""

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.data.corruption.draws import Draws
from experiments.data.corruption.filters import clouds_size, filtered, gaussian_filtered, plasma, streaked, zoomed

__all__ = ["brightness", "fog", "frost", "snow", "spatter"]

_LUMA = torch.tensor([0.299, 0.587, 0.114])
_ICE = torch.tensor([0.86, 0.93, 1.0])
_WATER = torch.tensor([175.0, 238.0, 238.0]) / 255
_MUD = torch.tensor([63.0, 42.0, 20.0]) / 255
_EMBOSS = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
_NEEDLES = (4, 0.012)  # half of their length in pixels, share of pixels in which one starts


def _layer(draws: Draws, images: Tensor, mean: float, deviation: float) -> Tensor:  # shape: (N, 1, H, W)
    return mean + deviation * draws.normal(1, *images.shape[-2:])


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
) -> Tensor:
    """Whiten the scene, and let flakes fall through it."""
    flakes = zoomed(_layer(draws, images, mean, deviation), zoom)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0.0, 1.0)
    flakes = streaked(flakes, radius, sigma, draws.uniform(-135.0, -45.0))
    grey = (images * _LUMA[:, None, None]).sum(1, keepdim=True)
    whitened = mix * images + (1.0 - mix) * torch.maximum(images, grey * 1.5 + 0.5)
    return whitened + flakes + flakes.flip(-2, -1)


def frost(images: Tensor, draws: Draws, scene: float, ice: float) -> Tensor:
    """Look through an icy pane: needles in six directions on veins of rime.

    The published sets blend photographs of frost; this one draws its own.
    """
    length, share = _NEEDLES
    seeds = (draws.uniform(0.0, 1.0, 1, *images.shape[-2:]) < share).float()
    first = draws.uniform(0.0, 60.0)
    needles = torch.stack([streaked(seeds, length, 1.5 * length, first + 60.0 * side) for side in range(6)]).sum(0)
    needles = needles / needles.amax((-2, -1), keepdim=True).clamp(min=1e-6)
    veins = (1.0 - (2.0 * _clouds(draws, images, 1.4) - 1.0).abs()).square()
    pane = (0.15 + 0.6 * veins + 0.9 * needles.sqrt()).clamp(0.0, 1.0)
    return scene * images + ice * pane * _ICE[:, None, None]


def fog(images: Tensor, draws: Draws, thickness: float, smoothness: float) -> Tensor:
    """Add fractal clouds, then bring the brightest value back to what it was."""
    brightest = images.amax((-3, -2, -1), keepdim=True)
    foggy = images + thickness * _clouds(draws, images, smoothness)
    return foggy * brightest / (brightest + thickness)


def _clouds(draws: Draws, images: Tensor, decay: float) -> Tensor:  # shape: (N, 1, H, W) in [0, 1]
    height, width = images.shape[-2:]
    size = clouds_size(height, width)
    return plasma(draws.uniform(-1.0, 1.0, size, size), decay)[:, None, :height, :width]


def brightness(images: Tensor, draws: Draws, shift: float) -> Tensor:
    """Raise the value of the colour (of hue, saturation and value)."""
    value = images.amax(1, keepdim=True)
    raised = (value + shift).clamp(0.0, 1.0)
    return torch.where(value > 0, images * (raised / value.clamp(min=1e-6)), raised)


def spatter(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    intensity: float,
    liquid: str,
) -> Tensor:
    """Splash water, or mud, on the lens.

    Drops are where smoothed noise is high. The published sets light the rims of the water by edge detection; this one
    embosses the drops.
    """
    layer = gaussian_filtered(_layer(draws, images, mean, deviation), sigma)
    if liquid == "mud":
        cover = gaussian_filtered((layer > threshold).float(), intensity)
        cover = torch.where(cover < 0.8, 0.0, cover)
        return images * (1.0 - cover) + cover * _MUD[:, None, None]
    drops = torch.where(layer < threshold, 0.0, layer)
    lit = F.avg_pool2d(filtered(drops, _EMBOSS).clamp(min=0.0), 3, stride=1, padding=1) * (drops > 0)
    lit = lit / lit.amax((-3, -2, -1), keepdim=True).clamp(min=1e-6)
    return images + intensity * lit * _WATER[:, None, None]
