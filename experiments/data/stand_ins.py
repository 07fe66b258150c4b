"""Tiny stand-ins for the public sets, in their layouts: what a smoke run and the tests read where no data is."""

import json
import lzma
from pathlib import Path

import numpy as np

from experiments.data.catalogue import IMAGE_SETS
from experiments.data.texts import COLA_FILES

__all__ = ["write_stand_in"]

_NOUNS = ("cat", "dog", "child", "teacher", "river", "book")
_VERBS = ("sees", "likes", "reads", "follows", "draws")


def write_stand_in(root: Path, name: str, *, count: int = 40, side: int = 32) -> None:
    """Write a made-up set of a few examples; it is read with `DataConfig(name=name, root=root, unchecked=True)`.

    Args:
        root: folder of the sets.
        name: cola, imdb, sst2, clinc150, or an image set: a known one, or a name of your own (of two classes).
        count: examples of each part, at least 20.
        side: of the images.

    Example:
        >>> import tempfile
        >>> from experiments.data import DataConfig, load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_stand_in(Path(folder), "cifar10")
        ...     len(load(DataConfig(name="cifar10", root=folder, unchecked=True), seed=0).test)
        40
    """
    writers = {"cola": _write_cola, "imdb": _write_imdb, "sst2": _write_sst2, "clinc150": _write_clinc150}
    folder = root / name / "raw" if name == "cola" else root / name
    folder.mkdir(parents=True, exist_ok=True)
    if name in writers:
        writers[name](folder, count)
    else:
        _write_images(folder, name, count, side)


def _write_images(folder: Path, name: str, count: int, side: int) -> None:
    known = IMAGE_SETS.get(name)
    classes = (known.num_classes if known else 2) or 2
    for number, split in enumerate(("train", "test")):
        numbers = np.random.default_rng(number)
        labels = np.arange(count) % classes
        noise = numbers.integers(0, 128, (count, side, side, 3))
        # Each class has its brightness, so that there is something to learn.
        images = (noise + labels[:, None, None, None] * 127 // max(classes - 1, 1)).astype(np.uint8)
        np.savez(folder / f"{split}.npz", images=images, labels=labels.astype(np.int64))


def _sentence(numbers: np.random.Generator, good: bool) -> str:
    subject, verb, thing = numbers.choice(_NOUNS), numbers.choice(_VERBS), numbers.choice(_NOUNS)
    return f"The {subject} {verb} the {thing}." if good else f"The {verb} {subject} the {thing} {verb}."


def _write_cola(folder: Path, count: int) -> None:
    for number, part in enumerate(COLA_FILES):
        numbers = np.random.default_rng(number)
        rows = [(place % 2, _sentence(numbers, place % 2 == 1)) for place in range(count)]
        lines = [f"made-up\t{label}\t{'' if label else '*'}\t{sentence}\n" for label, sentence in rows]
        (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")


def _write_imdb(folder: Path, count: int) -> None:
    numbers = np.random.default_rng(0)
    with lzma.open(folder / "imdb.jsonl.xz", "wt", encoding="utf-8") as lines:
        for place in range(2 * count):
            words = "splendid" if place % 2 else "dreadful"
            text = f"A {words} film. {_sentence(numbers, True)}<br />{_sentence(numbers, True)}"
            lines.write(json.dumps({"text": text, "label": place % 2}) + "\n")


def _write_sst2(folder: Path, count: int) -> None:
    for number, part in enumerate(("train", "dev", "test")):
        numbers = np.random.default_rng(number)
        words = ("dreadful", "splendid")
        lines = [
            f"a {words[n % 2]} film . {_sentence(numbers, True)} {_sentence(numbers, True)}\t{n % 2}\n"
            for n in range(count)
        ]
        (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")


def _write_clinc150(folder: Path, count: int) -> None:
    numbers = np.random.default_rng(0)
    parts = {
        part: [(f"please {_VERBS[n % 5]} {numbers.choice(_NOUNS)}", _VERBS[n % 5]) for n in range(count)]
        for part in ("train", "val", "test")
    }
    parts |= {f"oos_{part}": [(_sentence(numbers, True), "oos") for _ in range(count)] for part in parts}
    with lzma.open(folder / "data_full.json.xz", "wt", encoding="utf-8") as file:
        json.dump(parts, file)
