"""Every method on every input set, in predictions that are kept and a table; and what predictions cost."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import cgp
from cgp.networks.methods import Posterior
from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks.metrics import auroc
from experiments.atomic_files import write_atomically, write_text
from experiments.benchmarks import interleaved
from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import (
    DIGITS_CORRUPTIONS,
    Examples,
    InputSet,
    batch,
    corrupted_digits,
    generator_for,
    image_batch,
    input_sets,
)
from experiments.evaluation import classification_report, uncertainty
from experiments.grids import markdown_table
from experiments.methods import last_layer_laplace, mc_dropout_logits
from experiments.studies.conversion.training import cifar10, trained

__all__ = ["METHODS", "Task", "calibration_images", "compare", "timing"]

_BATCH = 250
_OOD = ("cifar100", "textures", "tiny_imagenet_resize")
_CORRUPTIONS = CorruptionConfig()
_SCORES = ("accuracy", "nll", "ece", "aurc")


class Task(NamedTuple):
    """Model and data of a method.

    Attributes:
        model: the trained transformer, in eval mode; not to be changed.
        train: the training images.
        calibration: images and labels for fitting scales, temperatures and prior precisions.
        draws: number S of draws.
    """

    model: nn.Module
    train: Examples
    calibration: Examples
    draws: int


def calibration_images(part: Examples, share: float) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels; a share has the corruptions of the digits, at strengths 1 to 5."""
    images, labels = image_batch(part, slice(None))
    order = torch.randperm(len(images), generator=generator_for("corrupted", len(images)))[: round(share * len(images))]
    cells = [(kind, strength) for kind in DIGITS_CORRUPTIONS for strength in range(1, 6)]
    for number, (kind, strength) in enumerate(cells):
        chosen = order[number :: len(cells)]
        if len(chosen):
            images[chosen] = corrupted_digits(images[chosen], kind, strength, seed=number)
    return images, labels


@torch.no_grad()
def _plain(model: nn.Module, images: Tensor) -> Tensor:
    """Logits (1, N, C) of the unconverted model."""
    return torch.cat([model(part) for part in images.split(_BATCH)])[None]


def _softmax(task: Task, *, share: float | None = None) -> Callable[[Tensor], Tensor]:
    """The unconverted model; with a share, with a temperature fitted to calibration images of which it is corrupted."""
    plain = partial(_plain, task.model)
    if share is None:
        return plain
    images, labels = calibration_images(task.calibration, share)
    temperature = fit_temperature(plain(images), labels)
    return lambda images: plain(images) / temperature


def _mc_dropout(task: Task) -> Callable[[Tensor], Tensor]:
    return lambda images: mc_dropout_logits(task.model, images.split(_BATCH), task.draws)


def _laplace(task: Task) -> Callable[[Tensor], Tensor]:
    images, labels = image_batch(task.train, slice(None))
    held_out, classes = calibration_images(task.calibration, 0.0)
    parts = [images[rows] for rows in torch.arange(len(images)).split(_BATCH)]
    posterior = last_layer_laplace(task.model, parts, labels, validation=(held_out.split(_BATCH), classes))
    return lambda images: posterior.draw_logits(images.split(_BATCH), task.draws, torch.Generator().manual_seed(0))


def _gaussian_process(
    task: Task, *, method: str = "cgp", layer: int = 1, share: float = 0.0, criterion: str = "widest"
) -> Callable[[Tensor], Tensor]:
    """Convert one layer, calibrate on images of which a share is corrupted, predict by joint draws."""
    images, labels = calibration_images(task.calibration, share)
    inputs = images[:64] if method == "sparse_cgp" else None
    converted = cgp.convert(task.model, method, [layer], inputs=inputs)
    parts = zip(images.split(_BATCH), labels.split(_BATCH), strict=True)
    joint = Posterior(criterion=criterion, sampling="joint")
    cgp.calibrate(converted, parts, method=joint, num_samples=task.draws)
    predict = partial(cgp.predict, sampling="joint", seed=0, batch_size=_BATCH, keep_draws=True, keep_variance=False)

    def logits(images: Tensor) -> Tensor:
        draws = predict(converted, images, task.draws).draws
        assert draws is not None, "they were asked for"
        return draws.clamp(min=torch.finfo(torch.float32).tiny).log()  # logits up to a constant per draw

    return logits


