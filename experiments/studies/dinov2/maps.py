"""Maps of the predictive variance of DINOv2's attention over photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

import cgp
from cgp.plotting import variance_maps
from experiments.atomic_files import write_atomically
from experiments.studies.dinov2.host import host
from experiments.studies.dinov2.states import pixels

__all__ = ["ClassToken", "maps"]

_SIDE = 448  # pixels: 32 x 32 patches
_LAYERS = (0, 5, 8, 11)


class ClassToken(nn.Module):
    """The host, whose output is the class token's."""

    def __init__(self, host: Any) -> None:
        super().__init__()
        self.host = host

    def forward(self, images: Tensor) -> Tensor:
        return self.host(images).pooler_output


def maps(*, out: Path = Path("docs/images/dinov2-maps.png")) -> None:
    """Draw the variance of four layers over two photographs, whole, half covered and with a patch of noise.

    Args:
        out: the picture.
    """
    shown, names = _photographs()
    model = cgp.convert(ClassToken(host()), layers="all")
    prediction = cgp.predict(model, pixels(shown, _SIDE), 1, batch_size=1)
    maps = torch.stack([_relative(prediction.patch_variance(layer).mean(1)) for layer in _LAYERS], 1)
    axes: Any = variance_maps(
        shown,
        maps,
        rows=names,
        columns=[f"layer {layer + 1}" for layer in _LAYERS],
        label="Variance / its median on the whole photograph",
    )
    write_atomically(out, lambda aside: axes.flat[0].figure.savefig(aside, format="png", dpi=150))


def _relative(variance: Tensor) -> Tensor:
    """Each photograph and its changed versions over the median of the unchanged one, which comes first of three."""
    return variance / variance[::3].flatten(1).median(1).values.repeat_interleave(3)[:, None, None]


def _photographs() -> tuple[Tensor, list[str]]:
    generator = torch.Generator().manual_seed(0)
    shown = []
    for image in load_sample_images().images:
        whole = torch.from_numpy(image.copy()).permute(2, 0, 1).float()[:, :427, 100:527] / 255
        covered, noisy = whole.clone(), whole.clone()
        covered[:, :, 214:] = 0.5
        noisy[:, 150:300, 150:300] = torch.rand(3, 150, 150, generator=generator)
        shown += [whole, covered, noisy]
    return torch.stack(shown), ["photograph", "half covered", "a square of noise"] * 2
