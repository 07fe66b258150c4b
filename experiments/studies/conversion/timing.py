"""Cost of predictions: every conversion relative to one pass of the original, interleaved in one process."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import cgp
from experiments.atomic_files import write_text
from experiments.benchmarks import interleaved
from experiments.configuration import DataConfig
from experiments.data import image_batch
from experiments.grids import Cell, Grid, as_markdown
from experiments.studies.conversion.training import cifar10, trained

__all__ = ["timing"]

_LAYERS: Mapping[str, str | list[int]] = {
    "the last layer": "last",
    "the first layer": [0],
    "the second layer": [1],
    "all layers": "all",
}


def timing(
    *,
    data: Path,
    out: Path = Path("runs/conversion"),
    draws: Sequence[int] = (1, 8, 16),
    batch_size: int = 250,
    rounds: int = 5,
    threads: int = 1,
) -> None:
    """Time predictions of one batch, in passes of the original per draw.

    Args:
        data: folder with `cifar10/train.npz`.
        out: folder written by `train`.
        draws: numbers of draws.
        batch_size: images per batch.
        rounds: number of interleaved rounds, of which medians are printed.
        threads: number of torch threads.
    """
    splits, _ = cifar10(DataConfig(name="cifar10", root=data, unchecked=True, limit_test=batch_size))
    model, (images, _) = trained(out), image_batch(splits.test, slice(None))
    calls = {"one pass": torch.no_grad()(partial(model, images))}
    for method, title in (("cgp", "GP"), ("sparse_cgp", "sparse GP")):
        for place, layers in _LAYERS.items():
            converted = cgp.convert(model, method, layers, inputs=images[:64] if method == "sparse_cgp" else None)
            options: dict[str, Any] = {"sampling": "joint", "seed": 0, "keep_variance": False}
            for count in draws:
                calls[f"{title} in {place}, {count}"] = partial(cgp.predict, converted, images, count, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "predict: one draw")  # a single draw is timed, too
        timings = interleaved(calls, threads=threads, rounds=(rounds, rounds))
    titles = dict.fromkeys(name.rsplit(", ", 1)[0] for name in list(calls)[1:])
    rows = [[t, *(f"{timings[f'{t}, {count}'][1] / count:.2f}" for count in draws)] for t in titles]
    grid = Grid(["prediction", *(f"S = {count}" for count in draws)], [[Cell(text) for text in row] for row in rows])
    write_text(out / "timing.md", as_markdown(grid))
