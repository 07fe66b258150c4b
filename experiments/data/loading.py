"""From a configuration to examples in memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from experiments.configuration import DataConfig
from experiments.data.catalogue import IMAGE_SETS, read_set
from experiments.data.corrupted_sets import check_published, corrupted_sets
from experiments.data.digits import MEAN, STANDARD_DEVIATION, digits_parts
from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet
from experiments.data.images import Pixels, fitted, pixel_statistics, read_arrays, read_classes
from experiments.data.ood import ood_sets
from experiments.data.partition import limited, stratified_partition
from experiments.data.text_loading import TEXT_SETS, load_texts

__all__ = ["check_inputs", "input_sets", "load"]

PARTS = ("train", "validation", "test")
_SPELLINGS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}
_HELD_OUT_TEST = 0.2
_SIDE = 32


def load(data: DataConfig, seed: int) -> DataSplits:
    """Read and split a data set."""
    if data.folder and data.name in ("digits", *TEXT_SETS, *IMAGE_SETS):
        raise ValueError(f"data.name: expected a name of your own for data.folder={data.folder}, got {data.name!r}")
    if data.name in TEXT_SETS:
        return load_texts(data, seed)
    return _load_digits(data, seed) if data.name == "digits" else _load_images(data, seed)


def input_sets(data: DataConfig, splits: DataSplits, seed: int, *, full: bool = False) -> Iterator[InputSet]:
    """Yield all sets of inputs to predict."""
    for name, part in {"validation": splits.validation, "test": splits.test, **splits.others}.items():
        yield InputSet(part.inputs, None if name.startswith("ood-") else part.labels, part.ids, name)
    if splits.description.kind == "image":
        yield from corrupted_sets(data, splits, full=full)
        yield from ood_sets(data, splits)


def check_inputs(data: DataConfig, splits: DataSplits) -> None:
    """Raise before the training, not after it, if inputs to be predicted are missing."""
    if splits.description.kind == "image":
        check_published(data, splits.test)
        for _ in ood_sets(data, splits):
            pass


def _load_digits(data: DataConfig, seed: int) -> DataSplits:
    parts, reductions = _limited(digits_parts(seed if data.split_seed is None else data.split_seed), data)
    names = tuple("0123456789")
    description = DataDescription(
        "image", 10, (1, 8, 8), (MEAN,), (STANDARD_DEVIATION,), class_names=names, deviations=reductions
    )
    return DataSplits(parts["train"], parts["validation"], parts["test"], description)


def _load_images(data: DataConfig, seed: int) -> DataSplits:
    """Read an image set from a folder of classes or by its name."""
    pixels = _in_folder(data.folder.expanduser(), data) if data.folder else _by_name(data)
    differences, num_classes = _differences(data, pixels), _num_classes(data, pixels)
    parts, reductions = _limited(_three_parts(pixels, data, seed), data)
    images = pixels["train"].images
    side = data.image_size or min(images.shape[-2:])
    shape = images.shape[1], side, side
    parts = {name: Examples(fitted(part.images, shape), part.labels, part.ids) for name, part in parts.items()}
    mean, deviation = pixel_statistics(parts["train"].images)
    description = DataDescription(
        kind="image",
        num_classes=num_classes,
        image_shape=shape,
        mean=mean,
        deviation=deviation,
        class_names=pixels["train"].classes,
        deviations=(*differences, *reductions),
    )
    return DataSplits(parts["train"], parts["validation"], parts["test"], description)


def _limited(parts: Mapping[str, Examples], data: DataConfig) -> tuple[dict[str, Examples], tuple[str, ...]]:
    taken, reductions = limited({name: len(part) for name, part in parts.items()}, data, "examples")
    return {name: part.chosen(taken[name]) for name, part in parts.items()}, reductions


def _by_name(data: DataConfig) -> dict[str, Pixels]:
    """Read the parts of a set: train, test, and validation if there is a separate one."""
    root, name = data.data_root, data.name
    files = {part: root / name / f"{part}.npz" for part in ("validation", "test")}
    parts = {"train": read_set(name, "train", root=root, download=data.download)}
    parts |= {part: read_arrays(path) for part, path in files.items() if path.exists()}
    if "test" not in parts and name in IMAGE_SETS:
        parts["test"] = read_set(name, "test", root=root, download=data.download)
    return parts


def _in_folder(folder: Path, data: DataConfig) -> dict[str, Pixels]:
    """Read a folder of classes, or of parts that contain classes."""
    data.check_place()
    shape = 3, data.image_size or _SIDE, data.image_size or _SIDE
    spelled = {part: [folder / spelling for spelling in _SPELLINGS[part]] for part in PARTS}
    parts = {part: path for part, paths in spelled.items() for path in paths if path.is_dir()}
    if "train" not in parts:
        return {"train": read_classes(folder, shape)}
    parts_read = {part: read_classes(path, shape) for part, path in parts.items()}
    classes = parts_read["train"].classes
    for part, pixels in parts_read.items():
        if pixels.classes != classes:
            raise ValueError(
                f"{parts[part]}: expected the classes of {parts['train']}, {classes}; got {pixels.classes}"
            )
    return parts_read


def _differences(data: DataConfig, parts: Mapping[str, Pixels]) -> tuple[str, ...]:
    """Differences from the published set; an error unless `unchecked`."""
    known = IMAGE_SETS.get(data.name)
    if known is None:
        return ()
    differences = tuple(
        f"{parts[part].source} holds {len(parts[part].labels):,} of the {size:,} {part} images of {known.title}"
        for part, size in known.sizes.items()
        if part in parts and len(parts[part].labels) != size
    )
    if differences and not data.unchecked:
        raise ValueError(
            f"{data.data_root}: {'; '.join(differences)}. Get the whole set by {known.call}, or set "
            "data.unchecked=true to use what is there"
        )
    return differences


def _num_classes(data: DataConfig, parts: Mapping[str, Pixels]) -> int:
    known = IMAGE_SETS.get(data.name)
    if known and not known.num_classes:
        raise ValueError(f"data.name: {data.name} serves as OOD images only, it has no classes to learn")
    train, where = parts["train"], data.folder or data.data_root
    num_classes = known.num_classes if known else len(train.classes) or int(train.labels.amax()) + 1
    for pixels in parts.values():
        wrong = (pixels.labels < 0) | (pixels.labels >= num_classes)
        if wrong.any():
            label = int(pixels.labels[wrong][0])
            raise ValueError(f"{where}: {pixels.source}: expected labels from 0 to {num_classes - 1}, got {label}")
    if num_classes < 2:
        raise ValueError(f"{where}: {train.source}: expected at least two classes, got {num_classes}")
    return num_classes


def _three_parts(read: Mapping[str, Pixels], data: DataConfig, seed: int) -> dict[str, Examples]:
    """Hold out of the training part the parts that do not exist."""
    parts = {
        name: Examples(pixels.images, pixels.labels, torch.arange(len(pixels.labels))) for name, pixels in read.items()
    }
    shares = {"validation": data.validation, "test": _HELD_OUT_TEST}
    missing = {name: share for name, share in shares.items() if name not in parts}
    split_seed = seed if data.split_seed is None else data.split_seed
    whole = parts["train"]
    divided = stratified_partition(whole.known_labels, list(missing.values()), data.name, split_seed)
    parts |= {name: whole.chosen(part) for name, part in zip(("train", *missing), divided, strict=True)}
    for name, part in parts.items():
        if not len(part):
            raise ValueError(f"{read['train'].source}: expected enough images to hold some out for {name}, got none")
    return {name: parts[name] for name in PARTS}
