"""Commands as a user types them, and images of one's own."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from experiments.cli import main

QUIET = ["--trainer.accelerator", "cpu", "--trainer.progress", "false"]
DIGITS = load_digits()


def write_images(folder, numbers, size=(8, 8)):
    """Digits as image files."""
    folder.mkdir(parents=True)
    for number in numbers:
        pixels = (DIGITS.images[number] * 15.9).astype(np.uint8)
        Image.fromarray(pixels).resize(size).save(folder / f"{number:04d}.png")


def write_classes(folder, first):
    """Two classes of twenty digits each, from the given one on."""
    for label in range(2):
        write_images(folder / f"digit {label}", np.flatnonzero(DIGITS.target == label)[first : first + 20])


def own(out, folder, row="softmax", *more):
    """A few steps of a row on images of one's own."""
    data = ["--name", f"own/{row}", "--data.name", "own", "--data.folder", str(folder), "--data.image_size", "8"]
    rest = ["--data.ood", "[]", "--smoke", "--out", str(out)]
    return ["fit", "--config", f"digits/{row}", *data, *rest, *QUIET, *more]


def stopped(arguments, capsys):
    """What a wrong command line is answered with."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "error: " in said
    return said.rpartition("error: ")[2]
