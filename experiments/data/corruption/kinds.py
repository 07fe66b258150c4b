"""The kinds of corruption, their categories and the constants of their severities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.data.corruption import blur, digital, noise, weather
from experiments.data.corruption.draws import Draws

__all__ = ["CATEGORIES", "CORRUPTIONS", "EXTRA", "Corruption", "corrupted"]

_AT_ONCE = 500
_SEVERITIES = (1, 2, 3, 4, 5)


class Corruption(NamedTuple):
    """One kind of corruption.

    Attributes:
        category: "noise", "blur", "weather" or "digital".
        apply: from images `(N, 3, H, W)` in [0, 1], draws and the constants of a severity to images.
        constants: of the severities 1 to 5, as published for CIFAR-10-C.
    """

    category: str
    apply: Callable[..., Tensor]
    constants: tuple[tuple[Any, ...], ...]


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": Corruption("noise", noise.gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
        "shot_noise": Corruption("noise", noise.shot_noise, ((500,), (250,), (100,), (75,), (50,))),
        "impulse_noise": Corruption("noise", noise.impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
        "defocus_blur": Corruption(
            "blur", blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
        ),
        "glass_blur": Corruption(
            "blur", blur.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
        ),
        "motion_blur": Corruption("blur", blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
        "zoom_blur": Corruption("blur", blur.zoom_blur, ((1.05,), (1.10,), (1.15,), (1.20,), (1.25,))),
        "snow": Corruption(
            "weather",
            weather.snow,
            (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
        ),
        "frost": Corruption("weather", weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
        "fog": Corruption("weather", weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
        "brightness": Corruption("weather", weather.brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
        "contrast": Corruption("digital", digital.contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
        "elastic_transform": Corruption(
            "digital",
            digital.elastic_transform,
            ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ),
        "pixelate": Corruption("digital", digital.pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
        "jpeg_compression": Corruption("digital", digital.jpeg_compression, ((80,), (65,), (58,), (50,), (40,))),
        "speckle_noise": Corruption("noise", noise.speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,))),
        "gaussian_blur": Corruption("blur", blur.gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1.0,))),
        "spatter": Corruption(
            "weather",
            weather.spatter,
            (
                (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
                (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
                (0.65, 0.3, 1, 0.69, 0.5, "water"),
                (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
                (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
            ),
        ),
        "saturate": Corruption("digital", digital.saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    }
)
"""By the names of the published files: the 15 of the benchmark, then the 4 extra ones."""

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four that the benchmark holds back for development."""

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        category: tuple(name for name, kind in CORRUPTIONS.items() if kind.category == category)
        for category in ("noise", "blur", "weather", "digital")
    }
)
"""The four categories of CGPT's tables, the extra kinds included."""


def corrupted(images: Tensor, kind: str, severity: int, *, ids: Tensor, seed: int = 0) -> Tensor:
    """Corrupt images.

    What becomes of an image depends on the kind, the severity, the seed and its id, not on the other images.

    Args:
        images: `(N, C, H, W)` uint8, C 1 or 3. The constants suit 32 x 32 pixels.
        kind: one of `CORRUPTIONS`.
        severity: 1 to 5.
        ids: `(N,)` int64.
        seed: of all draws.

    Returns:
        `(N, C, H, W)` uint8.

    Raises:
        ValueError: if there is no such kind or severity, or the images are something else.

    Example:
        >>> grey = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
        >>> corrupted(grey, "brightness", 1, ids=torch.arange(2)).unique()
        tensor([113], dtype=torch.uint8)
    """
    _check(images, kind, severity, ids)
    if not len(images):
        return images.clone()
    chunks = zip(images.split(_AT_ONCE), ids.split(_AT_ONCE), strict=True)
    parts = [_corrupted(part, kind, severity, numbers.tolist(), seed) for part, numbers in chunks]
    return torch.cat(parts)


def _corrupted(images: Tensor, kind: str, severity: int, ids: list[int], seed: int) -> Tensor:
    channels = images.shape[1]
    pixels = (images.float() / 255).expand(-1, 3, -1, -1)
    corruption = CORRUPTIONS[kind]
    draws = Draws(kind, severity, seed, ids=ids)
    changed = corruption.apply(pixels, draws, *corruption.constants[severity - 1])
    if channels == 1:
        changed = changed.mean(1, keepdim=True)
    return (changed.clamp(0.0, 1.0) * 255).round().to(torch.uint8)


def _check(images: Tensor, kind: str, severity: int, ids: Tensor) -> None:
    if kind not in CORRUPTIONS:
        raise ValueError(f"kind: expected one of {', '.join(CORRUPTIONS)}, got {kind!r}")
    if severity not in _SEVERITIES:
        raise ValueError(f"severity: expected 1 to 5, got {severity!r}")
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images: expected uint8 (N, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")
    if ids.shape != images.shape[:1]:
        raise ValueError(f"ids: expected ({len(images)},), got {tuple(ids.shape)}")