METHODS: Mapping[str, Callable[[Task], Callable[[Tensor], Tensor]]] = {
    "softmax, as trained": _softmax,
    "temperature": partial(_softmax, share=0.0),
    "temperature, a fifth corrupted": partial(_softmax, share=0.2),
    "MC dropout": _mc_dropout,
    "last-layer Laplace": _laplace,
    "GP in the second layer": _gaussian_process,
    "GP in the second layer, a fifth corrupted, by likelihood": partial(
        _gaussian_process, share=0.2, criterion="likelihood"
    ),
    "GP in the first layer": partial(_gaussian_process, layer=0),
    "sparse GP in the first layer": partial(_gaussian_process, method="sparse_cgp", layer=0),
}


def compare(
    *,
    data: Path,
    out: Path = Path("runs/conversion"),
    methods: Sequence[str] = tuple(METHODS),
    draws: int = 8,
    ood: int | None = 2000,
    corruptions: CorruptionConfig = _CORRUPTIONS,
    limit: int | None = None,
    full: bool = False,
) -> None:
    """Compare the methods on the trained transformer; existing predictions are reused.

    Args:
        data: folder with cifar10, cifar100, textures and tiny_imagenet, each `<name>/<split>.npz`.
        out: folder written by `train`.
        methods: names of the methods.
        draws: number of draws of a prediction.
        ood: largest number of images of each OOD set.
        corruptions: configuration of the corrupted test images.
        limit: largest number of training and of test images.
        full: use all corruptions, severities and test images instead of 1,000 images at severities 1, 3, 5.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"methods: expected some of {', '.join(METHODS)}, got {', '.join(unknown)}")
    cut: dict[str, Any] = {"limit_train": limit, "limit_test": limit, "limit_ood": ood}
    config = DataConfig(name="cifar10", root=data, unchecked=True, ood=_OOD, corruptions=corruptions, **cut)
    splits, calibration = cifar10(config)
    task = Task(trained(out), splits.train, calibration, draws)
    sets = [entry for entry in input_sets(config, splits, seed=0, full=full) if entry.name != "validation"]
    rows = {name: _scores(dict(_predicted(name, task, sets, out / "rows")), sets) for name in methods}
    columns = list(next(iter(rows.values())))
    cells = [[name, *(f"{row[key]:.4g}" for key in columns)] for name, row in rows.items()]
    write_text(out / "conversion.md", markdown_table(["method", *columns], cells))


def _predicted(name: str, task: Task, sets: Sequence[InputSet], folder: Path) -> Iterator[tuple[str, Any]]:
    """Logits (S, N, C) of every input set, from the files of an earlier call if there are any."""
    predict = None
    for entry in sets:
        path = folder / name.replace(",", "").replace(" ", "-") / f"{entry.name}.npy"
        if not path.exists():
            predict = predict or METHODS[name](task)
            images, _ = batch(entry, slice(None))
            assert isinstance(images, Tensor), "texts have no images"
            with torch.no_grad():
                logits = predict(images).numpy()
            write_atomically(path, partial(np.save, arr=logits))
        yield entry.name, np.load(path)


def _scores(logits: Mapping[str, Any], sets: Sequence[InputSet]) -> dict[str, float]:
    """One row of the table: the test set, the mean over corruptions, each OOD set."""
    reports = {s.name: classification_report(logits[s.name], s.labels.numpy()) for s in sets if s.labels is not None}
    corrupted = [report for name, report in reports.items() if name.startswith("corrupted-")]
    familiar = uncertainty(logits["test"]).total
    return {
        **{key: getattr(reports["test"], key) for key in _SCORES},
        **{f"corrupted {key}": float(np.mean([getattr(report, key) for report in corrupted])) for key in _SCORES},
        **{f"AUROC {s.name}": auroc(familiar, uncertainty(logits[s.name]).total) for s in sets if s.labels is None},
    }


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
    write_text(out / "timing.md", markdown_table(["prediction", *(f"S = {count}" for count in draws)], rows))
