"""How fast a small vision transformer learns with each kind of attention: accuracy and NLL by step.

One recipe for all: AdamW at one rate, batches of 50, no dropout; validation by the blocks' means after every epoch.
`python -m experiments.studies.learning_curves` trains on scikit-learn's digits and writes a CSV file, a picture, and a
table of what was reached, and after which share of softmax's steps and time its accuracy at half of its training was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from csv import DictReader
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter
from torch import Tensor, nn

from cgp import CategoricalLikelihood, Objective
from cgp.plotting import WIDE, curves, style
from experiments.atomic_files import write_atomically
from experiments.configuration import each_seed
from experiments.data import load
from experiments.grids import Cell, Fitted, Grid, console_of_width, write_csv
from experiments.registry import forms
from experiments.runs.parsing import resolve, run_functions
from models import VisionTransformer

__all__ = ["FORMS", "Point", "learning_curves", "table", "trained"]


def _former(make: Callable[..., Any], width: int, heads: int) -> nn.Module:
    """Values as weights as they were: a process of unit variance, and query and key maps that are independent."""
    block = make(width, heads)
    block.log_amplitude = None
    block._reset_process_maps(stationary=True)
    return block


_MADE = {name: form.make for name, form in forms().items()}
_OF_THE_REGISTRY = ("softmax", "sgpa", "kep_svgp", "kernel", "cgp", "sparse_cgp", "cgp weights", "sparse_cgp weights")
FORMS: Mapping[str, Callable[..., nn.Module]] = {
    **{name: _MADE[name] for name in (*_OF_THE_REGISTRY, "sparse_cgp latent weights")},
    "cgp weights, former start": partial(_former, _MADE["cgp weights"]),
    "sparse_cgp weights, former start": partial(_former, _MADE["sparse_cgp weights"]),
}
"""By name: forms of the registry, and two with the start that they had before."""

_WORDS = {
    "cgp": "CGP (observations)",
    "sparse_cgp": "Sparse CGP (observations)",
    "cgp weights": "CGP (weights)",
    "sparse_cgp weights": "Sparse CGP (weights)",
    "sparse_cgp latent weights": "Sparse CGP (weights, latent)",
    "cgp weights, former start": "CGP (weights), former start",
    "sparse_cgp weights, former start": "Sparse CGP (weights), former start",
    "kernel": "kernel attention",
    "sgpa": "SGPA",
    "kep_svgp": "KEP-SVGP",
}
"""What tables and pictures call forms; others have their names."""

_SHOWN = ("softmax", "cgp", "sparse_cgp", "cgp weights", "sparse_cgp weights")
"""Forms in the picture: more lines than these hide each other."""

_PALE = 0.08  # opacity of bands that lie over each other

_SIZES: Mapping[str, Mapping[str, int]] = {
    "digits": {"image_size": 8, "patch_size": 2, "channels": 1, "embed_dim": 32, "mlp_dim": 64, "num_heads": 4},
    "cifar10": {"image_size": 32, "patch_size": 4, "channels": 3, "embed_dim": 64, "mlp_dim": 128, "num_heads": 4},
}


class Point(NamedTuple):
    """Validation after a number of steps, and the processor time that they took."""

    data: str
    depth: int
    form: str
    seed: int
    step: int
    seconds: float
    accuracy: float
    nll: float


def learning_curves(
    data: Literal["digits", "cifar10"] = "digits",
    names: Sequence[str] = tuple(FORMS),
    depths: Sequence[int] = (1, 3),
    seeds: int | tuple[int, ...] = (0, 1, 2),
    epochs: int = 12,
    count: int = 1000,
    rate: float = 4e-3,
    csv: Path = Path("docs/results/learning-curves.csv"),
    picture: Path = Path("docs/images/learning-curves.png"),
) -> None:
    """Train every form and write its curves.

    Args:
        data: data set, whose own split is used; CIFAR-10 is read from the folder CGP_DATA.
        names: forms, such as `[softmax,cgp,sparse_cgp]`; softmax among them.
        depths: numbers of layers.
        seeds: the seeds, one or several, such as `[0,1,2]`.
        epochs: number of epochs.
        count: number of training images.
        rate: learning rate.
        csv: file of the points; those of other data or depths that are in it stay.
        picture: file of the picture.

    Raises:
        ValueError: if a form is unknown, or softmax is not among them.
    """
    unknown = sorted(set(names) - set(FORMS))
    if unknown or "softmax" not in names:
        raise ValueError(f"names: expected softmax and some of {list(FORMS)}, got {list(names)}")
    points = [point for point in _read(csv) if point.data != data or point.depth not in depths]
    for depth in depths:
        for name in names:
            for seed in each_seed(seeds):
                points += _curve(data, depth, name, seed, epochs=epochs, count=count, rate=rate)
                points.sort(key=lambda point: (point.data, point.depth))
                write_csv(csv, [point._asdict() for point in points])
                sys.stderr.write(f"{data}, layers {depth}, {name}, seed {seed}: done\n")
        console_of_width(160).print(Fitted(table([p for p in points if (p.data, p.depth) == (data, depth)])))
    figure = _figure([point for point in points if point.data == data])
    write_atomically(picture, lambda aside: figure.savefig(aside, format="png", dpi=150))


def _read(csv: Path) -> list[Point]:
    """The points of an earlier run."""
    if not csv.exists():
        return []
    with csv.open() as lines:
        rows = [list(row.values()) for row in DictReader(lines)]
    return [
        Point(data, int(depth), form, int(seed), int(step), *map(float, measured))
        for data, depth, form, seed, step, *measured in rows
    ]


def _curve(data: str, depth: int, name: str, seed: int, *, epochs: int, count: int, rate: float) -> Iterator[Point]:
    splits = load(resolve([f"{data}/softmax"]).data, 0)
    (x, y), held_out = (_images(part) for part in (splits.train, splits.validation))
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {**_SIZES[data], "depth": depth, "num_classes": 10, "pooling": "mean", "dropout": 0.0}
    model = VisionTransformer(**sizes, attention=FORMS[name])
    for measured in trained(model, (x[:count], y[:count]), held_out, epochs=epochs, rate=rate):
        yield Point(data, depth, name, seed, *measured)


def trained(
    model: nn.Module,
    known: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    *,
    epochs: int,
    rate: float,
    new: Sequence[nn.Parameter] = (),
    faster: float = 1.0,
) -> Iterator[tuple[int, float, float, float]]:
    """Train with batches of 50, and validate after every epoch.

    Args:
        model: a classifier of ten classes with blocks.
        known: inputs and labels.
        held_out: those of validation.
        epochs: number of epochs.
        rate: learning rate.
        new: parameters that learn faster.
        faster: factor of their rate.

    Yields:
        Steps, seconds of the processor, accuracy and NLL.
    """
    x, y = known
    objective = Objective(model, CategoricalLikelihood(10), num_data=len(x))
    others = [p for p in objective.parameters() if p.requires_grad and not any(p is each for each in new)]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": [*new], "lr": faster * rate}]
    optimizer = torch.optim.AdamW(groups, rate)
    seconds, step = 0.0, 0
    for _ in range(epochs):
        start = process_time()
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            objective(x[rows], y[rows]).backward()
            optimizer.step()
            step += 1
        seconds += process_time() - start
        yield step, seconds, *_validated(model, *held_out)


def _images(examples: Any) -> tuple[Tensor, Tensor]:
    images = examples.images.float() / (255.0 if examples.images.dtype == torch.uint8 else 1.0)
    return images, examples.known_labels


@torch.no_grad()
def _validated(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    model.eval()
    logits = torch.cat([model(part) for part in x[:2000].split(250)])
    model.train()
    accuracy = (logits.argmax(-1) == y[:2000]).double().mean()
    return float(accuracy), float(nn.functional.cross_entropy(logits, y[:2000]))


def _by_seed(points: Sequence[Point], name: str, measure: str) -> np.ndarray[Any, Any]:
    """(seeds, epochs)."""
    seeds = sorted({point.seed for point in points})
    return np.array([[getattr(p, measure) for p in points if p.form == name and p.seed == seed] for seed in seeds])


def table(points: Sequence[Point]) -> Grid:
    """Accuracy half-way and at the end, NLL; over softmax's, steps and time to half-way accuracy, and time of all."""
    reference = _by_seed(points, "softmax", "accuracy").mean(0)
    half = (len(reference) + 1) // 2 - 1
    slow = _by_seed(points, "softmax", "seconds").mean(0)
    rows = []
    for name in dict.fromkeys(point.form for point in points):
        accuracy, nll, seconds = (_by_seed(points, name, measure) for measure in ("accuracy", "nll", "seconds"))
        reached, time = np.flatnonzero(accuracy.mean(0) >= reference[half]), seconds.mean(0)
        shares = ["not reached", "–"]
        if len(reached):
            shares = [f"{(reached[0] + 1) / (half + 1):.2f}", f"{time[reached[0]] / slow[half]:.2f}"]
        cells = [_spread(accuracy[:, half]), _spread(accuracy[:, -1]), _spread(nll[:, -1]), *shares]
        rows.append([Cell(_WORDS.get(name, name)), *map(Cell, [*cells, f"{time[-1] / slow[-1]:.2f}"])])
    reached_by = ["steps to softmax's half", "their time", "time of all"]
    header = ["attention", f"accuracy, epoch {half + 1}", f"epoch {len(reference)}", "NLL", *reached_by]
    return Grid(header, rows, title=f"{points[0].data}, layers: {points[0].depth}")


