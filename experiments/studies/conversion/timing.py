"""What predictions cost: every method against one pass of the original, interleaved in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import cgp
from experiments.storage import write_json, write_text
from experiments.studies.conversion.parts import cifar10_parts
from experiments.studies.conversion.training import trained

__all__ = ["timing"]

_VARIANTS: dict[str, tuple[str, str | list[int], str]] = {
    "sparse GP in the last layer": ("sparse_cgp", "last", "marginal"),
    "GP in the last layer": ("cgp", "last", "joint"),
    "GP in the first layer": ("cgp", [0], "joint"),
    "sparse GP in the first layer": ("sparse_cgp", [0], "joint"),
    "GP in the second layer": ("cgp", [1], "joint"),
    "GP in all layers": ("cgp", "all", "joint"),
    "sparse GP in all layers": ("sparse_cgp", "all", "joint"),
}


def timing(
    *,
    data: Path,
    out: Path = Path("runs/conversion"),
    draws: Sequence[int] = (1, 8, 16),
    batch_size: int = 250,
    repeats: int = 5,
    threads: int = 2,
) -> None:
    """Time predictions of one batch: median over interleaved repeats, as a ratio to one pass of the original a draw.

    Args:
        data: folder with `cifar10/train.npz`.
        out: the folder that `train` wrote.
        draws: numbers of draws.
        batch_size: images.
        repeats: of each measurement.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    model, images = trained(out), cifar10_parts(data, limit=batch_size).test.images
    calls: dict[tuple[str, int], Callable[[], object]] = {("softmax, one pass", 1): lambda: model(images)}
    for name, (method, layers, sampling) in _VARIANTS.items():
        inputs = images[:64] if method == "sparse_cgp" else None
        converted = cgp.convert(model, method, layers, inputs=inputs)
        for count in draws:
            calls[name, count] = _predicting(converted, images, count, sampling)
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    with torch.no_grad():
        for _ in range(repeats + 1):  # the first is for warming up
            for key, call in calls.items():
                start = time.perf_counter()
                call()
                seconds[key].append(time.perf_counter() - start)
    medians = {key: statistics.median(values[1:]) for key, values in seconds.items()}
    base = medians["softmax, one pass", 1]
    write_json(out / "timing.json", {f"{name} × {count}": value for (name, count), value in medians.items()})
    lines = [
        "| prediction | " + " | ".join(f"S = {count}" for count in draws) + " |",
        "| --- |" + " ---: |" * len(draws),
    ]
    for name in _VARIANTS:
        cells = [f"{medians[name, count] / base / count:.2f}" for count in draws]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    write_text(out / "timing.md", "\n".join(lines) + "\n")
    print("\n".join(lines), f"\none pass of the original: {1000 * base:.0f} ms for {batch_size} images", flush=True)


def _predicting(model: torch.nn.Module, images: torch.Tensor, count: int, sampling: str) -> Callable[[], object]:
    return lambda: cgp.predict(model, images, count, sampling=sampling, antithetic=True, seed=0, keep_variance=False)
