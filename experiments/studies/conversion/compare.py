"""Every method on every input set: predictions kept as they are made, and a table of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.data import CorruptionConfig, DataConfig, InputSet, input_sets, load
from experiments.evaluation import fit_temperature
from experiments.runs.prediction import load_predictions, save_predictions
from experiments.storage import write_json
from experiments.studies.conversion.methods import METHODS, TEMPERED, Task, Tempered, timed, validation_part
from experiments.studies.conversion.parts import CifarParts, cifar10_parts
from experiments.studies.conversion.report import write_report
from experiments.studies.conversion.training import trained

__all__ = ["compare"]

_CORRUPTIONS = CorruptionConfig()
OOD_KINDS = ("cifar100", "textures", "tiny_imagenet_resize")


def compare(
    *,
    data: Path,
    out: Path = Path("runs/conversion"),
    methods: Sequence[str] = tuple(METHODS),
    draws: int = 8,
    steps: int = 200,
    ood: int = 2000,
    corruptions: CorruptionConfig = _CORRUPTIONS,
    limit: int | None = None,
    full: bool = False,
    only_stored: bool = False,
) -> None:
    """Compare what can be made of the trained transformer; what is predicted already is not predicted again.

    Args:
        data: folder with cifar10, cifar100, textures and tiny_imagenet, each `<name>/<split>.npz`.
        out: the folder that `train` wrote.
        methods: which rows; those with a temperature alone follow from what they divide.
        draws: draws of a prediction.
        steps: of the calibration.
        ood: images of each OOD set at most.
        corruptions: which, and how many test images.
        limit: images of each part of CIFAR-10 at most.
        full: all corruptions, severities and test images instead of 1,000 images at severities 1, 3, 5.
        only_stored: write the report of what is there and predict nothing.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"methods: expected some of {', '.join(METHODS)}, got {', '.join(unknown)}")
    sets = list(_input_sets(data, ood, corruptions, limit, full))
    if not only_stored:
        task = Task(trained(out), cifar10_parts(data, limit), draws, steps)
        for name in methods:
            _perform(name, task, [*_validations(name, task.parts), *sets], out / "rows" / _slug(name))
    original, *others = METHODS
    folders = {name: out / "rows" / _slug(name) for name in (original, *TEMPERED, *others)}
    for name, tempered in TEMPERED.items():
        _temper(name, tempered, folders, sets)
    write_report(out, folders, [entry.name for entry in sets])


def _input_sets(
    data: Path, ood: int, corruptions: CorruptionConfig, limit: int | None, full: bool
) -> Iterator[InputSet]:
    """The test images, their corruptions, and images of no class."""
    config = DataConfig(
        name="cifar10",
        root=data,
        unchecked=True,
        ood=OOD_KINDS,
        limit_ood=None if full else ood,
        corruptions=corruptions,
        limit_test=limit,
    )
    splits = load(config, seed=0)
    for entry in input_sets(config, splits, seed=0, full=full):
        if entry.name != "validation":
            yield entry


def _validations(name: str, parts: CifarParts) -> Iterator[InputSet]:
    """The validation images on which a temperature of this row is to be fitted."""
    for tempered in TEMPERED.values():
        if tempered.base == name:
            part = validation_part(parts, tempered.validation)
            yield InputSet(_fitting(tempered), part.images, part.ids, part.labels)


def _fitting(tempered: Tempered) -> str:
    return f"calibration-{tempered.validation}"


def _perform(name: str, task: Task, sets: Sequence[InputSet], folder: Path) -> None:
    """Predict what is not there yet."""
    missing = [entry for entry in sets if not (folder / f"{entry.name}.npz").exists()]
    if not missing:
        return
    fitted, seconds = timed(METHODS[name], task)
    write_json(folder / "fit.json", {"method": name, "seconds": seconds, "note": fitted.note, "draws": task.draws})
    for entry in missing:
        images = _floats(entry.inputs)
        save_predictions(folder / f"{entry.name}.npz", fitted.logits(images), replace(entry, inputs=images))
        print(f"{name}: {entry.name}", flush=True)


def _temper(name: str, tempered: Tempered, folders: Mapping[str, Path], sets: Sequence[InputSet]) -> None:
    """Divide the saved logits of a complete row."""
    base, folder, fitting = folders[tempered.base], folders[name], _fitting(tempered)
    if not all((base / f"{each}.npz").exists() for each in (fitting, *(entry.name for entry in sets))):
        return
    validation, start = load_predictions(base / f"{fitting}.npz"), time.perf_counter()
    temperature = float(fit_temperature(validation.logits, validation.labels))
    seconds = time.perf_counter() - start
    for entry in sets:
        logits = torch.from_numpy(load_predictions(base / f"{entry.name}.npz").logits)
        save_predictions(folder / f"{entry.name}.npz", logits / temperature, entry)
    fit = json.loads((base / "fit.json").read_text(encoding="utf-8"))
    write_json(
        folder / "fit.json",
        fit | {"method": name, "seconds": fit["seconds"] + seconds, "note": f"T = {temperature:.3f}; {fit['note']}"},
    )


def _slug(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _floats(images: Any) -> torch.Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images