def _spread(values: np.ndarray[Any, Any]) -> str:
    return f"{values.mean():.3f}" + (f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else "")


def _figure(points: Sequence[Point]) -> Figure:
    """The error by step of the forms of `_SHOWN`, a panel for each depth, on the scale of a logarithm."""
    depths = list(dict.fromkeys(point.depth for point in points))
    with style():
        figure = Figure(figsize=(WIDE, 3.2), layout="constrained")
        for axis, depth in zip(figure.subplots(1, len(depths), sharey=True, squeeze=False)[0], depths, strict=True):
            chosen = [point for point in points if point.depth == depth]
            steps, trained = sorted({point.step for point in chosen}), {point.form for point in chosen}
            shown = {name: _WORDS.get(name, name) for name in _SHOWN if name in trained}
            lines = {title: 1.0 - _by_seed(chosen, name, "accuracy") for name, title in shown.items()}
            curves(steps, lines, xlabel="step", ylabel="validation error", yscale="log", ax=axis)
            for band in axis.collections:
                band.set_alpha(_PALE)
            axis.set_title(f"{depth} layer" + "s" * (depth > 1), loc="left")
            axis.yaxis.set_major_locator(FixedLocator([0.02, 0.05, 0.1, 0.2, 0.5, 1.0]))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axis.set_ylim(0.02, 1.0)
            if depth != depths[-1]:
                axis.get_legend().remove()
            if depth != depths[0]:
                axis.set_ylabel("")
    return figure


if __name__ == "__main__":
    run_functions(learning_curves, "studies.learning_curves")
