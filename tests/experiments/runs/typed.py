"""Commands as typed by a user, and synthetic folders of images."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from experiments import cli

ROOT = Path(cli.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
QUIET = ["--trainer.accelerator", "cpu", "--trainer.progress", "false"]
DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
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


def fit_folder(out, folder, row="softmax", *more):
    """A few steps of a row on images of one's own."""
    data = ["--name", f"own/{row}", "--data.name", "own", "--data.folder", str(folder), "--data.image_size", "8"]
    rest = ["--data.ood", "[]", "--smoke", "--out", str(out)]
    return ["fit", "--config", f"digits/{row}", *data, *rest, *QUIET, *more]


def stopped(arguments, capsys):
    """What a wrong command line is answered with: one line."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    return message.rpartition("error: ")[2]


def completed(command):
    """What a command in a process of its own writes."""
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def wait_for_epoch(folder, is_running, *, after=0.0):
    """Wait until some seconds after the first epoch of a run."""
    while not any(folder.rglob("last.ckpt")):
        assert is_running()
        time.sleep(0.01)
    time.sleep(after)
