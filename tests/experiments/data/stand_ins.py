"""Tiny stand-ins for the public sets, in their layouts, for tests without the data."""

import json
import lzma
from pathlib import Path

import numpy as np

from experiments.data.catalogue import IMAGE_SETS
from experiments.data.texts import PUBLISHED_TEXTS

__all__ = ["write_stand_in"]

_NOUNS = ("cat", "dog", "child", "teacher", "river", "book")
_VERBS = ("sees", "likes", "reads", "follows", "draws")


def write_stand_in(root: Path, name: str, *, count: int = 40, side: int = 32) -> None:
    """Write a synthetic set of a few examples; read it with `DataConfig(name=name, root=root, unchecked=True)`."""
    folder = root / name / "raw" if name == "cola" else root / name
    folder.mkdir(parents=True, exist_ok=True)
    if name not in PUBLISHED_TEXTS:
        _write_images(folder, name, count, side)
    elif name == "imdb":
        lines = [json.dumps({"text": text, "label": label}) for text, label in _reviews(2 * count, 0)]
        (folder / "imdb.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    elif name == "clinc150":
        parts = {part: _requests(count) for part in ("train", "val", "test")}
        parts["oos_test"] = [(_sentence(np.random.default_rng(n), True), "oos") for n in range(count)]
        (folder / "data_full.json").write_text(json.dumps(parts))
    else:
        for number, part in enumerate(PUBLISHED_TEXTS[name].sizes):
            rows = _judged(count, number) if name == "cola" else _reviews(count, number)
            columns = "made-up\t{1}\t\t{0}\n" if name == "cola" else "{0}\t{1}\n"
            (folder / f"{part}.tsv").write_text("".join(columns.format(*row) for row in rows), encoding="utf-8")


def _write_images(folder: Path, name: str, count: int, side: int) -> None:
    known = IMAGE_SETS.get(name)
    classes = (known.num_classes if known else 2) or 2
    for number, split in enumerate(("train", "test")):
        labels = np.arange(count) % classes
        noise = np.random.default_rng(number).integers(0, 128, (count, side, side, 3))
        # Classes differ in brightness, so that there is something to learn.
        images = (noise + labels[:, None, None, None] * 127 // max(classes - 1, 1)).astype(np.uint8)
        np.savez(folder / f"{split}.npz", images=images, labels=labels.astype(np.int64))


def _sentence(numbers: np.random.Generator, good: bool) -> str:
    subject, verb, thing = numbers.choice(_NOUNS), numbers.choice(_VERBS), numbers.choice(_NOUNS)
    return f"The {subject} {verb} the {thing}." if good else f"The {verb} {subject} the {thing} {verb}."


def _judged(count: int, seed: int) -> list[tuple[str, int]]:
    """Sentences that are acceptable (1) or not."""
    numbers = np.random.default_rng(seed)
    return [(_sentence(numbers, n % 2 == 1), n % 2) for n in range(count)]


def _reviews(count: int, seed: int) -> list[tuple[str, int]]:
    """Reviews that praise (1) or do not."""
    numbers, words = np.random.default_rng(seed), ("dreadful", "splendid")
    return [
        (f"A {words[n % 2]} film. {_sentence(numbers, True)}<br />{_sentence(numbers, True)}", n % 2)
        for n in range(count)
    ]


def _requests(count: int) -> list[tuple[str, str]]:
    """Requests whose intent is their verb."""
    return [(f"please {_VERBS[n % 5]} {_NOUNS[n % 6]}", _VERBS[n % 5]) for n in range(count)]
